"""Ratios over time: one entry for each commit and machine that was measured, in `history.json`."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgno.io.files import read_json, write_json

_ROOT = Path(__file__).parent.parent.parent
_BEGIN, _END = "<!-- latest ratios: python -m benchmarks.speed -->", "<!-- end of the latest ratios -->"


def add_entry(
    path: Path, commit: str, machine: Mapping[str, Any], date: str, summary: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Add the ratios of a summary to the history; those of the same commit and machine are replaced.

    **Returns:** the whole history, oldest first.
    """
    history = list(read_json(path)) if path.exists() else []
    where = {"commit": commit, "processor": machine["processor"], "cores": machine["cores"]}
    same = [entry for entry in history if where.items() <= entry.items()]
    ratios = {**(same[-1]["ratios"] if same else {}), **ratios_of(summary)}
    history = [entry for entry in history if entry not in same]
    history.append({**where, "date": date, "ratios": ratios})
    history.sort(key=lambda entry: entry["date"])
    write_json(path, history)
    return history


def ratios_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """What is worth following: how many times longer others take, shares, what the first update costs."""
    ratios = {r["what"]: r["value"] for r in summary["speed"]}
    shares = summary["share_of_matmul_rate"].items()
    ratios |= {f"{d} update: share of the matrix-product rate": share for d, share in shares}
    ratios |= summary.get("first_update", {})
    return {what: float(f"{value:.4g}") for what, value in ratios.items()}


def latest(history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, str, str]]:
    """The last value of each ratio, with the commit and the date that it is of."""
    found = {}
    for entry in history:
        for what, value in entry["ratios"].items():
            found[what] = value, entry["commit"], entry["date"][:10]
    return found


def table(history: Sequence[Mapping[str, Any]]) -> str:
    """`latest` in Markdown, between the marks by which it is found again."""
    rows = [f"| {what} | {v:.3g} | {commit} | {day} |" for what, (v, commit, day) in latest(history).items()]
    return "\n".join([_BEGIN, "", "| ratio | value | commit | day |", "|---|---|---|---|", *rows, "", _END])


def update_readme(readme: Path, history: Sequence[Mapping[str, Any]]) -> None:
    """Put the table of the history in place of the one that is there."""
    text = readme.read_text()
    before, _, rest = text.partition(_BEGIN)
    readme.write_text(before + table(history) + rest.partition(_END)[2])


def commit() -> str:
    """The commit that is measured, with a `+` where the code differs from it."""

    def git(*words: str) -> str:
        found = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
        return found.stdout.strip()

    changed = git("diff", "HEAD", "--name-only", "--", "sgno", "benchmarks/*.py")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
