"""Strangers' files: valid ones, damaged at random, handed to everything that reads files.

Each target takes a random generator and reads one damaged file. It may answer or raise `InputError`;
whatever else it raises is a fault of ours. `tests/test_fuzz.py` tries some cases of each,
`validation/test_fuzz.py` at least 200,000.
"""

import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from synthetic_store import fill_store, record

from sgno.errors import InputError
from sgno.io.files import checksum, load_arrays, save_arrays
from sgno.io.layout import parse_layout
from sgno.io.source import array_source, open_array, open_source
from sgno.lab.data.trajectories import _read
from sgno.lab.job import Job
from sgno.lab.recipe import TrainConfig
from sgno.lab.report.frontier import read_frontier
from sgno.lab.report.page import write_report
from sgno.lab.report.runs import parse_run
from sgno.lab.tasks import TASKS, Task, get_task
from sgno.registry import config_from_json, get_model, with_settings
from sgno.weights import load

Case = Callable[[np.random.Generator], None]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"
_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, 1e308, -1e-320, "", "x", "none", "../../x", "a\x00b", HOSTILE,
    "__import__('os').system('true')", [], {}, [[]], [0], {"kind": "sgno"}, "9" * 400, ["x"] * 50,
    [2**40, 2**40],
)  # fmt: skip


def damaged_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes: a byte, a cut, a repeat, an insertion, a number replaced by a strange one."""
    out = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        if not out:
            break
        at, kind = int(rng.integers(len(out))), rng.integers(6)
        if kind == 0:
            out[at] = int(rng.integers(256))
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = out[at : at + int(rng.integers(1, 64))]
        elif kind == 3:
            out[at:at] = rng.bytes(int(rng.integers(1, 16)))
        elif kind == 4:
            del out[at : at + int(rng.integers(1, 32))]
        else:
            digits = [i for i in range(at, min(at + 200, len(out))) if 48 <= out[i] <= 57]
            if digits:
                out[digits[0] : digits[0] + 1] = str(int(rng.choice([0, 7, 99, 10**9, 10**18]))).encode()
    return bytes(out)


def damaged_json(content: Any, rng: np.random.Generator) -> Any:
    """The same structure with one to three of its values replaced, removed or added."""
    out = json.loads(json.dumps(content))
    for _ in range(rng.integers(1, 4)):
        places = list(_places(out))
        if not places:
            return _strange(rng)
        holder, key = places[int(rng.integers(len(places)))]
        kind = rng.integers(4)
        if kind == 0 and isinstance(holder, dict):
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[str(_strange(rng))[:60]] = _strange(rng)
        else:
            holder[key] = _strange(rng)
    return out


def _strange(rng: np.random.Generator) -> Any:
    return json.loads(json.dumps(_STRANGE[int(rng.integers(len(_STRANGE)))]))


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in list(entries):
        yield content, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def containers(folder: Path) -> Case:
    """Weights, checkpoints and samples: bytes of the container."""
    path = folder / "x.safetensors"
    save_arrays(path, {"note": "x"}, {"a": np.arange(6.0), "b": np.zeros((2, 0), np.int8)})
    valid = path.read_bytes()

    def case(rng: np.random.Generator) -> None:
        path.write_bytes(damaged_bytes(valid, rng))
        load_arrays(path)

    return case


def weight_headers(folder: Path) -> Case:
    """Weights whose container is sound and whose header says something else."""
    path = folder / "w.safetensors"
    model = get_model("linear", 1)
    grid = {"channels": 1, "points": [8]}
    arrays = {".M_real": np.ones((1, 1, 5), np.float32), ".M_imag": np.zeros((1, 1, 5), np.float32)}
    meta = {"model": model.to_json(), "grid": grid, "provenance": {"id": "x"}}

    def case(rng: np.random.Generator) -> None:
        damaged = damaged_json(meta, rng)
        save_arrays(path, damaged if isinstance(damaged, dict) else {}, arrays)
        load(path)

    return case


def data_files(folder: Path) -> Case:
    """Trajectories in npy and npz files, read to the end."""
    array = np.random.default_rng(0).normal(size=(2, 3, 1, 8)).astype(np.float32)
    npy, plain, packed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, array)
    np.savez(plain, u=array)
    np.savez_compressed(packed, u=array)
    valid = [(".npy", npy.getvalue()), (".npz", plain.getvalue()), (".npz", packed.getvalue())]

    def case(rng: np.random.Generator) -> None:
        suffix, content = valid[int(rng.integers(3))]
        path = folder / f"u{suffix}"
        path.write_bytes(damaged_bytes(content, rng))
        states = open_source(path).read()
        assert states.dtype == np.float32 and np.isfinite(states).all()

    return case


def container_files(folder: Path) -> Case:
    """The same in HDF5 files and zarr folders."""
    import h5py
    import zarr

    array = np.random.default_rng(0).normal(size=(2, 3, 1, 8)).astype(np.float32)
    hdf5 = folder / "u.h5"
    with h5py.File(hdf5, "w") as file:
        file.create_dataset("u", data=array, chunks=(1, 3, 1, 8), compression="gzip")
    sound = hdf5.read_bytes()
    root = folder / "u.zarr"
    zarr.create_array(str(root), data=array)
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def case(rng: np.random.Generator) -> None:
        if rng.integers(2):
            hdf5.write_bytes(damaged_bytes(sound, rng))
            open_source(hdf5).read()
            return
        path = list(files)[int(rng.integers(len(files)))]
        path.write_bytes(damaged_bytes(files[path], rng))
        try:
            open_source(root).read()
        finally:
            path.write_bytes(files[path])

    return case


def descriptions(folder: Path) -> Case:
    """Zarr folders whose numbers are sound and whose description says something else, codecs above all."""
    import numcodecs.registry
    import zarr

    array = np.random.default_rng(0).normal(size=(2, 3, 1, 8)).astype(np.float32)
    roots = [folder / name for name in ("two.zarr", "three.zarr", "shards.zarr")]
    zarr.create_array(str(roots[0]), data=array, chunks=(1, 3, 1, 8), zarr_format=2)
    zarr.create_array(str(roots[1]), data=array, chunks=(1, 3, 1, 8))
    zarr.create_array(str(roots[2]), data=array, chunks=(1, 1, 1, 8), shards=(1, 3, 1, 8))
    marks = (".zarray", "zarr.json", "zarr.json")
    paths = [root / mark for root, mark in zip(roots, marks, strict=True)]
    sound = [json.loads(path.read_text()) for path in paths]
    codecs = sorted(numcodecs.registry.codec_registry)

    def case(rng: np.random.Generator) -> None:
        which = int(rng.integers(3))
        content = damaged_json(sound[which], rng) if rng.integers(4) else json.loads(json.dumps(sound[which]))
        if rng.integers(2) and isinstance(content, dict):
            name = codecs[int(rng.integers(len(codecs)))]
            place = ("filters", "compressor", "codecs")[int(rng.integers(3))]
            codec = {"id": name, "name": name, "configuration": {}}
            content[place] = codec if place == "compressor" else [codec]
        paths[which].write_text(json.dumps(content))
        try:
            raw, _ = open_array(roots[which], None, ())
            assert "pickle" not in json.dumps(content.get("filters")) + json.dumps(content.get("compressor"))
            array_source(raw).read([0], [0])
        finally:
            paths[which].write_text(json.dumps(sound[which]))

    return case


def old_containers(folder: Path) -> Case:
    """Files of version 0.1: bytes, and headers whose checksum is right and whose entries are not."""
    path = folder / "x.sgno"
    valid = (Path(__file__).parent / "files" / "version-0.1.sgno").read_bytes()
    line, body = valid.split(b"\n", 1)

    def case(rng: np.random.Generator) -> None:
        if rng.integers(2):
            path.write_bytes(damaged_bytes(valid, rng))
        else:
            header = damaged_json({**json.loads(line), "crc32": 0}, rng)
            if isinstance(header, dict):
                told = [header.get("meta"), header.get("arrays")]
                header["crc32"] = zlib.crc32(json.dumps(told).encode())
            path.write_bytes(json.dumps(header).encode() + b"\n" + body)
        arrays = load_arrays(path).arrays
        assert sum(array.nbytes for array in arrays.values()) <= len(body)

    return case


def cached_data(folder: Path) -> Case:
    """An entry of the data cache, which is either as it was written or not read at all."""
    array = np.random.default_rng(0).normal(size=(2, 3, 1, 8)).astype(np.float32)
    meta = {"crc32": {}, "shape": {}}
    for name in ("train", "test"):
        np.save(folder / f"{name}.npy", array)
        meta["crc32"][name], meta["shape"][name] = checksum(array), list(array.shape)
    (folder / "meta.json").write_text(json.dumps(meta))
    files = {path: path.read_bytes() for path in folder.iterdir()}

    def case(rng: np.random.Generator) -> None:
        path = list(files)[int(rng.integers(len(files)))]
        # Maps of the old file must not see the new one.
        path.unlink()
        path.write_bytes(damaged_bytes(files[path], rng))
        try:
            found = _read(folder)
            assert found is None or all(np.array_equal(part, array) for part in (found.train, found.test))
        finally:
            path.unlink()
            path.write_bytes(files[path])

    return case


def settings(folder: Path) -> Case:
    """Configs from JSON and from the command line's texts."""
    del folder
    jobs = [
        Job(TASKS["ks1d"], name, get_model(name, 1), TrainConfig.for_model(get_model(name, 1))).to_json()
        for name in ("sgno", "sgno-x", "fno", "cno", "linear")
    ]
    texts = ("apebench:diff_adv;num_points=32;gammas=(0,1)", "ks1d", "sample time x y", "width=8")

    def case(rng: np.random.Generator) -> None:
        job = damaged_json(jobs[int(rng.integers(len(jobs)))], rng)
        kind = rng.integers(6)
        text = damaged_bytes(texts[int(rng.integers(4))].encode(), rng).decode("utf-8", "replace")
        if kind == 0:
            config_from_json(_part(job, "model"))
        elif kind == 1:
            Task.from_json(_part(job, "task"))
        elif kind == 2:
            TrainConfig.from_json(_part(job, "train"))
        elif kind == 3:
            get_task(text)
        elif kind == 4:
            parse_layout(text, int(rng.integers(1, 7)), "u")
        else:
            name, _, value = text.partition("=")
            with_settings(get_model("sgno", 1), {name: value})

    return case


def _part(job: Any, name: str) -> dict[str, Any]:
    part = job.get(name) if isinstance(job, dict) else None
    return part if isinstance(part, dict) else {}


def records(folder: Path) -> Case:
    """Records of a store, and its measurement against the solver."""
    valid = record(transfer={"128": 0.2})
    frontier = folder / "frontier.json"
    point = {"name": "sgno-x", "divisions": 1, "gmean100": 0.1, "stable_step": 3}
    point |= {"seconds_per_step": 1.0, "seconds_low": 1.0, "seconds_high": 1.0}
    measured = {"task": TASKS["kolm2d"].to_json(), "states": 2, "steps": 3, "repeats": 2, "points": [point]}
    measured |= {
        "versions": {"jax": "1", "exponax": "2"},
        "machine": {"processor": "p", "cores": 2},
        "finished": "x",
    }

    def case(rng: np.random.Generator) -> None:
        if rng.integers(4):
            parse_run(damaged_json(valid, rng), "job")
        else:
            frontier.write_text(json.dumps(damaged_json(measured, rng)))
            read_frontier(folder)

    return case


def pages(folder: Path) -> Case:
    """The whole report of a store with hostile texts: nothing of them may become markup."""
    count = iter(range(10**9))

    def case(rng: np.random.Generator) -> None:
        root = folder / f"store{next(count)}"
        content = [record(model="sgno"), record(model=HOSTILE), damaged_json(record(model="fno"), rng)]
        fill_store(root, content, pictures=False)
        page = write_report(root).read_text()
        assert "<script>alert" not in page and "<img src=x" not in page
        # jinja must not have evaluated what a record says.
        assert "{{7*7}}" in page.replace("&#123;", "{") or HOSTILE[-7:] not in json.dumps(content)

    return case


TARGETS: dict[str, Callable[[Path], Case]] = {
    "containers": containers,
    "weight headers": weight_headers,
    "npy and npz": data_files,
    "HDF5 and zarr": container_files,
    "zarr descriptions": descriptions,
    "version 0.1": old_containers,
    "cached data": cached_data,
    "settings": settings,
    "records": records,
    "pages": pages,
}
ALLOWED = (InputError,)


class Tried(NamedTuple):
    """How many cases were read, how many refused in words, and what the others raised, each with the seed and
    the number that bring it back: they belong into `FOUND` once they are mended."""

    read: int
    refused: int
    faults: tuple[str, ...]


class Found(NamedTuple):
    """A case that raised what it may not, and what that was."""

    target: str
    seed: int
    case: int
    raised: str


# Mended, and tried again by every run of the tests.
FOUND = (
    Found("cached data", 0, 18, "TokenError: a header of numpy that ends early"),
    Found("cached data", 0, 151, "RuntimeWarning: a shape whose size overflows"),
    Found("HDF5 and zarr", 1, 3160, "ZeroDivisionError: chunks of no length"),
    Found("zarr descriptions", 7, 2610, "ZeroDivisionError: shards of no length"),
    Found("version 0.1", 0, 118, "TypeCheckError: a text for a checksum"),
    Found("settings", 0, 0, "TypeError: a task without a scenario"),
    Found("settings", 0, 16, "TypeError: a text for a number"),
    Found("settings", 0, 46, "AttributeError: a text for a table"),
    Found("settings", 0, 81, "TypeError: a field that tasks do not have"),
    Found("settings", 0, 100, "TypeError: a field that training does not have"),
    Found("settings", 0, 182, "ValueError: a width of zero"),
    Found("settings", 0, 369, "TypeError: a list for a number"),
    Found("weight headers", 0, 284, "TypeError: a size that is not whole"),
)


def run(target: str, folder: Path, cases: Iterable[int], seed: int) -> Tried:
    """Try these cases of a target."""
    folder.mkdir(parents=True, exist_ok=True)
    case, read, refused, faults = TARGETS[target](folder), 0, 0, []
    for i in cases:
        try:
            case(np.random.default_rng([seed, i]))
            read += 1
        except ALLOWED:
            refused += 1
        except Exception as error:
            faults.append(f"{target}, seed {seed}, case {i}: {type(error).__name__}: {str(error)[:200]}")
    return Tried(read, refused, tuple(faults))
