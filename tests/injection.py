"""Faults at each system call that changes a file: injection.py FOLDER REPORT POINTS NAME..., with `faults.c`.

Each point is a process of its own, forked before anything was computed, in which one call fails (no space, an
error of the disk, an interruption) or is where the process is killed. After it, what was there before is
there or the new result is, whole; the same work done again ends with the new result; and no part is left.
`start` compiles the library and runs this with it.
"""

import ctypes
import errno
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent
# No space comes to stay, the others happen once. A negative number kills.
KINDS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EINTR": errno.EINTR, "kill": -1}
STATES = np.random.default_rng(0).normal(size=(2, 3, 1, 64)).astype(np.float32)


class Work(NamedTuple):
    """Something that writes.

    `before` makes what was there; `do` raises an `InputError` or ends with exit code 2 if it is refused;
    `look` gives the result, or None if there is none.
    """

    before: Callable[[Path], object]
    do: Callable[[Path], object]
    look: Callable[[Path], Any]


def start(folder: Path, names: Sequence[str], points: int) -> dict[str, Any]:
    """Run works under the library and give what became of them.

    **Arguments:**

    - `points`: at most this many of each kind of fault in each work, evenly spaced over its calls.
    """
    library, report = folder / "faults.so", folder / "report.json"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "faults.c", "-ldl"], check=True)
    command = [sys.executable, __file__, folder / "places", report, str(points), *names]
    subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(library)}, check=True)
    return json.loads(report.read_text())


def arrays(path: Path) -> dict[str, tuple] | None:
    """The arrays of a file of any format, or None if there is no file."""
    from sgno.io.source import open_array, source_keys

    if not path.exists():
        return None
    found = {}
    for name in source_keys(path) or [None]:
        raw = open_array(path, name, ())[0]
        array = np.asarray(raw[tuple(slice(None) for _ in raw.shape)])
        found[name] = (array.dtype.str, array.shape, array.tobytes())
    return found


def written(suffix: str, replace: bool) -> Work:
    """The writer of rollouts, to a new name and over an older result."""
    from sgno.solve.writer import Spec, writer

    def write(place: Path, number: float, replace: bool) -> None:
        specs = {"u": Spec(STATES.shape)} | ({} if suffix == ".npy" else {"step": Spec((3,), "int64")})
        with writer(place / f"u{suffix}", specs, replace=replace) as sink:
            for t in range(3):
                sink.put("u", t, number * STATES[:, t : t + 1])
                if suffix != ".npy":
                    sink.put("step", t, np.array([t]))

    def do(place: Path) -> None:
        # Where it is whole already, the name is refused.
        if replace or not (place / f"u{suffix}").exists():
            write(place, 2.0, replace)

    before = (lambda place: write(place, 1.0, False)) if replace else (lambda place: None)
    return Work(before, do, lambda place: arrays(place / f"u{suffix}"))


def sealed() -> Work:
    from sgno.io.files import read_sealed, seal, write_json

    write = lambda place, content: write_json(place / "record.json", seal(content))
    look = lambda place: read_sealed(place / "record.json")
    return Work(lambda place: write(place, {"old": 1}), lambda place: write(place, {"new": 2}), look)


def cached() -> Work:
    from tiny_study import TINY

    from sgno.io.files import read_json
    from sgno.lab.data import trajectories
    from sgno.lab.tasks import get_task

    task = get_task("adv1d").with_options(**TINY)

    def do(place: Path) -> None:
        # What APEBench would make is not the question here.
        trajectories._generate = lambda task: [STATES, 2 * STATES]
        trajectories.load_trajectories(task, place)

    def look(place: Path) -> Any:
        folder = place / "data" / trajectories.data_id(task)
        if not folder.exists():
            return None
        read_json(folder / "meta.json")
        found = trajectories._read(folder)
        assert found is not None
        return found.train.tobytes(), found.test.tobytes()

    return Work(lambda place: None, do, look)


def command(*words: str, before: Callable[[Path], object], look: Callable[[Path], Any]) -> Work:
    """A command of `sgno`, in which PLACE stands for the folder, SHARED for one that no fault meets."""

    def do(place: Path) -> None:
        from sgno.cli.app import app

        places = {"PLACE": str(place), "SHARED": str(place.parents[1])}
        app([re.sub("PLACE|SHARED", lambda m: places[m[0]], word) for word in words], standalone_mode=False)

    return Work(before, do, look)


def rolled(suffix: str) -> Work:
    def before(place: Path) -> None:
        shutil.copytree(place.parents[1] / "given", place / "given")
        old = np.zeros((1, 1, 1, 8), np.float32)
        from sgno.solve.writer import Spec, writer

        with writer(place / f"u{suffix}", {"u": Spec(old.shape)}) as sink:
            sink.put("u", 0, old)

    words = ("rollout", "adv1d/sgno-x", "--initial", "PLACE/given/u.npy", "--steps", "4", "--force")
    look = lambda place: arrays(place / f"u{suffix}")
    return command(*words, "--out", f"PLACE/u{suffix}", before=before, look=look)


def store_of(place: Path) -> Any:
    """The only job of a store, or None."""
    from tiny_study import result

    from sgno.lab.store import Store

    store = Store(place / "runs")
    ids = store.ids()
    assert len(ids) < 2
    return result(store, ids[0]) if ids else None


def run() -> Work:
    sizes = "--points 64 --train-samples 2 --test-samples 2 --test-steps 8 --batch 4 --updates 4"
    words = f"run adv1d --model Conv;4;1;relu {sizes} --checkpoint-seconds 0"
    places = "--out PLACE/runs --cache SHARED/cache"
    return command(*words.split(), *places.split(), before=lambda place: None, look=store_of)


def fit() -> Work:
    words = "fit SHARED/given/long.npy --model linear --out PLACE/runs --cache SHARED/cache"
    return command(*words.split(), before=lambda place: None, look=store_of)


def report() -> Work:
    from synthetic_store import fill_store, record

    before = lambda place: fill_store(
        place / "runs", [record(model="sgno"), record(model="fno")], pictures=False
    )

    def look(place: Path) -> Any:
        page = place / "runs" / "report.html"
        if not page.exists():
            return None
        text = page.read_text()
        assert text.rstrip().endswith("</html>")
        return "whole"

    return command("report", "PLACE/runs", before=before, look=look)


SUFFIXES = (".npy", ".npz", ".h5", ".zarr")
WORKS: dict[str, Callable[[], Work]] = {
    **{f"write {s}": (lambda s=s: written(s, False)) for s in SUFFIXES},
    **{f"replace {s}": (lambda s=s: written(s, True)) for s in SUFFIXES},
    "record": sealed,
    "cache": cached,
    **{f"rollout {s}": (lambda s=s: rolled(s)) for s in SUFFIXES},
    "run": run,
    "fit": fit,
    "report": report,
}


def leftovers(place: Path) -> list[Path]:
    return [path for path in place.rglob(".*") if path.name.endswith(".part")]


def refused(work: Work, place: Path) -> str | None:
    """Do it; gives how it was refused, or None."""
    from sgno.errors import InputError

    try:
        work.do(place)
    except InputError as error:
        return str(error)
    except SystemExit as ended:
        if ended.code == 2:
            return "exit code 2"
        assert not ended.code, f"exit code {ended.code}"
    return None


def in_child(act: Callable[[], Any]) -> tuple[int, Any]:
    """What a forked process gives back, and the signal that killed it, or 0."""
    reader, sender = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        try:
            content = ("gave", act())
        except BaseException:
            content = ("raised", traceback.format_exc()[-1500:])
        with os.fdopen(sender, "wb") as file:
            pickle.dump(content, file)
        os._exit(0)
    os.close(sender)
    with os.fdopen(reader, "rb") as file:
        content = file.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status), None
    kind, value = pickle.loads(content)
    if kind == "raised":
        raise AssertionError(value)
    return 0, value


class Library:
    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_hit.restype = ctypes.c_char_p
        self._library.faults_seen.restype = ctypes.c_long

    def arm(self, place: Path, at: int, kind: str) -> None:
        stay = int(kind == "ENOSPC")
        self._library.faults_arm(os.fsencode(place), ctypes.c_long(at), KINDS[kind], stay)

    def disarm(self) -> tuple[int, str]:
        seen, hit = self._library.faults_seen(), self._library.faults_hit().decode()
        self._library.faults_disarm()
        return seen, hit


def try_point(work: Work, place: Path, library: Library, kind: str, at: int, new: Any) -> str:
    """One fault and what comes after; gives the call that it met."""
    place.mkdir(parents=True)
    work.before(place)
    old = work.look(place)

    def meet() -> tuple[str | None, str]:
        library.arm(place, at, kind)
        try:
            said = refused(work, place)
        finally:
            _, hit = library.disarm()
        return said, hit

    killed, answer = in_child(meet)
    assert killed in (0, signal.SIGKILL), f"signal {killed}"
    found = work.look(place)
    assert found in (old, new), "neither the old result nor the new one"
    if not killed:
        assert answer[0] is not None or found == new, "success without a result"
    assert in_child(lambda: refused(work, place))[1] is None, "refused without a fault"
    assert work.look(place) == new, "not healed"
    from sgno.io.commit import write_bytes

    # Where the work was done already, the next that writes there clears away.
    for left in leftovers(place):
        write_bytes(left.parent / "next", [b""])
    assert not leftovers(place), leftovers(place)
    shutil.rmtree(place)
    return "killed" if killed else answer[1]


def try_work(name: str, folder: Path, points: int) -> dict[str, Any]:
    library, work = Library(), WORKS[name]()
    tried, calls, faults = dict.fromkeys(KINDS, 0), {}, []

    def whole(kind: str, at: Path) -> int:
        at.mkdir(parents=True)
        work.before(at)
        library.arm(at, 0, kind)
        assert refused(work, at) is None
        return library.disarm()[0]

    for kind in KINDS:
        reference = folder / f"{name} {kind}"
        calls[kind] = in_child(lambda kind=kind, at=reference: whole(kind, at))[1]
        new = work.look(reference)
        assert new is not None
        spaced = np.unique(np.linspace(1, calls[kind], min(points, calls[kind])).round().astype(int))
        for at in map(int, spaced):
            place = folder / f"{name} {kind} {at}"
            try:
                try_point(work, place, library, kind, at, new)
                tried[kind] += 1
            except AssertionError as error:
                faults.append(f"{name}, {kind} at call {at} of {calls[kind]}: {str(error)[-700:]}")
    return {"calls": calls, "points": tried, "faults": faults}


def main(folder: str, report: str, points: str, *names: str) -> None:
    places = Path(folder)
    (places.parent / "given").mkdir(parents=True)
    np.save(places.parent / "given" / "u.npy", np.random.default_rng(0).normal(size=(1, 1, 160)).astype("f4"))
    angles = 2 * np.pi * (np.arange(64)[None, :] / 64 + 0.05 * np.arange(12)[:, None])
    waves = np.stack([np.sin(angles + s) + 0.3 * np.cos(2 * angles - s) for s in range(6)])[:, :, None]
    np.save(places.parent / "given" / "long.npy", waves.astype("f4"))
    found = {}
    for name in names:
        found[name] = try_work(name, places, int(points))
        print(name, found[name], flush=True)
        Path(report).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
