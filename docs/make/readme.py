"""README's results, generated: `python docs/make/readme.py STORE README.md`.

The text between the two marks is replaced; the rest of the file stays as it is.
"""

import argparse
import sys
from pathlib import Path

from sgno.errors import InputError
from sgno.io.commit import write_bytes
from sgno.lab.report import paper
from sgno.lab.report.groups import Comparison, Row, compare, task_grid
from sgno.lab.report.models import SGNO, label, order
from sgno.lab.report.runs import read_store
from sgno.lab.report.statistics import ratio
from sgno.lab.report.tables.main import LINEAR_TASKS, main_columns
from sgno.lab.report.tables.table import number_text, printed_text
from sgno.lab.tasks import TASKS

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def readme_table(comparison: Comparison) -> str:
    """Tasks by models: our median GMean100, and in parentheses the paper's."""
    present = {model for row in comparison.rows for model in row.groups}
    models = [model for model in main_columns(comparison) if model in present or model in paper.CAPACITY]
    models.sort(key=order)
    heads = ["Task", "Grid", "Updates", "Seeds", *(label(model) for model in models), "SGNO / best network"]
    lines = [
        "| " + " | ".join(_text(head) for head in heads) + " |",
        "| --- | --- | ---: | ---: |" + " ---: |" * (len(models) + 1),
    ]
    for entry in comparison.entries:
        if isinstance(entry, str):
            lines.append("| " + " | ".join(_not_run(entry, models)) + " |")
        elif entry.name in TASKS:
            lines.append("| " + " | ".join(_row(entry, models)) + " |")
    return "\n".join(
        [
            *lines,
            "",
            f"{LINEAR_TASKS} Persistence forecasts that nothing changes.",
            "",
            "Medians over network seeds, the paper's number in parentheses. Bold is the best of the row, "
            "– was not run or not printed, † marks data or a budget other than the paper's. By the "
            "paper's budget a seed of U-Net in 3D takes some 11 hours on two cores, of Conv, Res and Dil 27 "
            "to 31.",
            "",
            lowest_network(comparison),
        ]
    )


def lowest_network(comparison: Comparison) -> str:
    """On how many tasks SGNO is the lowest network, and by which budget."""
    words = []
    for as_paper, budget in ((True, "the paper's budget"), (False, "a smaller one")):
        rows = [r for r in comparison.rows if r.as_paper is as_paper and r.name in TASKS]
        contested = {r.name: r for r in rows if SGNO in r.groups and r.best(networks_only=True)}
        ahead = [
            name
            for name, row in contested.items()
            if (best := row.best(networks_only=True)) and row.groups[SGNO].score.median < best.score.median
        ]
        if contested:
            others = ", ".join(name for name in contested if name not in ahead)
            behind = f" (not on {others})" if others else ""
            words.append(f"{len(ahead)} of {len(contested)} by {budget}{behind}")
    return f"SGNO is the lowest network on {'; on '.join(words)}." if words else ""


def _row(row: Row, models: list[str]) -> list[str]:
    best = min((row.groups[m].score.median for m in models if m in row.groups), default=float("inf"))
    cells = []
    for model in models:
        value = row.groups[model].score.median if model in row.groups else None
        text = "–" if value is None else number_text(value)
        bold = value is not None and value == best and value < float("inf")
        cells.append((f"**{text}**" if bold else text) + _papers(row.name, model))
    network, sgno = row.best(networks_only=True), row.groups.get(SGNO)
    against = ratio(sgno.score.median, network.score.median) if sgno and network else None
    return [
        _text(row.name) + ("" if row.as_paper else " †"),
        _text(task_grid(row.task)),
        row.updates,
        row.seeds,
        *cells,
        ("–" if against is None else number_text(against))
        + _in_parentheses(paper.SGNO_TO_BEST.get(row.name)),
    ]


def _not_run(task: str, models: list[str]) -> list[str]:
    cells = ("–" + _papers(task, model) for model in models)
    return [_text(task), "not run", "–", "–", *cells, "–" + _in_parentheses(paper.SGNO_TO_BEST.get(task))]


def _papers(task: str, model: str) -> str:
    return _in_parentheses(paper.GMEAN100.get(task, {}).get(model))


def _in_parentheses(printed: float | None) -> str:
    return "" if printed is None else f" ({printed_text(printed)})"


def _text(text: str) -> str:
    """Text of a record as text of a Markdown table."""
    kept = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return kept.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").replace("[", "\\[")


def update_readme(store_root: Path | str, readme: Path | str) -> bool:
    """Replace the text between the marks.

    **Returns:** whether the file changed.

    **Raises:** `InputError` if the marks are not there, each once and in order.
    """
    readme = Path(readme)
    if not readme.is_file():
        raise InputError(f"There is no file {readme}.")
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(
            f"{readme} must contain {BEGIN} and after it {END}, each once. Add them where results go."
        )
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    table = readme_table(compare(read_store(store_root).runs))
    new = f"{before}{BEGIN}\n{table}\n{END}{after}"
    if new != text:
        write_bytes(readme, [new.encode()])
    return new != text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python docs/make/readme.py", description="Put the results of a store into README."
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("readme", type=Path)
    chosen = parser.parse_args(arguments)
    try:
        changed = update_readme(chosen.store, chosen.readme)
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print(f"{chosen.readme}: {'updated' if changed else 'already up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
