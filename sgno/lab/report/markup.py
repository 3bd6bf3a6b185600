"""Tables as HTML, written here: a template takes three times as long for thousands of rows."""

import re

from markupsafe import Markup, escape

from sgno.lab.report.tables.table import Cell, Table

# Longer tables scroll under their head instead of pushing all that follows out of sight.
_LONG = 40


def table_html(table: Table) -> Markup:
    """A sortable table: values to sort by stand in `data-value`, small print beneath the number."""
    numeric = [column.numeric for column in table.columns]
    heads = "".join(
        # Browsers leave buttons out of a head repeated on the next sheet: print uses the attribute.
        f'<th scope="col"{_classes("num" if column.numeric else "")} data-title="{escape(column.title)}">'
        f'<button type="button">{escape(column.title)}</button></th>'
        for column in table.columns
    )
    rows = "\n".join(
        f"<tr>{''.join(_cell(cell, numeric[i], i < table.names) for i, cell in enumerate(row))}</tr>"
        for row in table.rows
    )
    long = " long" if len(table.rows) > _LONG else ""
    return Markup(
        f'<div class="scroll{long}"><table class="sortable wide" id="table-{escape(table.id)}">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _cell(cell: Cell, numeric: bool, head: bool) -> str:
    """Everything that comes from a record passes through `escape`."""
    tag, scope = ("th", ' scope="row"') if head else ("td", "")
    classes = _classes("" if cell.mark == "name" else cell.mark, "num" if numeric else "")
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    notes = "".join(map(_note, cell.notes))
    text = str(escape(cell.text))
    text = re.sub("[:;_]", r"\g<0><wbr>", text) if head else text
    return f'<{tag}{scope}{classes}{value}><span class="v">{text}</span>{notes}</{tag}>'


def _note(note: str) -> str:
    """Small print that breaks only where a fact begins: after a colon, at a dot between two."""
    facts = (
        " ".join(f"<span>{escape(part)}</span>" for part in re.split("(?<=:) ", fact))
        for fact in note.split(" · ")
    )
    return f"<small>{'<i> · </i>'.join(facts)}</small>"


def _classes(*names: str) -> str:
    text = " ".join(name for name in names if name)
    return f' class="{text}"' if text else ""
