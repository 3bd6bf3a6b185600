"""SGNO-X against the solver: the solver as a step, the measurement, and its figure in the report."""

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from synthetic_store import fill_store, record
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.errors import InputError
from sgno.lab.data.scenario import solver
from sgno.lab.data.trajectories import load_trajectories
from sgno.lab.report import write_report
from sgno.lab.report.figures.ratios import frontier_figure
from sgno.lab.report.frontier import read_frontier
from sgno.lab.tasks import get_task
from sgno.step import batch

SMALL = {"num_points": 16, "num_train_samples": 3, "train_steps": 4, "num_test_samples": 2, "test_steps": 3}
TASK = get_task("kolm2d").with_options(**SMALL)


def measured(**changes) -> dict:
    point = {"name": "exponax", "divisions": 2, "gmean100": 0.1, "stable_step": 9, "nonfinite_steps": 0}
    point |= {"seconds_per_step": 0.02, "seconds_low": 0.01, "seconds_high": 0.03}
    ours = {**point, "name": "sgno-x", "divisions": 1, "gmean100": None}
    content = {"task": TASK.to_json(), "states": 2, "steps": 3, "repeats": 2, "points": [point, ours]}
    content |= {"versions": {"jax": "1", "exponax": "2"}, "machine": {"processor": "p", "cores": 2}}
    return {**content, "finished": "2026-01-01T00:00:00+00:00", **changes}


def test_the_solver_is_what_made_the_data(cache):
    data = load_trajectories(TASK, cache)
    u = jnp.asarray(data.test[:, 0])
    assert np.allclose(batch(solver(TASK), u), data.test[:, 1], atol=1e-5)
    cheap = np.asarray(batch(solver(TASK, 1), u))
    assert 1e-6 < np.abs(cheap - data.test[:, 1]).max() < 0.5


def test_a_scenario_without_substeps_says_so():
    with pytest.raises(InputError, match="no substeps"):
        solver(get_task("adv1d"), 2)


def test_an_overflow_is_drawn_as_one(tmp_path):
    (tmp_path / "frontier.json").write_text(json.dumps(measured()))
    found = read_frontier(tmp_path)
    assert found is not None and math.isinf(found.points[1].gmean100)
    texts = [text.get_text() for text in frontier_figure(found).axes[0].texts]
    assert texts == ["2", "1 overflows"]


def test_the_solver_of_the_data_is_no_point_of_the_curve(tmp_path):
    content = measured()
    content["points"][0]["gmean100"] = 1e-12
    (tmp_path / "frontier.json").write_text(json.dumps(content))
    found = read_frontier(tmp_path)
    assert found is not None
    texts = [text.get_text() for text in frontier_figure(found).axes[0].texts]
    assert texts == ["2 made the data ", "1 overflows"]


def test_the_report_shows_it_and_survives_a_damaged_one(tmp_path):
    fill_store(tmp_path, [record()])
    assert "Against the solver" not in write_report(tmp_path).read_text()
    (tmp_path / "frontier.json").write_text(json.dumps(measured()))
    page = write_report(tmp_path).read_text()
    assert "Against the solver" in page and "data:image/svg+xml;base64," in page
    for damaged in ({"points": [{}]}, {"points": 3}, {"task": "<script>"}, {"machine": {}}):
        (tmp_path / "frontier.json").write_text(json.dumps(measured(**damaged)))
        page = write_report(tmp_path).read_text()
        assert "Against the solver" not in page and "is not a file of `sgno frontier`" in page


@pytest.mark.parametrize(
    "flags", [["--substeps", "0"], ["--inner-steps", "a"], ["--substeps", "2,2"], ["--steps", "0"]]
)
def test_wrong_counts_are_refused(flags, tmp_path):
    result = CliRunner().invoke(app, ["frontier", "--out", str(tmp_path / "out"), *flags])
    assert result.exit_code == 2 and not (tmp_path / "out").exists()


def test_it_is_measured_from_the_command_line(tmp_path, cache):
    flags = ["--points", "16", "--substeps", "1", "--inner-steps", "1", "--steps", "2", "--repeats", "1"]
    name = "apebench:phy_kolm_flow;num_spatial_dims=2;num_train_samples=3;train_temporal_horizon=4;"
    name += "num_test_samples=2;test_temporal_horizon=3;num_warmup_steps=5"
    call = ["frontier", "--task", name, "--out", str(tmp_path), "--cache", str(cache), *flags, "--json"]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.strip().splitlines()[-1])
    assert [(p["name"], p["divisions"]) for p in found["points"]] == [("exponax", 1), ("sgno-x", 1)]
    assert all(p["seconds_low"] <= p["seconds_per_step"] <= p["seconds_high"] for p in found["points"])
    assert read_frontier(tmp_path) is not None
