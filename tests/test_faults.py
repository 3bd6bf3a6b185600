"""Faults, really made: full and read-only disks, kills, damage, two writers, jumping clocks, want of memory.

Nothing finished is lost, nothing wrong is returned, the message says what to do, nothing half-written stays.
`validation/test_faults.py` has the more expensive ones.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import jax
import numpy as np
import pytest
from disks import Disk, Limited, Mounted, close_disk, may_mount, open_disk, orphan
from tiny_study import result
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.errors import InputError, StorageError
from sgno.io.commit import new_folder, sweep, write_bytes
from sgno.io.files import load_arrays, read_sealed, save_arrays, seal, write_json
from sgno.lab.data import trajectories
from sgno.lab.data.trajectories import load_trajectories
from sgno.lab.executor import Event, run_study
from sgno.lab.job import Job, run_job
from sgno.lab.perform import perform
from sgno.lab.recipe import TrainConfig
from sgno.lab.report.runs import read_store
from sgno.lab.store import Store
from sgno.lab.tasks import get_task
from sgno.lab.zoo import build, find, shelf
from sgno.registry import get_model

TASK = get_task("adv1d").with_options(num_points=64, num_train_samples=2, num_test_samples=2, test_steps=8)
CONV, LINEAR = "Conv;4;1;relu", "linear"


@pytest.fixture
def disk():
    disk = open_disk()
    yield disk
    close_disk(disk)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache) -> Store:
    """Two finished jobs that nothing happened to."""
    store = Store(tmp_path_factory.mktemp("whole"))
    for job in (conv_job(), linear_job()):
        run_job(job, store, cache=cache)
    return store


def conv_job(updates: int = 8, model: str = CONV) -> Job:
    return _job(model, updates=updates, batch_size=4)


def linear_job() -> Job:
    return _job(LINEAR, batch_size=4)


def _job(name: str, **training) -> Job:
    model = get_model(name, 1)
    return Job(TASK, name, model, TrainConfig.for_model(model, **training))


def arguments(job: Job, out: Path, cache: Path) -> list[str]:
    """The job as a command."""
    options = {
        "--model": job.model_name,
        "--points": TASK.num_points,
        "--train-samples": TASK.num_train_samples,
        "--test-samples": TASK.num_test_samples,
        "--test-steps": TASK.test_steps,
        "--updates": job.train.updates,
        "--batch": job.train.batch_size,
        "--out": out,
        "--cache": cache,
        "--checkpoint-seconds": 0,
    }
    return ["run", TASK.name, "--json", *(str(word) for pair in options.items() for word in pair)]


def sgno_run(job: Job, out: Path, cache: Path):
    return CliRunner().invoke(app, arguments(job, out, cache))


def refused(outcome, *words: str) -> None:
    """One line, exit code 2."""
    assert outcome.exit_code == 2, outcome.output
    (line,) = [line for line in outcome.stderr.splitlines() if line.startswith("Error:")]
    assert "Traceback" not in outcome.stderr
    for word in words:
        assert word in line


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith((".part", ".claim"))]


class Inline:
    """An executor without processes."""

    slots = 1

    def __init__(self):
        self._events: deque[Event] = deque()

    def submit(self, call):
        tell = lambda kind, content: self._events.append(Event(kind, call["id"], content))
        tell("done", perform(call, tell))

    def events(self, timeout):
        while self._events:
            yield self._events.popleft()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pass


@pytest.mark.parametrize("kind", [Limited, *([Mounted] if may_mount() else [])])
def test_the_disks_of_these_tests_do_refuse(kind: type[Disk]):
    disk = open_disk(kind)
    try:
        path = disk.folder / "x"
        disk.fill()
        with pytest.raises(StorageError, match=r"Cannot write .*: (No space left|File too large).* again"):
            write_bytes(path, [bytes(100_000)])
        disk.free()
        assert not path.exists() and not leftovers(disk.folder)
        write_bytes(path, [b"old"])
        disk.forbid()
        with pytest.raises(StorageError, match="is not writable"):
            write_bytes(path, [b"new"])
        assert path.read_bytes() == b"old"
        disk.allow()
        write_bytes(path, [b"new"])
    finally:
        close_disk(disk)


def test_a_full_disk_stops_a_run_in_words_and_the_same_command_ends_it(disk, cache, whole):
    job, out = conv_job(), disk.folder / "runs"
    disk.fill()
    refused(sgno_run(job, out, cache), "No space left" if may_mount() else "large", "again")
    disk.free()
    store = Store(out)

    def fill_at(update: int):
        return lambda progress: disk.fill() if progress.update == update else None

    # At the first checkpoint, and when the results are written.
    for update, seconds in ((1, 0.0), (job.train.updates, 1e9)):
        with pytest.raises(StorageError, match="again"):
            run_job(job, store, cache=cache, on_progress=fill_at(update), checkpoint_seconds=seconds)
        disk.free()
        assert not store.is_finished(job.id) and not leftovers(out)
    assert sgno_run(job, out, cache).exit_code == 0
    assert result(store, job.id) == result(whole, job.id)
    assert not leftovers(out) and not list((out / "checkpoints").iterdir())


def test_a_full_disk_stops_a_study_once_and_keeps_what_is_finished(disk, cache, whole):
    store, jobs = Store(disk.folder), [linear_job(), conv_job()]
    shutil.copytree(whole.job(jobs[0].id), store.job(jobs[0].id))
    disk.fill()
    with pytest.raises(StorageError, match="again"):
        run_study(jobs, store, Inline(), cache=cache)
    assert result(store, jobs[0].id) == result(whole, jobs[0].id)
    disk.free()
    assert run_study(jobs, store, Inline(), cache=cache).failed == ()
    assert result(store, jobs[1].id) == result(whole, jobs[1].id)
    assert not list(store.failures()) and not leftovers(disk.folder)


def test_a_full_disk_leaves_no_data_and_no_model_of_the_zoo(disk, cache, whole, monkeypatch):
    monkeypatch.setattr(shelf, "FILES", disk.folder / "files")
    disk.fill()
    with pytest.raises(StorageError, match="again"):
        load_trajectories(TASK, disk.folder)
    with pytest.raises(StorageError, match="again"):
        build.build(whole.root, [f"{TASK.name}/{LINEAR}"])
    assert shelf.names() == [] and not leftovers(disk.folder)
    disk.free()
    assert not list((disk.folder / "data").iterdir())
    np.testing.assert_array_equal(
        load_trajectories(TASK, disk.folder).test, load_trajectories(TASK, cache).test
    )
    (card,) = build.build(whole.root, [f"{TASK.name}/{LINEAR}"])
    assert find(card.name).read_bytes() == whole.weights(linear_job().id).read_bytes()


def test_a_read_only_disk_answers_and_takes_nothing(disk, cache, whole, monkeypatch):
    done, new = linear_job(), conv_job()
    store = Store(disk.folder / "runs")
    shutil.copytree(whole.job(done.id), store.job(done.id))
    load_trajectories(TASK, disk.folder)
    monkeypatch.setattr(shelf, "FILES", disk.folder / "files")
    (card,) = build.build(whole.root, [f"{TASK.name}/{LINEAR}"])
    disk.forbid()
    answered = sgno_run(done, store.root, cache)
    assert answered.exit_code == 0
    assert json.loads(answered.stdout.splitlines()[-1])["gmean100"] == whole.record(done.id)["gmean100"]
    refused(sgno_run(new, store.root, cache), "not writable", "Choose another")
    with pytest.raises(StorageError, match="not writable"):
        run_study([done, new], store, Inline(), cache=cache)
    assert load_trajectories(TASK, disk.folder).test.shape == (2, 9, 1, 64)
    with pytest.raises(StorageError, match="not writable"):
        load_trajectories(TASK.with_options(num_points=32), disk.folder)
    assert find(card.name).is_file()
    with pytest.raises(StorageError, match="not writable"):
        build.build(whole.root, [f"{TASK.name}/{LINEAR}"])
    disk.allow()
    assert not leftovers(disk.folder)


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, cache):
    job, store, undisturbed = conv_job(300), Store(tmp_path / "killed"), Store(tmp_path / "whole")
    # On one device, as here: another number of them adds up in another order.
    one_device = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    command = [sys.executable, "-m", "sgno", *arguments(job, store.root, cache)]
    with subprocess.Popen(command, env=one_device) as process:
        while process.poll() is None and not store.checkpoint(job.id).is_file():
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert not store.is_finished(job.id) and store.checkpoint(job.id).is_file()
    for place in (store, undisturbed):
        run_job(job, place, cache=cache)
    assert result(store, job.id) == result(undisturbed, job.id)
    assert not leftovers(store.root) and not list((store.root / "checkpoints").iterdir())


def test_a_damaged_checkpoint_is_named_and_training_starts_afresh(tmp_path, cache, whole, caplog):
    job, store = conv_job(), Store(tmp_path)

    def interrupt(progress):
        if progress.update > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job, store, cache=cache, on_progress=interrupt)
    path = store.checkpoint(job.id)
    sound = path.read_bytes()
    # The length of the header stands first; the arrays come behind it.
    middle = (8 + int.from_bytes(sound[:8], "little") + len(sound)) // 2
    damages = (
        ("checksum does not match", sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]),
        ("truncated", sound[: len(sound) - 5]),
        ("not a safetensors file", b""),
        ("checksum does not match", sound.replace(job.id.encode(), job.id[::-1].encode(), 1)),
    )
    for words, content in damages:
        path.write_bytes(content)
        with pytest.raises(InputError, match=words):
            load_arrays(path)
    run_job(job, store, cache=cache)
    assert "starts afresh" in caplog.text and "checksum does not match" in caplog.text
    assert result(store, job.id) == result(whole, job.id)


def test_no_byte_of_a_record_can_change_unnoticed(tmp_path):
    path = tmp_path / "record.json"
    content = {"gmean100": 0.0123, "mean_nrmse": [0.1, 2e-5, None], "job": {"seed": 3}, "finished": "x"}
    write_json(path, seal(content))
    sound, rng = path.read_bytes(), np.random.default_rng(0)
    assert read_sealed(path) == seal(content)
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(InputError):
            # Only the name of the seal is not under it.
            assert {k: v for k, v in read_sealed(path).items() if k in content} == content


def test_a_damaged_record_is_refused_reported_and_made_again(tmp_path, cache, whole):
    job, store = linear_job(), Store(tmp_path)
    shutil.copytree(whole.job(job.id), store.job(job.id))
    path = store.job(job.id) / "record.json"
    path.write_text(path.read_text().replace('"gmean100": ', '"gmean100": 1', 1))
    refused(sgno_run(job, store.root, cache), "damaged", "Delete it and run again")
    contents = read_store(store.root)
    assert contents.runs == () and "checksum does not match" in contents.unreadable[0]
    path.unlink()
    assert sgno_run(job, store.root, cache).exit_code == 0
    assert result(store, job.id) == result(whole, job.id)


def test_damaged_data_is_never_read_whatever_byte_it_is(tmp_path, cache, caplog):
    sound = load_trajectories(TASK, cache)
    shutil.copytree(cache / "data" / sound.id, tmp_path / "data" / sound.id)
    path = tmp_path / "data" / sound.id / "test.npy"
    content, rng = path.read_bytes(), np.random.default_rng(0)
    header = len(content) - sound.test.nbytes
    # Every byte of the header, which says how the numbers are to be read, and some of the numbers.
    for position in (*range(header), *rng.integers(header, len(content), 50)):
        damaged = bytearray(content)
        damaged[position] ^= int(rng.integers(1, 256))
        path.unlink()
        path.write_bytes(damaged)
        found = trajectories._read(path.parent)
        assert found is None or np.array_equal(found.test, sound.test)
    path.unlink()
    path.write_bytes(content.replace(b"'<f4'", b"'<i4'"))
    np.testing.assert_array_equal(load_trajectories(TASK, tmp_path).test, sound.test)
    assert "damaged and is made again" in caplog.text


def together(*calls) -> list:
    """Call all at once, each in a thread: an open file holds a lock, so threads are as good as processes."""
    answers: list = [None] * len(calls)

    def work(i, call):
        answers[i] = call()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_of_two_that_want_the_same_data_one_makes_it(tmp_path, monkeypatch, caplog):
    made = []
    data = [np.ones((2, 3, 1, 8), np.float32), np.zeros((2, 3, 1, 8), np.float32)]

    def generate(task):
        made.append(task)
        time.sleep(0.3)
        return data

    monkeypatch.setattr(trajectories, "_generate", generate)
    found = together(*[lambda: load_trajectories(TASK, tmp_path)] * 3)
    assert len(made) == 1 and "Waiting for process" in caplog.text
    for array in found:
        np.testing.assert_array_equal(array.train, data[0])
    assert os.listdir(tmp_path / "data") == [found[0].id]


def test_of_two_that_want_the_same_run_one_makes_it(tmp_path, cache, whole, caplog):
    job, store, trained = conv_job(), Store(tmp_path), []

    def train():
        return run_job(job, store, cache=cache, on_progress=lambda _: trained.append(threading.get_ident()))

    first, second = together(train, train)
    assert first == second and len(set(trained)) == 1
    assert "is being run by process" in caplog.text
    assert result(store, job.id) == result(whole, job.id)
    assert not list((tmp_path / "claims").iterdir())


def test_a_clock_that_jumps_changes_nothing(tmp_path, cache, whole, monkeypatch):
    now, job = time.time(), conv_job()
    jumps = np.random.default_rng(0)
    monkeypatch.setattr(time, "time", lambda: now + jumps.uniform(-1e9, 1e9))
    store = Store(tmp_path)
    # What another process is writing looks a century old or new, and so does what a dead one left.
    with new_folder(store.job("live")) as beside:
        dead = [orphan(tmp_path / "jobs" / "dead"), orphan(tmp_path / "checkpoints" / "dead")]
        for path, date in ((beside, 0), (dead[0], 4e9), (dead[1], now + 100)):
            os.utime(path, (date, date))
        run_job(job, store, cache=cache, checkpoint_seconds=0.0)
        assert beside.is_dir() and not any(path.exists() for path in dead)
        (beside / "record.json").write_text("{}")
    assert store.is_finished("live") and not leftovers(tmp_path)
    assert result(store, job.id) == result(whole, job.id)


def test_a_file_being_written_is_never_swept_away(tmp_path):
    stop = threading.Event()

    def sweeping():
        while not stop.is_set():
            sweep(tmp_path)

    thread = threading.Thread(target=sweeping)
    thread.start()
    try:
        for i in range(200):
            save_arrays(tmp_path / "x.safetensors", {"i": i}, {"a": np.arange(i)})
            with new_folder(tmp_path / str(i)) as beside:
                (beside / "x").write_text("x")
    finally:
        stop.set()
        thread.join()
    assert len(os.listdir(tmp_path)) == 201


def test_want_of_memory_is_said_in_words_and_the_other_jobs_finish(tmp_path, cache):
    # Its weights alone take twelve terabytes.
    hungry, store = conv_job(model="Conv;1000000;2;relu"), Store(tmp_path)
    refused(sgno_run(hungry, tmp_path, cache), "Out of memory", "use a smaller model")
    outcome = run_study([hungry, linear_job()], store, Inline(), cache=cache)
    assert outcome.failed == (hungry.id,) and outcome.finished == (linear_job().id,)
    (failure,) = store.failures()
    assert "Out of memory" in failure["error"] and "use a smaller model" in failure["error"]
    assert not leftovers(tmp_path)


def test_xlas_want_of_memory_is_told_from_other_errors():
    from sgno.errors import memory_message

    with pytest.raises(Exception) as caught:
        jax.numpy.zeros((2**20, 2**20, 2**10)).block_until_ready()
    assert "use a smaller model" in (memory_message(caught.value) or "")
    assert memory_message(RuntimeError("else")) is None
