"""Baselines under our loop score what they score under APEBench's own trainer, both run by us.

APEBench's side is kept in `results/apebench`, one file a pair and seed, and run where a file is missing (some
minutes each); ours is in `results/desk`. `python validation/test_apebench_agreement.py` fills in what is
missing and prints the comparison.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sgno.io.files import read_json, write_json
from sgno.lab.machine import machine, versions
from sgno.lab.report.runs import read_store
from sgno.lab.tasks import get_task
from sgno.registry import get_model
from sgno.solve import gmean

RESULTS = Path(__file__).parent.parent / "results"
PAIRS = (("ks1d", "fno"), ("disp1d", "fno"), ("ks1d", "dil"), ("ks1d", "unet"))
SEEDS = (0, 1, 2)


def by_apebench(task: str, model: str, seed: int) -> dict[str, Any]:
    """One seed by APEBench's trainer and its own metric, from its file or by running it."""
    path = RESULTS / "apebench" / f"{task}-{model}-{seed}.json"
    if path.is_file():
        return read_json(path)
    import apebench

    network = get_model(model, 1).to_json()["network"]
    settings = {"scenario": get_task(task).scenario, "task": "predict", "net": network, "train": "one"}
    data, _ = apebench.run_experiment(
        **settings, start_seed=seed, num_seeds=1, num_spatial_dims=1, num_points=160
    )
    metrics = apebench.melt_metrics(data).sort_values("time_step")
    curve = metrics["mean_nRMSE"].to_numpy()
    content = {
        **settings,
        "seed": seed,
        "gmean100": float(gmean(np.asarray(curve))),
        "mean_nrmse": [float(x) for x in curve],
        "versions": versions(),
        "machine": machine(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)
    return content


def by_us(task: str, model: str) -> dict[int, float]:
    """Our scores by seed, by the full protocol."""
    return {
        run.seed: run.scores.gmean100
        for run in read_store(RESULTS / "desk").runs
        if (run.task["name"], run.model, run.train["updates"]) == (task, model, 10_000)
    }


@pytest.mark.parametrize(("task", "model"), PAIRS)
def test_our_median_lies_within_the_seed_spread_of_apebench(task, model):
    theirs = [by_apebench(task, model, seed)["gmean100"] for seed in SEEDS]
    ours = by_us(task, model)
    assert set(SEEDS) <= set(ours)
    assert min(theirs) <= statistics.median(ours[seed] for seed in SEEDS) <= max(theirs)


def main() -> None:
    for task, model in PAIRS:
        for seed in SEEDS:
            theirs, ours = by_apebench(task, model, seed)["gmean100"], by_us(task, model).get(seed)
            print(json.dumps({"task": task, "model": model, "seed": seed, "apebench": theirs, "ours": ours}))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
