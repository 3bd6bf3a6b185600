"""Tables as HTML, written here: a template takes three times as long for thousands of rows."""

from markupsafe import Markup, escape

from sgno.report.tables.table import Cell, Table


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
    return Markup(
        f'<div class="scroll"><table class="sortable wide" id="table-{escape(table.id)}">'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _cell(cell: Cell, numeric: bool, head: bool) -> str:
    """Everything that comes from a record passes through `escape`."""
    tag, scope = ("th", ' scope="row"') if head else ("td", "")
    classes = _classes("" if cell.mark == "name" else cell.mark, "num" if numeric else "")
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    notes = "".join(f"<small>{escape(note)}</small>" for note in cell.notes)
    return f'<{tag}{scope}{classes}{value}><span class="v">{escape(cell.text)}</span>{notes}</{tag}>'


def _classes(*names: str) -> str:
    text = " ".join(name for name in names if name)
    return f' class="{text}"' if text else ""
