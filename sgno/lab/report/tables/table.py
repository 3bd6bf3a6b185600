"""What a table is before it is Markdown, CSV, LaTeX or HTML, and how numbers are written in all of them."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Literal

from sgno.lab.report.statistics import Spread, ratio

SMALL_PRINT = (
    "Small print: the paper's number and ours / paper; the number of seeds n with the quartiles over seeds; "
    "the bootstrap 95 % interval of the median from three seeds on."
)

Mark = Literal["", "best", "second", "missing", "name"]


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text to read, value to sort by, lines to read beneath it, and the same facts as numbers for CSV."""

    text: str
    value: float | int | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, float | int] = dataclasses.field(default_factory=dict)
    mark: Mark = ""


@dataclasses.dataclass(frozen=True)
class Column:
    """A heading; numbers are set to the right and sorted by value."""

    title: str
    numeric: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """The first `names` columns say what a row is."""

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int = 1

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"Table {self.id} has {len(self.columns)} columns, but a row of {len(row)} cells."
                )


NOT_RUN = Cell("not run", mark="missing")
NOTHING = Cell("–", mark="missing")


def number_text(x: float) -> str:
    """Three significant digits; never a bare nan or inf."""
    if not math.isfinite(x):
        return "non-finite"
    if x == 0:
        return "0"
    if 1e-3 <= abs(x) < 1000:
        return f"{x:#.3g}".rstrip(".")
    if 1000 <= abs(x) < 1e6:
        return f"{x:,.0f}"
    mantissa, exponent = f"{x:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def printed_text(x: float) -> str:
    """A number of the paper as it prints it, without digits that it does not give."""
    return f"{x:.4g}" if math.isfinite(x) else "non-finite"


def name_cell(text: str, *notes: str) -> Cell:
    return Cell(text, notes=notes, mark="name")


def number_cell(x: float | None, mark: Mark = "") -> Cell:
    return NOTHING if x is None else Cell(number_text(x), x, mark=mark)


def beside_paper(
    ours: float | None,
    theirs: float | None,
    *,
    seeds: Spread | None = None,
    missing: Cell = NOT_RUN,
    mark: Mark = "",
    whole: bool = False,
) -> Cell:
    """Our number, and beneath it the paper's with the ratio ours / paper, and the spread over seeds.

    `whole` writes counts such as a stable step without decimals that say nothing.
    """
    text = (lambda x: f"{x:g}") if whole else number_text
    if ours is None:
        facts = {} if theirs is None else {"paper": theirs}
        printed = () if theirs is None else (f"paper {printed_text(theirs)}",)
        return dataclasses.replace(missing, notes=(*printed, *missing.notes), facts=facts)
    notes: list[str] = []
    facts: dict[str, float | int] = {}
    if theirs is not None:
        facts["paper"] = theirs
        against = ratio(ours, theirs) if math.isfinite(ours) else None
        if against is None:
            notes.append(f"paper {printed_text(theirs)}")
        else:
            facts["ours_over_paper"] = against
            notes.append(f"paper {printed_text(theirs)} · ×{number_text(against)}")
    if seeds is not None:
        notes += _spread_notes(seeds, text)
        facts |= {"quartile_low": seeds.lower, "quartile_high": seeds.upper}
        if seeds.interval is not None:
            facts |= {"interval_low": seeds.interval[0], "interval_high": seeds.interval[1]}
        facts |= {"seeds": seeds.count, "nonfinite_seeds": seeds.nonfinite}
    return Cell(text(ours), ours, tuple(notes), facts, mark)


def _spread_notes(seeds: Spread, text: Callable[[float], str]) -> list[str]:
    if seeds.count == 1:
        return ["n = 1"]
    notes = [f"n = {seeds.count}: {text(seeds.lower)} … {text(seeds.upper)}"]
    if seeds.interval is not None:
        notes.append(f"95 %: {text(seeds.interval[0])} … {text(seeds.interval[1])}")
    if seeds.nonfinite:
        notes.append(f"{seeds.nonfinite} of {seeds.count} non-finite")
    return notes
