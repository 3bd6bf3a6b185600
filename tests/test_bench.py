"""The benchmark's own machinery: turns, medians, ratios, resuming, figures. Speed itself is not tested."""

import json
import math

import pytest

from benchmarks.speed.cases import Case, Group, Loop, full, quick
from benchmarks.speed.flops import update_flops
from benchmarks.speed.history import add_entry, latest, table
from benchmarks.speed.plots import history_plot
from benchmarks.speed.run import README, RESULTS, run_benchmark, select
from benchmarks.speed.summary import (
    first_update_ratios,
    growth,
    matmul_rate,
    rollout_seconds,
    speed_ratios,
    summarise,
)
from benchmarks.speed.text import lines
from benchmarks.speed.timing import measure
from benchmarks.speed.works import repeat
from sgno.errors import InputError
from sgno.io.files import read_json
from sgno.nn.sgno import SGNOConfig


def record(case: Case, *times: float, peak: float = 10.0) -> dict:
    """What measuring would have written."""
    middle = sorted(times)[len(times) // 2]
    return {
        "case": case.to_json(),
        "repeats": list(times),
        "seconds": middle,
        "spread": [min(times), max(times)],
        "compile_seconds": 1.0,
        "peak_megabytes": peak,
    }


def update(label: str, loop: Loop = "sgno", points=(160,), **fields) -> Case:
    return Case(label, "update", loop, "sgno", points, **fields)


def test_every_case_survives_json():
    for group in (*full(), *quick()):
        for case in group.cases:
            assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_group_names_and_labels_are_unique():
    for groups in (full(), quick()):
        assert len({group.name for group in groups}) == len(groups)
        for group in groups:
            assert len({case.label for case in group.cases}) == len(group.cases)


def test_full_benchmark_covers_the_paper_sizes_and_the_promised_grids():
    names = {group.name: group for group in full()}
    for d, points in ((1, (160,)), (2, (64, 64)), (3, (32, 32, 32))):
        assert {case.points for case in names[f"update-{d}d"].cases} == {points}
        assert {case.batch for case in names[f"update-{d}d"].cases} == {20}
        assert {case.batch for case in names[f"rollout-{d}d"].cases} == {30}
    largest = {d: max(case.points for case in names[f"points-{d}d"].cases) for d in (1, 2, 3)}
    assert largest == {1: (4096,), 2: (512, 512), 3: (64, 64, 64)}


def test_ratio_and_its_range():
    groups = {
        "update-1d": {
            "records": [record(update("sgno"), 1, 2, 4), record(update("torch", "torch"), 8, 10, 12)]
        }
    }
    (found,) = speed_ratios(groups)
    assert (found.value, found.low, found.high) == (5, 2, 12)


def test_the_first_update_is_compared_with_that_of_fno():
    sgno, fno = ({**record(update(label), 1.0), "first_seconds": s} for label, s in (("sgno", 6), ("fno", 4)))
    assert list(first_update_ratios({"first-2d": {"records": [sgno, fno]}}).values()) == [1.5]


def test_the_history_has_an_entry_for_each_commit_and_machine(tmp_path):
    path, here = tmp_path / "history.json", {"processor": "x", "cores": 2}
    summary = lambda what, value: {
        "speed": [{"what": what, "value": value}],
        "share_of_matmul_rate": {},
        "first_update": {},
    }
    add_entry(path, "aaa", here, "2026-01-01", summary("a / sgno", 2.0))
    add_entry(path, "aaa", here, "2026-01-02", summary("b / sgno", 3.0))
    add_entry(path, "aaa", {**here, "cores": 8}, "2026-01-01", summary("a / sgno", 9.0))
    history = add_entry(path, "bbb", here, "2026-01-03", summary("a / sgno", 4.0))
    assert [len(entry["ratios"]) for entry in history] == [1, 2, 1]
    assert latest(history)["a / sgno"] == (4.0, "bbb", "2026-01-03")
    history_plot(history, tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 5000


def test_the_page_of_the_benchmarks_has_the_ratios_of_the_history():
    assert table(read_json(RESULTS / "history.json")) in README.read_text()


def test_growth_is_one_for_n_log_n_and_larger_for_n_squared():
    def groups(cost):
        records = [record(update(str(n), points=(n,)), cost(n)) for n in (64, 256, 1024)]
        return {"points-1d": {"records": records}}

    assert growth(groups(lambda n: n * math.log2(n)), 1) == pytest.approx(1)
    assert growth(groups(lambda n: n * n), 1) == pytest.approx(16 * 6 / 10)
    assert growth({}, 1) is None


def test_matmul_rate_and_scaled_rollout():
    product = Case("matrix product", "matmul", "sgno", "", (100,))
    assert matmul_rate({"matmul": {"records": [record(product, 0.001)]}}) == pytest.approx(2e9)
    rollout = Case("sgno", "rollout", "sgno", "sgno", (32, 32, 32), 30, timed_steps=4)
    assert rollout_seconds(record(rollout, 2.0)) == 100


def test_flops_count_the_head_and_the_layers():
    config = SGNOConfig(width=2, num_modes=3, num_blocks=1, coordinates="none")
    n = 8
    by_hand = n * (2 * 2 + 2 * 128 * 3) + n * 2 * (4 + 16) + 8 * 4 * 3 + 3 * 2 * 2.5 * n * 3
    assert update_flops(config, (n,), batch=5) == 3 * 5 * by_hand


def test_repeats_grow_until_they_last():
    counts, calls = [], []

    class Enough(Exception):
        pass

    def tick(count):
        counts.append(count)
        if len(counts) == 3:
            raise Enough

    with pytest.raises(Enough):
        repeat(lambda: calls.append(1), tick)
    assert counts[0] == 1 and counts[1] > 1 and len(calls) == sum(counts)


def test_cases_of_a_group_are_measured_and_a_missing_or_broken_one_is_said_so():
    product = Case("matrix product", "matmul", "sgno", "", (16,))
    broken = Case("broken", "rollout", "sgno", "nonsense", (16,), 2)
    first, second = measure(Group("both", (product, broken), repeats=3, memory=True))
    assert len(first["repeats"]) == 3 and first["spread"][0] <= first["seconds"] <= first["spread"][1]
    assert first["peak_megabytes"] >= 0
    assert "seconds" not in second and "nonsense" in second["failed"]


@pytest.mark.slow
def test_quick_run_writes_a_report_and_goes_on_where_it_stopped(tmp_path):
    heard = []
    wanted = ["matmul", "update-1d-fno"]
    content = run_benchmark(tmp_path, small=True, only=wanted, say=heard.append)
    assert set(content["groups"]) == set(wanted)
    assert all("failed" not in r for group in content["groups"].values() for r in group["records"])
    assert {"bench.json", "bars.png", "scaling.png"} == {path.name for path in tmp_path.iterdir()}
    text = "\n".join(lines(content))
    assert text.index("APEBench's trainer / our loop") < text.index("Measured")
    heard.clear()
    again = run_benchmark(tmp_path, small=True, only=wanted, say=heard.append)
    assert again["groups"] == content["groups"] and not any("matrix product" in text for text in heard)


def test_figures_and_summary_of_a_partial_run(tmp_path):
    groups = {
        "points-2d": {"records": [record(update(str(n), points=(n, n)), n * n) for n in (32, 64)]},
        "modes-1d": {"records": [record(update("8", settings=(("num_modes", 8),)), 1.0)]},
        "update-1d": {
            "records": [record(update("sgno"), 1.0), {"case": {}, "repeats": [], "missing": "torch"}]
        },
    }
    (tmp_path / "bench.json").write_text(json.dumps({"groups": groups}))
    content = run_benchmark(tmp_path, only=["points-2d"], small=False)
    assert content["summary"] == summarise(groups) and content["summary"]["growth_over_n_log_n"]["2D"] < 1
    assert (tmp_path / "scaling.png").stat().st_size > 5000


def test_selecting_by_the_beginning_of_a_name():
    assert [group.name for group in select(quick(), ["update"])] == ["update-1d", "update-1d-fno"]
    assert [group.name for group in select(quick(), ["update-1d"])] == ["update-1d"]
    with pytest.raises(InputError, match="rollout-1d"):
        select(quick(), ["rolout-1d"])
