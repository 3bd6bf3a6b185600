"""The demo: the story is told from the data to the page, here with the models that take no training."""

import json

import numpy as np
from typer.testing import CliRunner

from sgno.cli import demo
from sgno.cli.app import app


def test_the_demo_ends_with_a_verdict_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setenv("SGNO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(demo, "_NETWORK", "linear")
    kept = {
        model: title
        for model, title in demo._TITLES.items()
        if model in ("persistence", "linear", "equation")
    }
    monkeypatch.setattr(demo, "_TITLES", {**kept, "linear": "the strongest"})
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo"), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert (
        found["gmean100"]["equation"] < 1e-4 < found["gmean100"]["linear"] < found["gmean100"]["persistence"]
    )
    assert "u u_x" in found["equation"] and (tmp_path / "demo" / "runs" / "report.html").is_file()
    assert "times closer than the strongest network" in done.stderr


def test_example_writes_a_file_to_fit_and_keeps_what_is_there(tmp_path):
    file = tmp_path / "u.npz"
    done = CliRunner().invoke(app, ["example", str(file), "--of", "burgers-noise5"])
    assert done.exit_code == 0, done.output
    arrays = np.load(file)
    assert arrays["train"].shape == (30, 51, 1, 64) and arrays["test"].shape == (10, 101, 1, 64)
    again = CliRunner().invoke(app, ["example", str(file)])
    assert again.exit_code == 2 and "exists already" in again.stderr
    wrong = CliRunner().invoke(app, ["example", str(tmp_path / "u2.npz"), "--of", "burger"])
    assert wrong.exit_code == 2 and "Did you mean burgers?" in wrong.stderr
