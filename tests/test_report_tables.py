"""Tables of a store whose every number is known, as text in every format."""

import csv
import io
import math
import re

import pytest
from synthetic_store import HOSTILE, KS, cells, comparison, fill_store, record, table

from sgno.errors import InputError
from sgno.lab.report import render_tables
from sgno.lab.report.tables import all_tables
from sgno.lab.report.tables.table import number_text
from sgno.lab.tasks import TASKS

# Tables


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


def test_a_scenario_of_apebench_is_shown_by_its_key():
    name = "apebench:phy_gs;num_spatial_dims=1;feed_rate=0.04"
    (row,) = comparison(record(name)).rows
    assert row.label == "phy_gs 1D;feed_rate=0.04" and row.title.startswith(row.label)
    assert any(cells[0].text == "phy_gs 1D;feed_rate=0.04 †" for cells in table([record(name)], "main").rows)


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
    from sgno.lab.report.text import comma_separated

    return comma_separated(all_tables(comparison(*records)))


def test_markdown_and_latex_keep_hostile_names_as_text():
    from sgno.lab.report.text import latex, markdown

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
