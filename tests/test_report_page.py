"""The page, the figures, README's table and the command, as files."""

import json
import re
import subprocess
import sys
from pathlib import Path

from synthetic_store import HOSTILE, KS, comparison, fill_store, record
from typer.testing import CliRunner

from sgno.lab.report import write_report
from sgno.lab.report.figures import write_figures
from sgno.lab.report.figures.panels import drawn_rows
from sgno.lab.report.figures.ratios import spectral_figure
from sgno.lab.report.groups import compare
from sgno.lab.report.runs import read_store
from sgno.lab.tasks import TASKS

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "make"))
from readme import BEGIN, END, main, readme_table, update_readme

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
    assert "alert(1)</script>" not in page and "<img src=x" not in page
    assert len(re.findall(r"<script[ >]", page)) == 3 and "<link" not in page and "<iframe" not in page
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src &#39;none&#39;" in policy and policy.count("sha256-") == 2
    assert "unsafe-eval" not in policy and "http" not in policy


def test_the_same_store_gives_the_same_page(tmp_path):
    fill_store(tmp_path, KS)
    a, b = (write_report(tmp_path, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert a == b


def test_two_thousand_jobs_render_in_ten_seconds_and_three_megabytes(tmp_path):
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
        "import sys, time; from sgno.lab.report import write_report; write_report(sys.argv[1]);"
        "print(time.process_time())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    page, seconds = tmp_path / "report.html", float(result.stdout)
    assert len(records) == 2_000
    assert seconds < 10, f"took {seconds:.1f} s"
    assert page.stat().st_size < 3e6, f"{page.stat().st_size / 1e6:.1f} MB"


# Figures


def test_bars_below_parity_are_seen_beside_ones_far_above_it():
    better, worse = {"energy": 0.01}, {"energy": 1e6}
    against = [record("adv1d", "fno", diagnostics=dict.fromkeys(better, 1.0))]
    against += [record("ks1d", "dil", diagnostics=dict.fromkeys(worse, 1.0))]
    ours = [record("adv1d", diagnostics=better), record("ks1d", diagnostics=worse)]
    figure = spectral_figure(comparison(*ours, *against))
    assert figure is not None
    low, high = figure.axes[0].get_ylim()
    assert low < 0.01 and high > 1e6


def test_every_task_has_a_panel_and_a_row_of_few_models_leaves_its_room():
    networks = ("conv", "fno", "sgno")
    full = [record(task, model, updates=2_000) for task in TASKS for model in networks]
    few = [record(task, "sgno-x") for task in TASKS]
    drawn = drawn_rows(comparison(*few, *full))
    assert [row.name for row in drawn] == list(TASKS)
    assert all(set(networks) <= set(row.groups) for row in drawn)
    # Two budgets with as many models are both worth a look.
    assert len(drawn_rows(comparison(*(record(updates=updates) for updates in (1_000, 2_000))))) == 2


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
        "import sys; from sgno.lab.report import write_report, render_tables;"
        "from sgno.lab.report.figures import write_figures;"
        "root = sys.argv[1];"
        "write_report(root); render_tables(root, 'md');"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib', 'equinox', 'apebench')))"
    )
    # A fresh process, and without the type-checking hook, which itself imports jax.
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]", result.stdout
    assert Path(tmp_path / "report.html").is_file()


# The results that come with the package


def test_readme_says_what_the_store_says_and_the_store_is_small():
    root = Path(__file__).parents[1]
    readme = (root / "README.md").read_text()
    table = readme.split(BEGIN)[1].split(END)[0].strip()
    assert table == readme_table(compare(read_store(root / "results" / "desk").runs))
    assert sum(p.stat().st_size for p in (root / "results").rglob("*") if p.is_file()) < 15e6
    assert (root / "results" / "desk" / "report.html").stat().st_size < 3e6


# The page of own data

OWN = {"content": "abc", "scenario": "own data", "channels": 1, "points": [160], "files": ["waves.npy"]}


def test_own_data_get_a_page_of_their_own_that_shows_what_is_there(tmp_path):
    scores = {"persistence": 0.6, "linear": 0.3, "equation": 0.002}
    records = [record("waves.npy", m, gmean100=g, task_settings=OWN, updates=0) for m, g in scores.items()]
    plain = write_report(fill_store(tmp_path / "plain", records)).read_text()
    assert "error of 0.00200" in plain and "300 times less than by saying that nothing changes" in plain
    assert 'id="horizon"' not in plain and 'id="equation"' not in plain and 'id="main"' not in plain
    records[2]["horizon"] = {
        "level": 0.2,
        "steps": 2,
        "probability": 0.75,
        "requested": 0.9,
        "trajectories": 3,
        "length": 3,
        "at": [1, 2, 3],
        "bound": [0.01, 0.1, None],
    }
    records[2]["equation"] = {
        "text": [f"u_t = -u u_x {HOSTILE}"],
        "terms": ["-1 ± 0.01  u u_x"],
        "found": True,
    }
    full = write_report(fill_store(tmp_path / "full", records)).read_text()
    assert "below 20 % for 2 steps, with a probability of at least 75 %" in full
    assert "takes 9 held-out trajectories" in full and "-1 ± 0.01  u u_x" in full
    assert "alert(1)</script>" not in full and len(full) < 2e6
    # Beside a task of the paper it is a row of the study's page.
    mixed = write_report(fill_store(tmp_path / "mixed", [*records, record()])).read_text()
    assert "Long-horizon error" in mixed and "waves.npy" in mixed
