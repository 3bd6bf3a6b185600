"""Tracking: JSON lines always, TensorBoard and Weights & Biases when asked for, none of them needed."""

import json
import sys
import types

import pytest
from tensorboardX.proto import event_pb2
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.errors import InputError
from sgno.lab import tracking
from sgno.lab.store import Store
from sgno.lab.tracking import JsonLines, parse_trackers
from sgno.lab.tracking import tracking as tracked

SMALL = [
    "--points",
    "64",
    "--updates",
    "6",
    "--train-samples",
    "2",
    "--test-samples",
    "2",
    "--test-steps",
    "3",
]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_run_leaves_its_metrics_beside_its_record(tmp_path, cache, monkeypatch):
    events = []

    class Recorded:
        def __init__(self, folder, name, settings):
            events.append(("start", name, settings["task"]["name"]))

        def log(self, update, values):
            events.append((update, dict(values)))

        def close(self):
            events.append(("close",))

    monkeypatch.setitem(tracking.TRACKERS, "tensorboard", Recorded)
    monkeypatch.setattr(tracking, "require", lambda package, extra, what: None)
    command = ["run", "adv1d", "--model", "Conv;4;1;relu", *SMALL, "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*command, "--track", "tensorboard", "--json"])
    assert done.exit_code == 0, done.stderr
    summary = json.loads(done.stdout)
    (run,) = summary["run"]
    written = lines(Store(tmp_path).job(run.rsplit("/", 1)[1]) / "metrics.jsonl")
    assert written[-1]["update"] == 6 and all(line["loss"] > 0 for line in written)
    assert [line["update"] for line in written] == sorted({line["update"] for line in written})
    assert not list((tmp_path / "checkpoints").glob("*.jsonl"))
    # A tracker hears the same, then the scores, and is closed.
    assert events[0] == ("start", "adv1d Conv;4;1;relu seed 0", "adv1d") and events[-1] == ("close",)
    assert [e[1]["loss"] for e in events[1:-2]] == [line["loss"] for line in written]
    assert events[-2] == (6, {"gmean100": summary["gmean100"], "stable_step": summary["stable_step"]})


def test_a_run_that_goes_on_keeps_the_lines_up_to_its_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = JsonLines(path)
    for update in (10, 20, 30):
        first.log(update, {"loss": 1 / update})
    first.close()
    with path.open("a") as file:
        file.write('{"update": 4')  # a line that a kill cut off
    again = JsonLines(path, after=20)
    again.log(30, {"loss": None})
    again.close()
    assert [line["update"] for line in lines(path)] == [10, 20, 30] and lines(path)[-1]["loss"] is None
    fresh = JsonLines(path)
    fresh.close()
    assert path.read_text() == ""


def test_tensorboard_files_hold_what_was_logged(tmp_path):
    with tracked(["tensorboard"], tmp_path, "a run", {"width": 3}) as (tracker,):
        tracker.log(5, {"loss": 0.25})
        tracker.log(9, {"loss": None})
    (file,) = tmp_path.glob("events.out.tfevents.*")
    content, found, at = file.read_bytes(), {}, 0
    while at < len(content):
        # Length (8 bytes), its checksum (4), the event, its checksum (4).
        size = int.from_bytes(content[at : at + 8], "little")
        event = event_pb2.Event.FromString(content[at + 12 : at + 12 + size])  # pyright: ignore
        at += size + 16
        for value in event.summary.value:
            if value.tag == "loss":
                found[event.step] = value.simple_value
    assert found[5] == 0.25 and found[9] != found[9]


def test_wandb_is_told_offline(tmp_path, monkeypatch):
    """The interface of the package, which starts a service of its own; validation runs the real one."""
    heard = []
    run = types.SimpleNamespace(
        log=lambda values, step: heard.append((step, values)), finish=lambda: heard.append("finished")
    )
    fake = types.SimpleNamespace(
        init=lambda **options: heard.append(options) or run, Settings=lambda **options: options
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)  # pyright: ignore[reportArgumentType]
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with tracked(["wandb"], tmp_path, "a run", {"width": 3}) as (tracker,):
        tracker.log(5, {"loss": 0.25})
    options, logged, end = heard
    assert options["mode"] == "offline" and options["config"] == {"width": 3} and options["name"] == "a run"
    assert logged == (5, {"loss": 0.25}) and end == "finished"


def test_a_missing_package_or_name_is_one_line(tmp_path, monkeypatch):
    assert parse_trackers(None) == [] and parse_trackers(" ") == []
    with pytest.raises(InputError, match=r"Unknown tracker 'tensorbord'\. Did you mean 'tensorboard'"):
        parse_trackers("tensorbord")
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    done = CliRunner().invoke(
        app, ["run", "adv1d", "--track", "tensorboard", "--out", str(tmp_path / "runs")]
    )
    assert done.exit_code == 2 and not (tmp_path / "runs").exists()
    assert "needs tensorboardX. Install it with: pip install 'sgno[tracking]'" in " ".join(
        done.stderr.split()
    )


def test_trackers_are_closed_when_the_run_fails(tmp_path, monkeypatch):
    closed = []
    tracker = types.SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setitem(tracking.TRACKERS, "wandb", lambda *_: tracker)
    with pytest.raises(KeyboardInterrupt), tracked(["wandb"], tmp_path, "a run", {}):
        raise KeyboardInterrupt
    assert closed == [True]
