"""`auto` on the wild suite: is its choice near the best of its candidates, and is the horizon right?

`python validation/test_wild_auto.py ROW,ROW,... [UPDATES]` fits each row (20 trajectories to learn from, 5 to
choose by, 5
to test on), scores every candidate on unseen trajectories that no fit has seen, and keeps what it finds in
`results/wild/auto.json`. Rows that are there already are not run again. UPDATES (1,000 by default) are those
of the networks: a time would depend on what else the machine does.
"""

import dataclasses
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sgno
from sgno.io.files import read_json, write_json
from sgno.lab.data.trajectories import default_cache
from sgno.lab.fit import stored_horizon
from sgno.lab.machine import machine, use_compilation_cache, versions
from sgno.lab.store import Store
from sgno.lab.wild.catalogue import get
from sgno.solve.metrics import stable_step
from sgno.weights import load

KEPT = Path(__file__).parent.parent / "results" / "wild" / "auto.json"
MINUTES, UNSEEN = 60, 30


def run_row(name: str, updates: int) -> dict[str, Any]:
    """What `auto` chose on a row, and how each of its candidates does on unseen trajectories."""
    data = dataclasses.replace(get(name), test_samples=UNSEEN).data()
    with tempfile.TemporaryDirectory() as folder:
        fitted = sgno.fit(data.train, validation=5, test=5, minutes=MINUTES, updates=updates, out=folder)
        store = Store(folder)
        candidates = [_candidate(store, row, data.test) for row in fitted.tried]
    scores = {each["model"]: each["gmean"] for each in candidates if each.get("gmean") is not None}
    chosen = fitted.record["auto"]["chosen"]
    return {
        "row": name,
        "updates": updates,
        "chosen": chosen,
        "stopped": fitted.record["auto"]["stopped"],
        "noise": fitted.record["auto"]["noise"],
        "ratio": _plain(scores.get(chosen, np.inf) / min(scores.values())),
        "candidates": candidates,
    }


def _candidate(store: Store, tried: sgno.lab.auto.Tried, unseen: np.ndarray) -> dict[str, Any]:
    content: dict[str, Any] = {"model": tried.model, "outcome": tried.outcome}
    if tried.job is None or tried.outcome != "tried":
        return {**content, "reason": tried.reason}
    horizon = stored_horizon(store, tried.job)
    scored = sgno.evaluate(load(store.weights(tried.job), finite=False), unseen)
    stays = np.array([stable_step(errors[:, None]) for errors in scored.nrmse.T])
    return {
        **content,
        "validation": _plain(tried.score),
        "gmean": _plain(scored.gmean100),
        "seconds": round(tried.seconds),
        "horizon": {
            "steps": horizon.steps,
            "probability": horizon.probability,
            "trajectories": horizon.trajectories,
            "reaches_end": horizon.reaches_end,
            "right": float((stays >= horizon.steps).mean()),
        },
    }


def _plain(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many choices are within 1.2 of the best, and how often horizons that end within the data are right:
    0 steps, and those as long as the data, are no statements that can be wrong by chance."""
    stated = [
        each["horizon"]
        for row in rows
        for each in row["candidates"]
        if "horizon" in each and each["horizon"]["steps"] > 0 and not each["horizon"]["reaches_end"]
    ]
    ratios = [row["ratio"] for row in rows]
    return {
        "rows": len(rows),
        "within_1.2": sum(ratio is not None and ratio <= 1.2 for ratio in ratios),
        "horizons": len(stated),
        "horizons_right": _plain(float(np.mean([h["right"] for h in stated]))) if stated else None,
    }


def main() -> None:
    use_compilation_cache(default_cache())
    updates = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    rows = read_json(KEPT)["rows"] if KEPT.exists() else []
    for name in sys.argv[1].split(","):
        if name in [row["row"] for row in rows]:
            continue
        rows.append(run_row(name, updates))
        where = {"versions": versions(), "machine": machine()}
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(KEPT, {"summary": summary(rows), "rows": rows, **where, "finished": finished})
        print(name, rows[-1]["chosen"], rows[-1]["ratio"], summary(rows), flush=True)


def test_auto_chooses_near_the_best_of_its_candidates():
    row = run_row("burgers", 300)
    assert row["ratio"] <= 1.2
    persistence = next(each for each in row["candidates"] if each["model"] == "persistence")
    best = next(each for each in row["candidates"] if each["model"] == row["chosen"])
    assert best["gmean"] < 0.01 * persistence["gmean"]


@pytest.mark.skipif(not KEPT.exists(), reason="no record yet")
def test_the_record_agrees_with_its_rows():
    kept = read_json(KEPT)
    assert kept["summary"] == summary(kept["rows"])


if __name__ == "__main__":
    main()
