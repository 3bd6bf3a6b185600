"""Statistics, tables, text and figures of a store whose every number is known."""

import csv
import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_store import fill_store, record
from typer.testing import CliRunner

from sgno.errors import InputError
from sgno.files import save_arrays
from sgno.report import paper, render_tables, write_report
from sgno.report.fields import NONFINITE, error_codes, field_codes, pack, unpack
from sgno.report.figures import write_figures
from sgno.report.groups import compare
from sgno.report.models import is_baseline, order
from sgno.report.provenance import environments
from sgno.report.readme import BEGIN, END, main, readme_table, update_readme
from sgno.report.runs import parse_run, read_store
from sgno.report.statistics import quantile, spread
from sgno.report.tables import all_tables
from sgno.report.tables.table import number_text
from sgno.tasks.catalogue import TASKS

FINITE = st.floats(1e-9, 1e9)
# On a busy machine an example may take any time; what is tested is not how long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def comparison(*records):
    return compare(parse_run(r, f"{i:04x}") for i, r in enumerate(records))


def table(records, table_id):
    return next(t for t in all_tables(comparison(*records)) if t.id == table_id)


def cells(found, first):
    """Heading -> cell of the first row whose name begins so."""
    row = next(row for row in found.rows if row[0].text.startswith(first))
    return {column.title: cell for column, cell in zip(found.columns, row, strict=True)}


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


# Tables

KS = [
    *(record(seed=s, gmean100=g) for s, g in enumerate((0.02, 0.03, 0.07))),
    record(model="dil", gmean100=0.2),
    record(model="fno", gmean100=0.5),
    record(model="linear", gmean100=0.1),
    record(model="conv", gmean100=None),
]


def test_main_table_has_our_median_the_papers_and_their_ratio():
    row = cells(table(KS, "main"), "ks1d")
    assert row["SGNO"].value == 0.03
    assert row["SGNO"].facts["paper"] == 0.0294
    assert row["SGNO"].facts["ours_over_paper"] == pytest.approx(0.03 / 0.0294)
    assert row["SGNO"].facts["seeds"] == 3 and "n = 3" in row["SGNO"].notes[1]
    assert row["SGNO"].mark == "best" and row["Dil"].mark == "second"
    assert row["SGNO / best"].value == pytest.approx(0.3)
    assert row["SGNO / best network"].value == pytest.approx(0.15)
    assert row["SGNO / best network"].facts["paper"] == 0.186
    assert row["Conv"].text == "non-finite" and row["Conv"].value == math.inf
    assert row["CNO"].text == "not run" and "paper 0.374" in row["CNO"].notes


def test_what_was_not_run_is_shown_as_not_run_with_the_papers_number():
    found = table(KS, "main")
    assert [row[0].text for row in found.rows] == list(TASKS)
    row = cells(found, "adv1d")
    assert row["SGNO"].text == "not run" and row["SGNO"].facts == {"paper": 0.013}
    assert cells(found, "advdiff3d")["CNO"].notes == ()


def test_a_row_with_another_budget_is_marked():
    found = table([record(updates=2_000)], "main")
    assert any(row[0].text == "ks1d †" for row in found.rows)


def test_spectral_ratios_divide_by_the_papers_choice_and_by_our_strongest():
    records = [
        record("adv1d", gmean100=0.02, diagnostics={"energy": 0.1, "phase": 0.3}),
        record("adv1d", "fno", gmean100=0.05, diagnostics={"energy": 0.4, "phase": 0.6}),
        record("adv1d", "conv", gmean100=0.04, diagnostics={"energy": 0.2, "phase": 0.2}),
        record("adv1d", "linear", gmean100=1e-6, diagnostics={"energy": 1e-6}),
    ]
    rows = [row for row in table(records, "spectral").rows if row[0].text == "adv1d"]
    assert [row[1].text for row in rows] == ["FNO", "Conv", "Linear"]
    titles = [column.title for column in table(records, "spectral").columns]
    energy, phase = titles.index("Spectral energy"), titles.index("Phase")
    assert [row[energy].value for row in rows] == pytest.approx([0.25, 0.5, 1e5])
    assert [row[phase].value for row in rows[:2]] == pytest.approx([0.5, 1.5])
    assert rows[0][energy].facts["paper"] == 0.396 and "paper" not in rows[1][energy].facts


def test_phase_is_left_out_where_the_paper_leaves_it_out():
    rows = table(KS, "spectral").rows
    assert all(row[-1].text == "–" for row in rows if row[0].text == "ks1d")


def test_ablation_ratios_and_nonfinite_variants():
    records = [
        record("adv1d", gmean100=0.02),
        record("adv1d", "sgno-residual", gmean100=1.5),
        record("adv1d", "sgno-nocorrection", gmean100=None),
    ]
    row = cells(table(records, "ablation"), "adv1d")
    assert row["Residual update / full"].value == pytest.approx(75)
    assert row["No correction / full"].text == "non-finite"
    assert "paper non-finite" in row["No correction / full"].notes
    assert row["Free generator / full"].text == "not run"


def test_transfer_ratio_is_to_the_training_grid():
    records = [record("kolm2d", gmean100=0.5, transfer={"128": 0.4, "256": 0.6})]
    rows = table(records, "transfer").rows
    assert [row[2].text for row in rows] == ["64²", "128²", "256²"]
    assert [row[4].value for row in rows] == pytest.approx([1, 0.8, 1.2])
    assert [row[3].facts["paper"] for row in rows] == [0.5581, 0.5550, 0.5705]


def test_sgno_x_table_is_there_only_if_it_was_run():
    assert not any(t.id == "sgno-x" for t in all_tables(comparison(*KS)))
    found = table([*KS, record(model="sgno-x", gmean100=0.003, train_seconds=6.0)], "sgno-x")
    row = cells(found, "ks1d")
    assert row["/ SGNO"].value == pytest.approx(0.1)
    assert row["Training time / SGNO's"].value == pytest.approx(0.1)


def test_sgno_x_without_a_part_stands_beside_the_whole():
    whole = record(model="sgno-x", gmean100=0.003)
    real, lost = record(model="sgno-x-real", gmean100=0.3), record(model="sgno-x-untrapped", gmean100=None)
    row = cells(table([*KS, whole, real, lost], "sgno-x-ablation"), "ks1d")
    assert row["Real generator"].value == 0.3 and row["Real generator"].notes == ("×100",)
    assert row["No trapping set"].text == "non-finite"
    assert row["No closure"].text == "–"


def test_capacity_shows_both_counts_and_the_papers():
    row = next(row for row in table(KS, "capacity").rows if row[0].text == "SGNO")
    assert [cell.text for cell in row[1:5]] == ["1D", "30,573", "52,595", "30,573"]


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.031, "0.0310"), (2.5e-6, "2.5e-6"), (10.8, "10.8"), (123.4, "123"), (5370.0, "5,370"), (0.0, "0"),
     (math.inf, "non-finite"), (math.nan, "non-finite"), (1.0, "1.00"), (3e8, "3.0e8")],
)  # fmt: skip
def test_numbers_are_written_with_three_digits(x, text):
    assert number_text(x) == text


# Text


def test_csv_reads_back_to_the_same_numbers():
    store_rows = list(csv.DictReader(io.StringIO(csv_of(KS))))
    (cell,) = [r for r in store_rows if (r["table"], r["row"], r["column"]) == ("main", "ks1d", "SGNO")]
    assert float(cell["value"]) == 0.03 and float(cell["paper"]) == 0.0294
    assert float(cell["quartile_low"]) == pytest.approx(0.025) and int(cell["seeds"]) == 3
    (gone,) = [r for r in store_rows if (r["table"], r["row"], r["column"]) == ("main", "ks1d", "Conv")]
    assert float(gone["value"]) == math.inf


def csv_of(records):
    from sgno.report.text import comma_separated

    return comma_separated(all_tables(comparison(*records)))


HOSTILE = "</script><script>alert(1)</script>|`[x](javascript:1)` \\input{a} & 50% $x$ _y_ {"


def test_markdown_and_latex_keep_hostile_names_as_text():
    from sgno.report.text import latex, markdown

    tables = all_tables(comparison(record("=1+1", HOSTILE), record(HOSTILE)))
    text = markdown(tables)
    assert "<script" not in text
    for line in text.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in {len(t.columns) + 1 for t in tables}
    body = latex(tables)
    assert "\\input" not in body
    bare = re.sub(r"\\[{}]", "", body)
    assert bare.count("{") == bare.count("}")
    rows = [line for line in body.splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in rows} <= {len(t.columns) for t in tables}
    assert ",'=1+1" in csv_of([record("=1+1")])


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    fill_store(tmp_path, KS, pictures=False)
    with pytest.raises(InputError, match="Known: csv, md, tex"):
        render_tables(tmp_path, "docx")


# Reading a store


def test_a_damaged_record_is_reported_and_never_counted(tmp_path):
    fill_store(tmp_path, KS)
    lacking = record()
    del lacking["gmean100"]
    for name, text in {
        "a": "{", "b": json.dumps(lacking), "c": "[]", "d": json.dumps({**record(), "gmean100": "0.1"}),
        "e": json.dumps(record()).replace("0.001", "NaN"), "f": '{"a":' * 50_000,
    }.items():  # fmt: skip
        (tmp_path / "jobs" / name).mkdir()
        (tmp_path / "jobs" / name / "record.json").write_text(text)
    contents = read_store(tmp_path)
    assert len(contents.runs) == len(KS) and len(contents.unreadable) == 6
    assert "'gmean100'" in "".join(contents.unreadable)
    assert "jobs/a/record.json" in write_report(tmp_path, tmp_path / "r.html").read_text()


def test_a_folder_under_way_is_not_a_result(tmp_path):
    fill_store(tmp_path, KS[:1], pictures=False)
    (tmp_path / "jobs" / ".x.part").mkdir()
    (tmp_path / "jobs" / ".x.part" / "record.json").write_text("{")
    assert len(read_store(tmp_path).runs) == 1 and not read_store(tmp_path).unreadable


def test_no_store_and_an_empty_one_say_what_to_do(tmp_path):
    with pytest.raises(InputError, match="There is no folder"):
        read_store(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no finished job"):
        read_store(tmp_path)


def test_a_data_id_cannot_lead_outside_the_store(tmp_path):
    root = tmp_path / "store"
    content = {**record(), "data": "../../outside"}
    fill_store(root, [content])
    save_arrays(tmp_path.parent / "outside.sgno", {}, {"states": np.zeros((201, 1, 80), np.float16)})
    page = write_report(root, tmp_path / "r.html").read_text()
    assert "is not a plain name" in page and '"samples":[]' in page


def test_missing_or_odd_pictures_leave_the_tables_standing(tmp_path):
    fill_store(tmp_path, KS, pictures=False)
    page = write_report(tmp_path).read_text()
    assert "no spectra" in page and "no sample to show" in page and "0.0300" in page


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.just(10**400)
    | st.just(-1.0),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def _paths(content, path=()):
    for key, value in content.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _paths(value, (*path, key))


@settings(patient, max_examples=300)
@given(st.sampled_from(list(_paths(record(transfer={"64": 0.1})))), st.none() | JSON, st.booleans())
def test_any_record_either_becomes_tables_or_is_refused_with_a_reason(path, value, gone):
    content = json.loads(json.dumps(record(transfer={"64": 0.1})))
    *folders, last = path
    inner = content
    for folder in folders:
        inner = inner[folder]
    if gone:
        del inner[last]
    else:
        inner[last] = value
    try:
        run = parse_run(content, "a")
    except InputError:
        return
    for found in all_tables(compare([run])):
        assert all(isinstance(cell.text, str) for row in found.rows for cell in row)
    environments([run])


# Fields


def test_quantised_fields_are_within_half_a_level_and_mark_what_is_not_finite():
    values = np.random.default_rng(0).uniform(-2, 2, (5, 1, 1, 50)).astype(np.float32)
    codes = field_codes(values, 2.0)
    assert np.abs((codes.astype(float) - 127) / 127 * 2 - values).max() <= 2 / 127 / 2 + 1e-6
    values[0, 0, 0, :3] = (np.nan, np.inf, -np.inf)
    assert (field_codes(values, 2.0) == NONFINITE).sum() == 3
    assert (error_codes(values, 2.0) == NONFINITE).sum() == 3
    assert set(field_codes(np.array([-9.0, 0.0, 9.0]), 1.0)) == {0, 127, 254}


def test_the_error_scale_separates_small_errors_and_is_odd():
    errors = np.array([0.0, 0.005, 0.05, 0.5, 2.0])
    codes = error_codes(errors, 1.0).astype(int) - 127
    assert codes[0] == 0 and codes[-1] == 127 and (np.diff(codes) > 10).all()
    np.testing.assert_array_equal(error_codes(-errors, 1.0).astype(int) - 127, -codes)


@patient
@given(st.lists(st.integers(0, 255), min_size=12, max_size=12))
def test_packing_loses_nothing(numbers):
    codes = np.asarray(numbers, np.uint8).reshape(2, 1, 2, 3)
    np.testing.assert_array_equal(unpack(pack(codes), codes.shape), codes)


# The page as a file


def test_the_page_is_one_file_that_loads_nothing_and_runs_only_its_own_scripts(tmp_path):
    hostile = record(HOSTILE, HOSTILE, config={"kind": HOSTILE})
    hostile["machine"]["processor"] = hostile["finished"] = HOSTILE
    hostile["versions"]["<img src=x onerror=alert(2)>"] = HOSTILE
    fill_store(tmp_path, [*KS, hostile])
    (tmp_path / "failed").mkdir()
    (tmp_path / "failed" / "a.json").write_text(
        json.dumps({"error": HOSTILE, "job": {"model_name": HOSTILE}})
    )
    page = write_report(tmp_path, tmp_path / "r.html").read_text()
    own = page[: page.index("plotly.js v")] + page[page.rindex("</script>\n<script>") :]
    assert "alert(1)</script>" not in page and "<img src=x" not in page
    assert len(re.findall(r"<script[ >]", own)) == 3 and "<link" not in own and "<iframe" not in own
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src &#39;none&#39;" in policy and policy.count("sha256-") == 2
    assert "unsafe-eval" not in policy and "http" not in policy


def test_the_same_store_gives_the_same_page(tmp_path):
    fill_store(tmp_path, KS)
    a, b = (write_report(tmp_path, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert a == b


def test_two_thousand_jobs_render_in_ten_seconds_and_fifteen_megabytes(tmp_path):
    models = ["conv", "res", "unet", "dil", "fno", "cno", "linear", "sgno", "sgno-matched", "sgno-x"]
    curve = [0.01 * 1.02**t for t in range(200)]
    records = [
        record(task, model, seed, gmean100=0.01 + 0.001 * seed, mean_nrmse=curve)
        for task in TASKS
        for model in models
        for seed in range(20)
    ]
    fill_store(tmp_path, records)
    # A process of its own, as a user has it: the type checks of these tests take longer than the report. Its
    # processor time, because what else runs on the machine says nothing about the report.
    code = (
        "import sys, time; from sgno.report import write_report; write_report(sys.argv[1]);"
        "print(time.process_time())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    page, seconds = tmp_path / "report.html", float(result.stdout)
    assert len(records) == 2_000
    assert seconds < 10, f"took {seconds:.1f} s"
    assert page.stat().st_size < 15e6, f"{page.stat().st_size / 1e6:.1f} MB"


# Figures


def test_figures_are_written_as_png_and_svg_and_repeat(tmp_path):
    odd = record("$\\frac{", "$x\x07", gmean100=0.3)
    ablations = [
        record(model="sgno-residual", gmean100=2.0),
        record(model="sgno-nocorrection", gmean100=None),
    ]
    fill_store(tmp_path / "store", [*KS, *ablations, odd])
    written = write_figures(tmp_path / "store", tmp_path / "a")
    names = {path.stem for path in written}
    assert names == {"rollout", "spectral_ratios", "ablation", "error_vs_cost", "hero"}
    for path in written:
        head = path.read_bytes()[:200]
        assert head.startswith(b"\x89PNG") if path.suffix == ".png" else b"<svg" in path.read_bytes()[:600]
    again = write_figures(tmp_path / "store", tmp_path / "b")
    assert [p.read_bytes() for p in written] == [p.read_bytes() for p in again]


# README


def test_readme_is_replaced_between_the_marks_only(tmp_path):
    fill_store(tmp_path / "store", KS, pictures=False)
    readme = tmp_path / "README.md"
    readme.write_text(f"# before\n{BEGIN}\nstale\n{END}\nafter\n")
    assert update_readme(tmp_path / "store", readme)
    text = readme.read_text()
    assert text.startswith("# before\n") and text.endswith("\nafter\n") and "stale" not in text
    assert "**0.0300**" in text and "0.0294" in text
    assert not update_readme(tmp_path / "store", readme)


def test_readme_table_is_rectangular():
    lines = [line for line in readme_table(comparison(*KS)).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(TASKS) and len({line.count("|") for line in lines}) == 1


def test_readme_without_marks_says_what_to_add(tmp_path, capsys):
    fill_store(tmp_path / "store", KS, pictures=False)
    (tmp_path / "README.md").write_text("nothing")
    assert main([str(tmp_path / "store"), str(tmp_path / "README.md")]) == 2
    assert BEGIN in capsys.readouterr().err


# Command line


def test_the_command_prints_tables_and_writes_the_page(tmp_path):
    from sgno.cli.app import app

    fill_store(tmp_path / "store", KS)
    run = CliRunner().invoke
    result = run(app, ["report", str(tmp_path / "store"), "--format", "csv"])
    assert result.exit_code == 0 and result.stdout.startswith("table,row,setting,column")
    figures = tmp_path / "figures"
    result = run(app, ["report", str(tmp_path / "store"), "--figures", str(figures)])
    assert result.exit_code == 0 and (tmp_path / "store" / "report.html").is_file()
    assert (figures / "hero.png").is_file()
    result = run(
        app, ["report", str(tmp_path / "store"), "--format", "tex", "--out", str(tmp_path / "t.tex")]
    )
    assert result.exit_code == 0 and "\\toprule" in (tmp_path / "t.tex").read_text()


def test_a_missing_folder_is_one_line_and_exit_code_2(tmp_path):
    from sgno.cli.app import app

    assert CliRunner().invoke(app, ["report", str(tmp_path / "none")]).exit_code == 2


def test_the_report_never_imports_jax(tmp_path):
    fill_store(tmp_path, KS)
    code = (
        "import sys; from sgno.report import write_report, render_tables;"
        "from sgno.report.figures import write_figures;"
        "from sgno.report.readme import readme_table; root = sys.argv[1];"
        "write_report(root); render_tables(root, 'md');"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib', 'equinox', 'apebench')))"
    )
    # A fresh process, and without the type-checking hook, which itself imports jax.
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]", result.stdout
    assert Path(tmp_path / "report.html").is_file()
