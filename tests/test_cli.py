"""The command line as a user meets it: real processes, real signals."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import pytest

from sgno.grid import Grid
from sgno.io.files import load_arrays
from sgno.lab.store import Store
from sgno.registry import get_model, with_settings
from sgno.step import count_parameters

SMALL = [
    "--points",
    "64",
    "--updates",
    "6",
    "--train-samples",
    "3",
    "--test-samples",
    "2",
    "--test-steps",
    "5",
]


def sgno(*arguments, cwd, env=None, **options):
    environment = {**os.environ, "COLUMNS": "200", **(env or {})}
    command = [sys.executable, "-m", "sgno", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, **options
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory, cache):
    return tmp_path_factory.mktemp("cli")


def test_run_prints_one_json_object_and_answers_again_from_the_store(place):
    command = ["run", "ks1d", "--model", "sgno", "--set", "num_blocks=1", "--seeds", 2, *SMALL, "--json"]
    first = sgno(*command, cwd=place)
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.splitlines()) == 1
    summary = json.loads(first.stdout)
    assert summary["task"] == "ks1d" and summary["model"] == "sgno" and summary["seeds"] == [0, 1]
    config = with_settings(get_model("sgno", 1), {"num_blocks": "1"})
    built = eqx.filter_eval_shape(lambda: config.build(Grid(1, (64,)), key=jax.random.PRNGKey(0)))
    assert (summary["params"], summary["params_real"]) == count_parameters(built)
    assert len(summary["gmean100_per_seed"]) == 2 and len(summary["mean_nrmse"]) == 5
    assert min(summary["gmean100_per_seed"]) <= summary["gmean100"] <= max(summary["gmean100_per_seed"])
    assert summary["seconds_per_update"] > 0 and summary["versions"]["apebench"] == "0.1.1"
    for run in summary["run"]:
        assert (place / run / "record.json").is_file() and (place / run / "weights.safetensors").is_file()
    stamps = [(place / run / "record.json").stat().st_mtime_ns for run in summary["run"]]
    again = sgno(*command, cwd=place)
    assert json.loads(again.stdout) == summary
    assert stamps == [(place / run / "record.json").stat().st_mtime_ns for run in summary["run"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "ks3d"], "Unknown task 'ks3d'"),
        (["run", "ks1d", "--model", "sgn"], "Did you mean 'sgno'?"),
        (["run", "ks1d", "--model", "FNO;a;b"], "does not have the form"),
        (["run", "ks1d", "--updates", "-1"], "updates=-1 must be at least 0"),
        (
            ["run", "ks1d", "--points", "20"],
            "modes=26 needs at least 52 points per axis, but the grid has 20",
        ),
        (["run", "ks1d", "--seeds", "0"], "at least one seed"),
        (["run", "ks1d", "--set", "width"], "is not NAME=VALUE"),
        (["run", "ks1d", "--set", "depth=3"], "Unknown setting of sgno 'depth'"),
        (["run", "ks1d", "--set", "width=wide"], "width of sgno is 'wide', but int was expected"),
        (
            ["run", "ks1d", "--model", "sgno-x", "--set", "stages=many"],
            "stages of sgno-x is 'many', but int or none was expected",
        ),
        (
            ["run", "ks1d", "--set", "coordinates=polar"],
            "coordinates of sgno is 'polar', but one of ends, none, periodic was expected",
        ),
        (["run", "ks1d", "--precision", "float16"], "Unknown precision 'float16'"),
        (["run", "ks1d", "--rate", "nan"], "peak_rate=nan must be positive"),
        (["run", "ks1d", "--out", "/dev/null/x"], "/dev/null is not a folder"),
        (["models", "--dim", "4"], "--dim 4 must be 1, 2 or 3"),
        (["run", "ks1d", "--updates", "many"], "Invalid value"),
        (["walk"], "No such command"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(tmp_path, arguments, message):
    done = sgno(*arguments, cwd=tmp_path, env={"SGNO_CACHE": str(tmp_path / "cache")})
    assert done.returncode == 2 and done.stdout == ""
    assert message in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/jobs/*"))


def test_lists(tmp_path):
    found = json.loads(sgno("models", "--dim", 2, "--json", cwd=tmp_path).stdout)["models"]
    sizes = {row["name"]: (row["params"], row["params_real"]) for row in found}
    assert sizes["sgno"] == (56_402, 101_402) and sizes["fno"] == (57_787, 57_787)
    found = json.loads(sgno("tasks", "--json", cwd=tmp_path).stdout)["tasks"]
    assert len(found) == 10
    assert "30,573" in sgno("models", "--dim", 1, cwd=tmp_path).stdout
    assert "sgno fit" in sgno("--help", cwd=tmp_path).stdout


def test_interrupted_runs_go_on_bit_for_bit(place):
    command = ["run", "adv1d", "--points", "64", "--updates", "2000", "--train-samples", "3"]
    command += ["--test-samples", "2", "--test-steps", "5", "--set", "num_blocks=1", "--json"]
    whole = json.loads(sgno(*command, "--out", "whole", cwd=place).stdout)
    # A shell's background job ignores SIGINT, and so would its children.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = subprocess.Popen(
        [sys.executable, "-c", heeding + "from sgno.cli import main; main()", *command, "--out", "broken"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Once it has measured something it is in the middle of its updates.
    end = time.monotonic() + 100
    while not any(p.stat().st_size for p in (place / "broken").glob("checkpoints/*.jsonl")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 130, stderr
    assert "adv1d sgno seed 0" in stderr and "Run the same command again" in stderr
    assert "Traceback" not in stderr and stdout == ""
    assert not list((place / "broken").glob("jobs/*/record.json"))
    resumed = json.loads(sgno(*command, "--out", "broken", cwd=place).stdout)
    for key in ("gmean100_per_seed", "mean_nrmse", "stable_step"):
        assert resumed[key] == whole[key]
    job = whole["run"][0].split("/")[-1]
    one, two = (load_arrays(Store(place / out).weights(job)).arrays for out in ("whole", "broken"))
    assert {name: a.tobytes() for name, a in one.items()} == {name: a.tobytes() for name, a in two.items()}
    assert not list((place / "broken").glob("checkpoints/*"))


def test_help_does_not_import_jax(tmp_path):
    code = (
        "import sys; from sgno.cli.app import app; print('jax' in sys.modules, 'matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_settings_are_read_by_the_type_of_their_field():
    config = get_model("sgno-x", 1)
    texts = {"stages": "4", "forcing": "true", "margin": "2.5", "generator": "real", "inner_steps": "none"}
    changed = with_settings(config, texts)
    wanted = {"stages": 4, "forcing": True, "margin": 2.5, "generator": "real", "inner_steps": None}
    assert changed == dataclasses.replace(config, **wanted)
