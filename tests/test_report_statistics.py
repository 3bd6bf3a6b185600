"""The paper's numbers as copied, statistics over seeds, and which runs compare."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_store import comparison, record

from sgno.errors import InputError
from sgno.lab.report import paper
from sgno.lab.report.models import is_baseline, order
from sgno.lab.report.statistics import quantile, spread
from sgno.lab.tasks import TASKS

FINITE = st.floats(1e-9, 1e9)
# On a busy machine an example may take any time; what is tested is not how long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# The paper's numbers: what its own text says of its tables must follow from what was copied.


def test_the_papers_summaries_follow_from_its_tables():
    assert np.median(list(paper.SGNO_TO_BEST.values())) == pytest.approx(0.252)
    assert np.median([row.energy for row in paper.SPECTRAL.values()]) == pytest.approx(0.178)
    assert np.median([row.low for row in paper.SPECTRAL.values()]) == pytest.approx(0.224)
    assert np.median([row.phase for row in paper.SPECTRAL.values() if row.phase]) == pytest.approx(0.285)


@pytest.mark.parametrize("task", sorted(set(paper.GMEAN100) - {"kolm2d"}))
def test_the_papers_ratio_agrees_with_its_rounded_values(task):
    row = paper.GMEAN100[task]
    assert row["sgno"] is not None
    best = min(value for model, value in row.items() if model != "sgno" and value is not None)
    assert row["sgno"] / best == pytest.approx(paper.SGNO_TO_BEST[task], rel=0.05)
    if task in paper.SPECTRAL:
        assert row[paper.SPECTRAL[task].baseline] == best


def test_the_paper_has_all_ten_tasks():
    assert list(paper.GMEAN100) == list(TASKS) == list(paper.SGNO_TO_BEST)


# Statistics


@patient
@given(st.lists(FINITE, min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_of_finite_values_are_numpys(values, q):
    ordered = np.sort(np.asarray(values))
    assert quantile(ordered, q) == pytest.approx(float(np.quantile(ordered, q)), rel=1e-9)


@settings(patient, max_examples=50)
@given(st.lists(FINITE, min_size=1, max_size=30))
def test_spread_is_ordered_and_repeatable(values):
    s = spread(values)
    assert min(values) <= s.lower <= s.median <= s.upper <= max(values)
    assert (s.interval is None) == (len(values) < 3)
    if s.interval:
        assert min(values) <= s.interval[0] <= s.median <= s.interval[1] <= max(values)
    assert spread(reversed(values)) == s


def test_bootstrap_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    intervals = [spread(rng.standard_normal(25)).interval for _ in range(300)]
    covered = np.mean([low <= 0 <= high for low, high in filter(None, intervals)])
    assert 0.9 <= covered <= 0.99


@pytest.mark.parametrize("bad", [math.inf, math.nan, -math.inf])
def test_nonfinite_values_count_as_worse_than_any_other(bad):
    s = spread([1.0, bad, 3.0])
    assert (s.median, s.upper, s.nonfinite, s.count) == (3.0, math.inf, 1, 3)
    assert spread([1.0, bad]).median == math.inf
    assert spread([1.0, 2.0, 3.0, 4.0, bad]).median == 3.0


# Grouping


def test_runs_that_differ_only_in_the_seed_form_one_group():
    found = comparison(*(record(seed=s, gmean100=0.1 * (s + 1)) for s in range(3)))
    (row,) = found.rows
    assert row.groups["sgno"].score.median == pytest.approx(0.2)
    assert row.as_paper and row.setting == "160 points, 10,000 updates"


def test_another_budget_is_another_row_and_linear_stands_in_all_of_its_data():
    found = comparison(
        record(),
        record(updates=2_000),
        record(model="linear", gmean100=0.5),
        record(model="sgno-x", updates=2_000),
    )
    assert [sorted(row.groups) for row in found.rows] == [["linear", "sgno"], ["linear", "sgno", "sgno-x"]]
    assert [row.as_paper for row in found.rows] == [True, False]


def test_other_data_is_another_row():
    found = comparison(
        record(), record(task_settings={"num_points": 64}), record(task_settings={"test_steps": 50})
    )
    assert len(found.rows) == 3
    assert sum(row.as_paper for row in found.rows) == 1
    assert any("test steps 50" in row.setting for row in found.rows)


def test_a_grid_whose_axes_differ_is_written_out():
    own = {"num_spatial_dims": 2, "num_points": 48, "points": [48, 96]}
    (row,) = comparison(record("own.npy", task_settings=own)).rows
    assert row.setting.startswith("48 × 96, ")
    (square,) = comparison(record("own.npy", task_settings={**own, "points": [48, 48]})).rows
    assert square.setting.startswith("48², ")
    with pytest.raises(InputError, match=r"\$\.points"):
        comparison(record("own.npy", task_settings={**own, "points": "48"}))


def test_the_same_training_scored_on_more_grids_counts_once():
    found = comparison(record("kolm2d"), record("kolm2d", transfer={"128": 0.2}))
    (group,) = found.groups
    assert len(group.runs) == 1 and 128 in group.transfer


def test_the_papers_setting_is_preferred_to_one_with_more_seeds():
    odd = [record(seed=s, gmean100=9.0, config={"kind": "sgno", "width": 3}) for s in range(4)]
    papers = record(gmean100=0.03, config={"kind": "sgno", "width": 11, "num_modes": 26, "num_blocks": 7})
    (row,) = comparison(*odd, papers).rows
    assert row.groups["sgno"].score.median == 0.03


def test_no_member_of_the_sgno_family_is_a_baseline():
    family = ["sgno", "sgno-matched", "sgno-x", "sgno-residual", "sgno-unconstrained", "sgno-nocorrection"]
    assert not any(map(is_baseline, family)) and is_baseline("linear") and is_baseline("MoRes;26;8;relu")
    (row,) = comparison(
        *(record(model=m, gmean100=0.01) for m in family), record(model="fno", gmean100=0.6)
    ).rows
    best = row.best()
    assert best is not None and best.model == "fno"


def test_order_is_the_papers_then_linear_then_ours():
    names = ["sgno-x", "linear", "sgno", "zzz", "conv", "cno"]
    assert sorted(names, key=order) == ["conv", "cno", "zzz", "linear", "sgno", "sgno-x"]
