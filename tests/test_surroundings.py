"""Commands in odd surroundings: narrow terminals, the C locale, names that are no text, no home, no input."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SURROUNDINGS = {
    "20 columns": {"COLUMNS": "20"},
    "the C locale": C_LOCALE,
    "no home": {"HOME": None},
    "a home that cannot be written": {"HOME": "/proc/none"},
    "no folder for temporary files": {"TMPDIR": "/proc/none"},
}


def run(*arguments, folder, surroundings, stdin=None):
    changed = {**os.environ, "SGNO_CACHE": None, "XDG_CACHE_HOME": None, **surroundings}
    environment = {key: value for key, value in changed.items() if value is not None}
    command = [sys.executable, "-m", "sgno", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, stdin=stdin)


@pytest.mark.parametrize("where", SURROUNDINGS)
@pytest.mark.parametrize("command", ["zoo", "tasks"])
def test_lists_are_printed(where, command, tmp_path):
    done = run(command, folder=tmp_path, surroundings=SURROUNDINGS[where])
    assert done.returncode == 0, done.stderr.decode()
    assert b"ks1d" in done.stdout and b"Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_fit_works_where_everything_is_odd(tmp_path):
    """No home, no folder for temporary files, the C locale, 20 columns, a name of bytes, input closed."""
    name, out = tmp_path / os.fsdecode(b"b\xff.npy"), tmp_path / os.fsdecode(b"r\xff")
    x = np.arange(16) * 2 * np.pi / 16
    np.save(name, np.stack([np.sin(x - 0.1 * t + np.arange(6)[:, None, None]) for t in range(8)], 1))
    odd = {**C_LOCALE, "COLUMNS": "20", "HOME": "/proc/none", "TMPDIR": "/proc/none"}

    def fit(**how):
        arguments = ("fit", name, "--model", "linear", "--out", out, "--json")
        return run(*arguments, folder=tmp_path, surroundings=odd, **how)

    closed = subprocess.DEVNULL
    done = fit(stdin=closed)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert json.loads(done.stdout.splitlines()[-1])["task"] == os.fsdecode(b"b\xff.npy")
    assert list(out.glob("jobs/*/weights.safetensors"))


def test_closed_standard_streams_are_no_error(tmp_path):
    command = f'exec "{sys.executable}" -m sgno zoo <&- 2>&-'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0 and b"ks1d" in done.stdout
