"""The whole benchmark: measure group by group, write after each, summarise and draw."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.speed.cases import Group, full, quick
from benchmarks.speed.history import add_entry, commit, update_readme
from benchmarks.speed.plots import bar_chart, history_plot, scaling_plot
from benchmarks.speed.summary import summarise
from benchmarks.speed.timing import measure
from sgno.errors import unknown_name
from sgno.io.files import read_json, write_json
from sgno.lab.machine import machine, versions

README = Path(__file__).parent.parent / "README.md"
RESULTS = README.parent.parent / "results" / "bench"
Say = Callable[[str], None]


def run_benchmark(
    out: Path,
    *,
    small: bool = False,
    only: Sequence[str] = (),
    again: bool = False,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Measure what `out/bench.json` does not have yet, and write it there with figures.

    **Arguments:**

    - `out`: the folder of the results. A run that was interrupted goes on there.
    - `small`: a smoke run of a minute instead of the paper's sizes.
    - `only`: names of groups (`rollout-3d`), or the beginnings of names (`update`); all if empty.
    - `again`: measure even what is already there.
    - `say`: hears what is going on.

    **Returns:**

    The content of `bench.json`: `summary` first, then the machine, the versions and every group.
    """
    path = out / "bench.json"
    groups = dict(read_json(path)["groups"]) if path.exists() else {}
    content: dict[str, Any] = {}
    measured: list[str] = []
    measured_commit = commit()
    for group in select(quick() if small else full(), only):
        if again or group.name not in groups:
            groups[group.name] = {
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": {**versions(), **_torch_version()},
                "records": measure(group, say),
            }
            content = _content(groups)
            write_json(path, content)
            measured.append(group.name)
        for record in groups[group.name]["records"]:
            for problem in ("missing", "failed"):
                if problem in record:
                    say(f"{group.name}: {record['case']['label']} left out: {record[problem]}")
    content = content or _content(groups)
    past = out / "history.json"
    if measured and not small:
        told = {name: groups[name] for name in measured}
        date = datetime.now(UTC).isoformat(timespec="seconds")
        add_entry(past, measured_commit, content["machine"], date, summarise({**_matmul(groups), **told}))
    if past.exists():
        history_plot(read_json(past), out / "history.png")
        if out.resolve() == RESULTS:
            update_readme(README, read_json(past))
    bar_chart(groups, out / "bars.png")
    scaling_plot(groups, out / "scaling.png")
    return content


def _matmul(groups: dict[str, Any]) -> dict[str, Any]:
    """The rate of matrix products, by which shares are counted, even if it was measured before."""
    return {name: group for name, group in groups.items() if name == "matmul"}


def _content(groups: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summarise(groups), "machine": machine(), "groups": groups}


def _torch_version() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"torch": version("torch")}
    except PackageNotFoundError:
        return {}


def select(groups: Sequence[Group], only: Sequence[str]) -> list[Group]:
    """The groups called as one of `only`, or whose names begin so where none is called so.

    **Raises:** `InputError` if one of them names no group.
    """
    names = [group.name for group in groups]
    chosen: set[str] = set()
    for name in only:
        found = [name] if name in names else [known for known in names if known.startswith(name)]
        if not found:
            raise unknown_name("group", name, names)
        chosen.update(found)
    return [group for group in groups if not only or group.name in chosen]
