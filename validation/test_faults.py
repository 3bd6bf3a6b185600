"""Slower faults, in real processes: a study on failing disks, want of memory, two commands at once."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import kills
from disks import close_disk, open_disk
from tiny_study import result, tiny_job

from sgno.lab.executor import News, run_study
from sgno.lab.local import LocalProcesses
from sgno.lab.store import Store

SGNO = [sys.executable, "-m", "sgno"]
STUDY = ["reproduce", "--tasks", "adv1d", "--models", "linear,conv", "--workers", "1", "--no-estimate"]
RUN = ["run", "adv1d", "--model", "Conv;4;1;relu", "--points", "64", "--train-samples", "2", "--batch", "4"]
RUN += ["--test-samples", "2", "--test-steps", "8", "--updates", "3000", "--checkpoint-seconds", "0"]


@pytest.fixture
def disk():
    disk = open_disk()
    yield disk
    close_disk(disk)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


def sgno(arguments: list[str], out: Path, cache: Path) -> subprocess.CompletedProcess:
    places = ["--out", str(out), "--cache", str(cache), "--json"]
    return subprocess.run([*SGNO, *arguments, *places], capture_output=True, text=True)


def refused(done: subprocess.CompletedProcess, *words: str) -> None:
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-3000:]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error:")]
    for word in words:
        assert word in line


def scores(root: Path) -> dict[str, float]:
    return {record["id"]: record["gmean100"] for record in Store(root).records()}


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]


def test_a_study_on_a_full_and_on_a_read_only_disk(disk, cache, tmp_path):
    whole, out = tmp_path / "whole", disk.folder / "results"
    assert sgno(STUDY, whole, cache).returncode == 0
    out.mkdir()
    disk.fill()
    refused(sgno(STUDY, out, cache), "Cannot write", "run the same command again")
    disk.free()
    assert not leftovers(out) and not scores(out)
    assert sgno(STUDY, out, cache).returncode == 0
    assert scores(out) == scores(whole) and len(scores(out)) == 2
    disk.forbid()
    again = sgno([*STUDY, "--no-report"], out, cache)
    assert again.returncode == 0 and json.loads(again.stdout)["left"] == 0
    refused(sgno([*STUDY[:4], "res", *STUDY[5:]], out, cache), "not writable")
    disk.allow()


@pytest.mark.parametrize("how", ["killed", "refused"])
def test_a_job_out_of_memory_is_recorded_with_advice_and_the_others_finish(how, tmp_path, cache):
    """Killed, as the kernel does when memory runs out; or refused, as it does by a limit."""
    hungry, modest = tiny_job(0, 20, model="Conv;1500;2;relu"), [tiny_job(seed) for seed in range(2)]
    store = Store(tmp_path)
    with LocalProcesses(1) as executor:

        def watch(news: News) -> None:
            if news.kind != "started" or not executor.pids:
                return
            (pid,) = executor.pids
            if news.job.id != hungry.id:
                return
            if how == "killed":
                os.kill(pid, signal.SIGKILL)
            else:
                size = re.search(r"VmSize:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                assert size is not None
                limit = 1024 * int(size[1]) + 200 * 2**20
                resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))

        outcome = run_study([modest[0], hungry, modest[1]], store, executor, cache=cache, watch=watch)
    assert outcome.failed == (hungry.id,)
    assert set(outcome.finished) == {job.id for job in modest}
    (failure,) = store.failures()
    assert "memory" in failure["error"] and "use a smaller model, batch or grid" in failure["error"]


def test_two_commands_that_want_the_same_run_make_it_once(tmp_path, cache):
    out = ["--out", str(tmp_path), "--cache", str(cache), "--json"]
    running = [
        subprocess.Popen([*SGNO, *RUN, *out], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    first, second = (json.loads(stdout.splitlines()[-1]) for stdout, _ in said)
    assert first == second
    assert sum("is being run by process" in stderr for _, stderr in said) == 1
    assert not leftovers(tmp_path) and not list((tmp_path / "claims").iterdir())


def test_damaged_programs_are_compiled_again(tmp_path):
    cache = tmp_path / "cache"
    assert sgno(RUN, tmp_path / "whole", cache).returncode == 0
    programs = [path for path in (cache / "compiled").rglob("*") if path.is_file()]
    assert programs
    for i, path in enumerate(programs):
        content = bytearray(path.read_bytes())
        if i % 2:
            content[len(content) // 2] ^= 1
        else:
            del content[len(content) // 2 :]
        path.write_bytes(content)
    assert sgno(RUN, tmp_path / "again", cache).returncode == 0
    (job_id,) = scores(tmp_path / "whole")
    assert result(Store(tmp_path / "again"), job_id) == result(Store(tmp_path / "whole"), job_id)


def test_kills_while_data_are_made_leave_them_right_and_nothing_else(tmp_path, cache):
    command = kills.sgno(*RUN, "--out", tmp_path / "out", "--cache", tmp_path / "cache")
    # As long as the data are not there, what is half-written in the cache is theirs.
    kills.kill_often(command, tmp_path / "cache", kills=6, longest=8.0, rng=np.random.default_rng(0))
    kills.finish(command)
    assert not leftovers(tmp_path)
    whole = sgno(RUN, tmp_path / "whole", cache)
    (job_id,) = scores(tmp_path / "whole")
    assert whole.returncode == 0
    assert result(Store(tmp_path / "out"), job_id) == result(Store(tmp_path / "whole"), job_id)
