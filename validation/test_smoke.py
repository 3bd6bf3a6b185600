"""The whole smoke preset works, within three minutes on two free cores."""

import json
import subprocess
import sys
import time


def test_the_smoke_preset_ends_within_three_minutes(tmp_path):
    command = [sys.executable, "-c", "from sgno.cli import main; main()", "reproduce", "--preset", "smoke"]
    places = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    began = time.monotonic()
    run = subprocess.run([*command, *places, "--json"], capture_output=True, text=True)
    seconds = time.monotonic() - began
    assert run.returncode == 0, run.stderr[-4000:]
    summary = json.loads(run.stdout.splitlines()[-1])
    assert summary["failed"] == [] and summary["finished"] == summary["jobs"]
    assert seconds < 180
