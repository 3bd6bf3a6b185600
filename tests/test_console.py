"""What the command line prints of strangers' names, and how it ends when it is told to."""

import io
import os
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from sgno.cli import console as module
from sgno.cli.console import guarded, say, show_table
from sgno.errors import InputError, StorageError, storage_error

HOSTILE = "[/red][link=file:///x]name\x1b]0;title\x07\x1b[2J\u202egnp.exe:smile:\udcff"
SHOWN = r"[/red][link=file:///x]name\x1b]0;title\x07\x1b[2J\u202egnp.exe:smile:\udcff"


@pytest.fixture
def printed(monkeypatch):
    """Where a console prints that is a terminal."""
    to = io.StringIO()
    monkeypatch.setattr(module.console, "_file", to)
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setattr(module.console, "_color_system", None)
    return to


def test_names_are_printed_as_they_are_and_control_nothing(printed):
    say(HOSTILE)
    show_table(module.console, HOSTILE, [HOSTILE], [[HOSTILE]], caption=HOSTILE)
    with pytest.raises(SystemExit) as ended:
        guarded(lambda: (_ for _ in ()).throw(InputError(HOSTILE)))()
    assert ended.value.code == 2
    text = printed.getvalue()
    assert "\x1b]" not in text and "\x1b[2J" not in text and "\x07" not in text and "\u202e" not in text
    assert text.count(SHOWN) == 6


def test_a_refused_write_names_its_file():
    said = storage_error(OSError(5, "Input/output error"), "out.h5")
    assert isinstance(said, StorageError) and "Cannot write out.h5: Input/output error" in str(said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_command_in_order(number):
    # A background job inherits ignored signals, and this suite may be one.
    code = (
        "import signal, time; from sgno.cli.console import guarded, orderly_end\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
        "def work():\n"
        "    try:\n"
        "        print('ready', flush=True); time.sleep(60)\n"
        "    finally:\n"
        "        print('cleared away')\n"
        "with orderly_end():\n"
        "    guarded(work)()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "cleared away\n"
    assert err.startswith("Interrupted.") and "Traceback" not in err


def test_a_closed_pipe_ends_a_command_without_a_word():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "sgno", "--help"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == b""
