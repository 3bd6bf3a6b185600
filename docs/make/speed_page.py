"""The page of speed and memory, from the benchmark that was really run."""

import json
from pathlib import Path
from typing import Any

from benchmarks.speed.summary import rollout_seconds, rows

_HEAD = """# Speed and memory

Measured, not promised: `make bench` does all of it again on your machine, and `benchmarks/README.md` says
how it measures. The cases of a table take turns in one run; figures are medians, ranges are over the repeats.

```sh
python -m benchmarks.speed --help
```

An update is one of Adam with batch 20 at the paper's sizes (160 points, 64², 32³), a rollout is 200 steps of
30 states. *Plain* PyTorch has 1x1 convolutions, as such networks are usually written; *tuned* is our faster
implementation with batched matrix products. Both use both cores, as we do.
"""
_NOT_MEASURED = "\nNo benchmark is stored under `results/bench` yet.\n"
_FIGURES = {
    "bars.png": "Times of all cases",
    "scaling.png": "Time against points and modes",
    "history.png": "Ratios by commit",
}


def pages(folder: Path) -> dict[str, str | bytes]:
    """The page and its figures, by their paths in the site."""
    kept = folder / "bench.json"
    if not kept.is_file():
        return {"speed.md": _HEAD + _NOT_MEASURED}
    figures = {name: f"speed-{name}" for name in _FIGURES if (folder / name).is_file()}
    images = [f"\n![{_FIGURES[name]}]({path})\n" for name, path in figures.items()]
    text = "\n".join([_HEAD, *_sections(json.loads(kept.read_text())), *images])
    return {"speed.md": text, **{path: (folder / name).read_bytes() for name, path in figures.items()}}


def _sections(content: dict[str, Any]) -> list[str]:
    summary, machine = content["summary"], content["machine"]
    ours = [r for r in summary["speed"] if r["what"].endswith("/ sgno") and "torch" in r["what"]]
    baselines = [r for r in summary["speed"] if r["what"].endswith("/ our loop")]
    memory = {what: value for what, value in summary["memory"].items() if "torch" in what}
    return [
        f"Measured on {machine['processor']}, {machine['cores']} cores.\n",
        "## SGNO against PyTorch\n",
        _table(("", "Times longer", "Range"), [_ratio(r) for r in ours]),
        "## Peak memory against PyTorch\n\nAbove what the imports take, once compiled.\n",
        _table(("", "Times more"), [(what, f"{value:.2f}") for what, value in memory.items()]),
        "## Baselines: our loop against APEBench's trainer\n\n"
        "Our loop gives each core a part of the batch, the trainer leaves the cores to XLA; "
        "how much of the difference that makes was not measured.\n",
        _table(("", "Times longer", "Range"), [_ratio(r) for r in baselines]),
        "## What an update consists of\n\nNorm caps, generator and budget with their gradient, as training "
        "starts and where every mixer exceeds its cap; and the share of the machine's matrix-product rate "
        "that the whole update reaches.\n",
        _table(("", "Of an update"), _shares(summary["coefficients_share_of_update"])),
        _table(("", "Of the matrix-product rate"), _shares(summary["share_of_matmul_rate"])),
        "## Growth with the grid\n\nThe most by which time outgrew N log N between two grids; "
        "at most 1 is within.\n",
        _table(("", "Factor"), [(d, _factor(value)) for d, value in summary["growth_over_n_log_n"].items()]),
        "## Times\n",
        _table(("", "Seconds", "To compile", "Peak"), _times(content["groups"])),
    ]


def _ratio(r: dict[str, Any]) -> tuple[str, str, str]:
    return r["what"], f"**{r['value']:.2f}**", f"{r['low']:.2f} to {r['high']:.2f}"


def _shares(shares: dict[str, float]) -> list[tuple[str, str]]:
    return [(what, f"{value:.1%}") for what, value in shares.items()]


def _factor(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f}"


def _times(groups: dict[str, Any]) -> list[tuple[str, ...]]:
    """Updates, and rollouts scaled to 200 steps."""
    found = []
    for name in groups:
        for label, record in rows(groups, name).items():
            whole = record["case"]["work"] == "rollout"
            seconds = rollout_seconds(record) if whole else record["seconds"]
            compiling = f"{record['compile_seconds']:.1f} s"
            peak = f"{record['peak_megabytes']:.0f} MB" if "peak_megabytes" in record else ""
            found.append((f"{name}: {label}", f"{seconds:.3g}", compiling, peak))
    return found


def _table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    rule = " | ".join(["---", *["---:"] * (len(head) - 1)])
    lines = [" | ".join(head), rule, *(" | ".join(cells) for cells in body)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"
