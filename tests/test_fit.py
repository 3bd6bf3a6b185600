"""A user's own trajectories, made by a solver that is not APEBench's, fitted by every road there is."""

import json
import warnings
from pathlib import Path

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from typer.testing import CliRunner

import sgno
from sgno.cli.app import app
from sgno.data.own import OwnTask, describe, load_own, open_files, start_part
from sgno.data.source import Source, array_source
from sgno.data.split import Split
from sgno.data.survey import survey
from sgno.data.units import choose_units
from sgno.errors import InputError
from sgno.models.leaves import flatten
from sgno.models.normalised import Normalised, NormalisedConfig
from sgno.models.registry import config_from_json, get_model
from sgno.models.step import Grid
from sgno.models.weights import load_weights, save_weights
from sgno.study.fit import plan_fit

TINY = "Conv;2;1;relu"


def burgers(samples: int, times: int, n: int = 32, viscosity: float = 0.1, dt: float = 0.1) -> np.ndarray:
    """u_t = -u u_x + nu u_xx on [0, 2 pi): integrating factor, RK4, two thirds of the modes, numpy alone."""
    rng = np.random.default_rng(0)
    k, x = np.fft.rfftfreq(n, 1 / n), 2 * np.pi * np.arange(n) / n
    substeps, kept = 10, k < n / 3
    h = dt / substeps
    whole, half = np.exp(-viscosity * k**2 * h), np.exp(-viscosity * k**2 * h / 2)
    waves = [
        rng.normal(size=(samples, 1)) / m * np.sin(m * x + rng.uniform(0, 7, (samples, 1))) for m in (1, 2, 3)
    ]

    def f(v):
        return -0.5j * k * kept * np.fft.rfft(np.fft.irfft(v * kept, n) ** 2)

    v = np.fft.rfft(sum(waves))
    states = [v]
    for _ in range(times - 1):
        for _ in range(substeps):
            a = h * f(v)
            b = h * f(half * (v + a / 2))
            c = h * f(half * v + b / 2)
            d = h * f(whole * v + half * c)
            v = whole * v + (whole * a + 2 * half * (b + c) + d) / 6
        states.append(v)
    return np.fft.irfft(np.stack(states, 1), n)[:, :, None].astype(np.float32)


@pytest.fixture(scope="module")
def u() -> np.ndarray:
    return burgers(12, 12)


@pytest.fixture
def place(tmp_path, monkeypatch, cache) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fitted(*arguments) -> dict:
    done = invoke("fit", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


def test_sgno_x_learns_a_users_equation_and_its_weights_speak_the_users_units(place, u):
    """Values a thousand times as large, a missing channel axis, and the test part apart."""
    scaled = 1000 * u[:, :, 0]
    np.savez(place / "own.npz", train=scaled[:10], test=scaled[10:])
    command = ["own.npz", "--model", "sgno-x", "--layout", "sample time space", "--updates", 0]
    command += ["--set", "degree=2"]
    found = fitted(*command)
    assert found["gmean100"] < 2e-3 and found["warnings"] == [] and found["validation_gmean100"] is not None
    weights = load_weights(Path(found["weights"][0]))
    assert isinstance(weights.step, Normalised) and weights.step.mean == (0.0,)
    scored = sgno.evaluate(weights.step, scaled[10:, :, None])
    assert scored.gmean100 == pytest.approx(found["gmean100"], rel=1e-4)
    record = json.loads((place / found["run"][0] / "record.json").read_text())
    assert record["job"]["task"]["num_test_samples"] == 2 and record["versions"]["sgno"]
    again = fitted(*command)
    assert again == found
    done = invoke("report", "runs", "--format", "md")
    assert done.exit_code == 0 and "own.npz" in done.stdout


def test_python_and_command_line_agree_bit_for_bit_streamed_or_not(place, u):
    np.save(place / "own.npy", u)
    found = fitted("own.npy", "--model", TINY, "--updates", 8, "--batch", 4, "--stream")
    step = sgno.fit(u, TINY, updates=8, batch_size=4, stream=True).step
    weights = load_weights(Path(found["weights"][0]))
    one, two = flatten(step), flatten(weights.step)
    assert one.keys() == two.keys() and len(one) > 2
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])
    assert found["task"] == "own.npy" and found["seconds_per_update"] > 0
    states = np.asarray(sgno.rollout(step, jnp.asarray(u[0, 0]), 3))
    assert states.shape == (3, 1, 32) and np.isfinite(states).all()


def test_an_interrupted_fit_goes_on_bit_for_bit(place, u):
    np.save(place / "own.npy", u)
    seen = []

    def interrupt(progress):
        seen.append(progress.update)
        if progress.update >= 3:
            raise KeyboardInterrupt

    options = {"model": TINY, "updates": 12, "batch_size": 4}
    with pytest.raises(KeyboardInterrupt):
        sgno.fit(place / "own.npy", **options, out=place / "broken", on_progress=interrupt)
    assert len(list(place.glob("broken/checkpoints/*.sgno"))) == 1
    first = []
    resumed = sgno.fit(
        place / "own.npy", **options, out=place / "broken", on_progress=lambda p: first.append(p.update)
    )
    whole = sgno.fit(place / "own.npy", **options)
    assert min(first) > seen[-1] and resumed.record["mean_nrmse"] == whole.record["mean_nrmse"]
    assert not list(place.glob("broken/checkpoints/*"))


# What a newcomer gets wrong: file -> how it is made. Each must end in one line and exit code 2.
U = np.random.default_rng(0).normal(size=(6, 5, 1, 16)).astype(np.float32)


def spoilt(index, value, dtype: type[np.floating] = np.float32):
    changed = U.astype(dtype)
    changed[index] = value
    return changed


def hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def cut(path, write, left: float):
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(left * len(whole))])


def npy(array):
    return lambda path: np.save(path, array)


def broken_zarr(path):
    zarr.create_array(str(path), data=U)
    (path / "zarr.json").write_text("{")


def missing_chunk_codec(path):
    zarr.create_array(str(path), data=U)
    for chunk in (path / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"not a chunk")


def header_lies(path):
    np.save(path, U)
    path.write_bytes(path.read_bytes().replace(b"(6, 5, 1, 16)", b"(9999, 5, 1, 16)", 1))


def object_npz(path):
    np.savez(path, u=np.array([np.zeros(3), np.zeros(4)], dtype=object), allow_pickle=True)


def complex_times(path):
    np.save(path, U.astype(np.complex64))


FILES = {
    "rank one": ("a.npy", npy(U[0, 0, 0]), "has 1 axes"),
    "rank two": ("a.npy", npy(U[0, :, 0]), "has 2 axes"),
    "rank three": ("a.npy", npy(U[0]), '--layout "sample time space"'),
    "rank seven": ("a.npy", npy(U[..., None, None, None]), "leaves 4 for space"),
    "scalar": ("a.npy", npy(np.float32(1)), "has 0 axes"),
    "complex": ("a.npy", complex_times, "complex"),
    "text": ("a.npy", npy(np.full((6, 5, 1, 16), "a")), "trajectories are numbers"),
    "truth values": ("a.npy", npy(U > 0), "trajectories are numbers"),
    "dates": ("a.npy", npy(np.zeros((6, 5, 1, 16), "M8[s]")), "trajectories are numbers"),
    "table": ("a.npy", npy(np.zeros((6, 5, 1, 16), [("a", "f4"), ("b", "f4")])), "trajectories are numbers"),
    "objects": (
        "a.npy",
        lambda p: np.save(p, np.array([None, 1], dtype=object), allow_pickle=True),
        "Python objects",
    ),
    "no samples": ("a.npy", npy(U[:0]), "is empty"),
    "no times": ("a.npy", npy(U[:, :0]), "is empty"),
    "no channels": ("a.npy", npy(U[:, :, :0]), "is empty"),
    "no points": ("a.npy", npy(U[..., :0]), "is empty"),
    "one point": ("a.npy", npy(U[..., :1]), "at least two points"),
    "one time": ("a.npy", npy(U[:, :1]), "from one time to the next"),
    "one sample of two times": ("a.npy", npy(U[:1, :2]), "leave none to train on"),
    "NaN": ("a.npy", npy(spoilt((2, 3, 0, 4), np.nan)), "a NaN in sample 2, step 3"),
    "infinity": ("a.npy", npy(spoilt((2, 3, 0, 4), np.inf)), "an infinity in sample 2, step 3"),
    "minus infinity": ("a.npy", npy(spoilt((1, 0, 0, 4), -np.inf)), "an infinity in sample 1, step 0"),
    "beyond float32": ("a.npy", npy(spoilt((2, 3, 0, 4), 1e300, np.float64)), "beyond the largest float32"),
    "huge": ("a.npy", npy(U * np.float32(1e20)), "whose square leaves float32"),
    "empty file": ("a.npy", lambda p: p.touch(), "not a readable .npy"),
    "only magic": ("a.npy", lambda p: p.write_bytes(b"\x93NUMPY\x01\x00"), "not a readable .npy"),
    "no npy": ("a.npy", lambda p: p.write_text("1, 2, 3"), "not a readable .npy"),
    "truncated": ("a.npy", lambda p: cut(p, npy(U), 0.5), "is truncated"),
    "false header": ("a.npy", header_lies, "is truncated"),
    "header with code": (
        "a.npy",
        lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os').abort()".ljust(31) + b"\n"),
        "not a readable .npy",
    ),
    "a folder": ("a.npy", lambda p: p.mkdir(), "is a folder"),
    "missing": ("a.npy", lambda p: None, "There is no file"),
    "no zip": ("a.npz", lambda p: p.write_bytes(b"PK\x03\x04nothing"), "not a readable .npz"),
    "truncated zip": ("a.npz", lambda p: cut(p, lambda q: np.savez(q, u=U), 0.6), "not a readable .npz"),
    "empty zip": ("a.npz", lambda p: np.savez(p), "holds no array"),
    "several arrays": ("a.npz", lambda p: np.savez(p, v=U, w=U), "--key"),
    "object in zip": ("a.npz", object_npz, "Python objects"),
    "mixed grids": ("a.npz", lambda p: np.savez(p, train=U, test=U[..., :8]), "the same channels and grid"),
    "mixed channels": (
        "a.npz",
        lambda p: np.savez(p, train=U, test=np.repeat(U, 2, axis=2)),
        "the same channels and grid",
    ),
    "test of one time": ("a.npz", lambda p: np.savez(p, train=U, test=U[:, :1]), "at least two times"),
    "truncated HDF5": ("a.h5", lambda p: cut(p, lambda q: hdf5(q, u=U), 0.5), "not a readable HDF5"),
    "no HDF5": ("a.h5", lambda p: p.write_text("no"), "not a readable HDF5"),
    "empty HDF5": ("a.h5", lambda p: hdf5(p), "holds no array"),
    "several in HDF5": ("a.hdf5", lambda p: hdf5(p, v=U, w=U), "--key"),
    "text in HDF5": ("a.h5", lambda p: hdf5(p, u=["a", "b"]), "trajectories are numbers"),
    "old MATLAB": ("a.mat", lambda p: p.write_bytes(b"MATLAB 5.0 MAT-file"), "-v7.3"),
    "damaged zarr": ("a.zarr", broken_zarr, "not a readable zarr"),
    "damaged chunks": ("a.zarr", missing_chunk_codec, "cannot be read at sample"),
    "no zarr": ("a.zarr", lambda p: p.mkdir(), "not a readable zarr"),
    "another format": ("a.csv", lambda p: p.write_text("1,2"), "not of a known format"),
    "pickle": ("a.pkl", lambda p: p.write_bytes(b"\x80\x04."), "not of a known format"),
}
FLAGS = {
    "unknown word": (["--layout", "sample time room channel"], "the word 'room'"),
    "word twice": (["--layout", "sample time time space"], "names 'time' twice"),
    "no time in layout": (["--layout", "sample channel space"], "has no time"),
    "no space in layout": (["--layout", "sample time channel"], "either 'space' or"),
    "y without x": (["--layout", "sample time channel y"], "use 'x', 'x y'"),
    "too many words": (["--layout", "sample time channel x y"], "names 5"),
    "too few words": (["--layout", "time x"], "names 2"),
    "key of an npy": (["--key", "u"], "Leave it out"),
    "unknown model": (["--model", "sgn"], "Did you mean 'sgno'?"),
    "bad string": (["--model", "FNO;a;b"], "does not have the form"),
    "too many modes": (["--model", "FNO;12;18;4;gelu"], "needs at least 24 points"),
    "too many modes of sgno": (["--model", "sgno", "--set", "num_modes=9"], "needs at least 18 points"),
    "unknown setting": (["--set", "depth=3"], "Unknown setting"),
    "no setting": (["--set", "width"], "is not NAME=VALUE"),
    "unroll too long": (["--unroll", "9"], "too short for unroll=9"),
    "negative updates": (["--updates", "-1"], "must be at least 0"),
    "no seeds": (["--seeds", "0"], "at least one seed"),
    "all for testing": (["--test", "6"], "leave none to train on"),
    "negative part": (["--validation", "-0.1"], "is no part of the data"),
    "part and a half": (["--test", "1.5"], "is no part of the data"),
    "unknown units": (["--normalise", "max"], "Unknown normalisation"),
    "nan rate": (["--rate", "nan"], "must be positive"),
    "out is a file": (["--out", "a.npy"], "is a file"),
}


def refused(place: Path, arguments: list[str], message: str) -> None:
    before = sorted(place.rglob("*"))
    done = (
        invoke("fit", *arguments, "--model", TINY)
        if "--model" not in arguments
        else invoke("fit", *arguments)
    )
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert done.stdout == "" and len(lines) <= 2 and lines[-1].startswith("Error: "), done.output
    assert message in lines[-1] and "Traceback" not in done.output
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("case", FILES)
def test_a_malformed_file_is_one_line_and_leaves_nothing(place, case):
    name, write, message = FILES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(place / name)
    refused(place, [name], message)


@pytest.mark.parametrize("case", FLAGS)
def test_a_wrong_flag_is_one_line_and_leaves_nothing(place, case):
    np.save(place / "a.npy", U)
    arguments, message = FLAGS[case]
    refused(place, ["a.npy", *arguments], message)


def test_files_of_different_grids_are_not_joined(place):
    np.save(place / "a.npy", U)
    np.save(place / "b.npy", U[..., :8])
    refused(place, ["a.npy", "b.npy"], "Fit files of one grid")


def test_a_missing_package_says_what_to_install(place, monkeypatch):
    hdf5(place / "a.h5", u=U)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    refused(place, ["a.h5"], "pip install 'sgno[data]'")


def test_parts_are_disjoint_seeded_and_complete(u):
    source = array_source(u)
    parts = Split(0.2, 3, seed=1)(source)
    assert parts.validation is not None
    read = [part.read() for part in parts]  # pyright: ignore[reportOptionalMemberAccess]
    assert [len(part) for part in read] == [7, 2, 3]
    rows = {part[i].tobytes() for part in read for i in range(len(part))}
    assert rows == {trajectory.tobytes() for trajectory in u}
    np.testing.assert_array_equal(Split(0.2, 3, seed=1)(source).test.read(), read[2])
    assert not np.array_equal(Split(0.2, 3, seed=2)(source).test.read(), read[2])
    sample, time = parts.test.origin(1, 3)
    np.testing.assert_array_equal(u[sample, time], read[2][1, 3])
    two = Split()(array_source(u[:2]))
    assert two.validation is None and two.train.shape[0] == two.test.shape[0] == 1


def test_a_single_trajectory_is_cut_in_time(u):
    one = u[:1]
    parts = Split(0.2, 0.3)(array_source(one))
    assert parts.validation is not None
    assert [parts.train.shape[1], parts.validation.shape[1], parts.test.shape[1]] == [7, 3, 4]
    np.testing.assert_array_equal(parts.train.read()[:, -1], parts.validation.read()[:, 0])
    np.testing.assert_array_equal(parts.test.read()[0], one[0, -4:])


def test_moments_and_units(u):
    v = np.concatenate([5 + 3 * u, np.full_like(u, 7)], axis=2)
    moments = survey(array_source(v)).moments
    assert moments.mean[0] == pytest.approx(v[:, :-1, 0].mean(), rel=1e-5)
    assert moments.std[0] == pytest.approx(v[:, :-1, 0].std(), rel=1e-5)
    standard, scale = choose_units("standard", moments), choose_units("scale", moments)
    assert standard is not None and scale is not None and choose_units("none", moments) is None
    made = standard.apply(v)
    assert isinstance(made, np.ndarray) and np.isfinite(made).all()
    assert made[:, :-1, 0].std() == pytest.approx(1, rel=1e-4) and abs(made[:, :, 1]).max() < 1e-6
    assert scale.mean == (0.0, 0.0) and scale.scale[1] == pytest.approx(7)
    streamed = standard.apply(array_source(v))
    assert isinstance(streamed, Source)
    np.testing.assert_array_equal(streamed.read([1], [2, 3]), made[1:2, 2:4])


def said(v, layout=None) -> str:
    return " ".join(survey(array_source(v, layout=layout)).warnings)


def test_warnings_tell_what_usually_goes_wrong(u):
    rng = np.random.default_rng(0)
    x = np.arange(64) / 64
    periodic = np.sin(2 * np.pi * (x + rng.random((8, 12, 1, 1))))
    assert said(u) == ""
    assert "Not periodic along x: the jump" in said(u + np.linspace(0, 5, 32))
    assert "repeats the first" in said(np.concatenate([periodic, periodic[..., :1]], axis=-1))
    walls = np.sin(np.pi * np.arange(65) / 64) * (1 + rng.random((8, 12, 1, 1)))
    assert "kink" in said(walls)
    assert "Channel 1 is constant" in said(np.concatenate([u, np.full_like(u, 7)], axis=2))
    assert "nearly unrelated" in said(rng.normal(size=(8, 12, 1, 64)))
    still = np.repeat(u[:, :1], 12, axis=1)
    assert "too small" in said(still)
    assert "exchanged" in said(np.swapaxes(np.repeat(u, 3, axis=2), 2, 3))
    outlier = u.copy()
    outlier[3, 4, 0, 5] = 1e9
    assert "in sample 3, step 4, where states usually reach" in said(outlier)
    assert "scores lose digits" in said(u * 1e-9)
    # A wave that moves far in one step is no worse to learn than one that does not.
    far = np.sin(2 * np.pi * (x + 0.37 * np.arange(12)[:, None, None] + rng.random((8, 1, 1, 1))))
    assert said(far) == ""


def test_only_the_axis_that_is_not_periodic_is_named(u):
    field = np.sin(2 * np.pi * np.arange(16) / 16)[:, None] * np.linspace(0, 1, 16)
    states = field * np.random.default_rng(0).normal(size=(6, 5, 1, 1, 1))
    assert "along y" in said(states) and "along x" not in said(states)


@pytest.mark.parametrize("name", ["sgno", "sgno-x", "fno", "unet", "cno", "linear"])
@pytest.mark.parametrize("points", [(6,), (20, 12), (8, 8, 4)])
def test_sizes_are_those_that_the_grid_carries(name, points):
    grid, config = Grid(3, points), get_model(name, len(points))
    sized = config.for_grid(grid)
    eqx.filter_eval_shape(lambda: sized.build(grid, key=jax.random.PRNGKey(0)))
    assert config.for_grid(Grid(1, (160,) * len(points))) == config


def test_a_normalised_step_is_the_step_in_other_units(u, tmp_path):
    v = jnp.asarray(u[0, :2])
    grid, config = Grid(1, (32,)), NormalisedConfig(get_model(TINY, 1), [2.0], [3.0])
    step = config.build(grid, key=jax.random.PRNGKey(0))
    expected = 3 * step.step((v[0] - 2) / 3) + 2
    np.testing.assert_allclose(step(v[0]), expected, rtol=1e-6)
    np.testing.assert_allclose(step.prepare().batch(v)[0], expected, rtol=1e-5, atol=1e-6)
    assert config_from_json(json.loads(json.dumps(config.to_json()))) == config
    assert sgno.count_parameters(step) == sgno.count_parameters(step.step)
    save_weights(tmp_path / "w.sgno", step, config, grid, {})
    np.testing.assert_array_equal(load_weights(tmp_path / "w.sgno").step(v[0]), step(v[0]))
    trained = sgno.train(step, u, sgno.TrainConfig(updates=2, warmup=0), key=jax.random.PRNGKey(0))
    assert np.isfinite(trained.losses).all()
    with pytest.raises(InputError, match="positive scales"):
        NormalisedConfig(get_model(TINY, 1), [2.0], [0.0])
    with pytest.raises(InputError, match="2 channels"):
        config.build(Grid(2, (32,)), key=jax.random.PRNGKey(0))


def test_a_task_is_its_content_wherever_the_file_is(place, u):
    np.save(place / "a.npy", u)
    (place / "there").mkdir()
    hdf5(place / "there/b.h5", u=u.transpose(0, 1, 3, 2))
    one = plan_fit(open_files(["a.npy"]), "a.npy", TINY, files=["a.npy"])
    layout = "sample time space channel"
    two = plan_fit(open_files(["there/b.h5"], layout=layout), "b", TINY, layout=layout)
    assert one.job(0).id == two.job(0).id != one.job(1).id
    assert OwnTask.from_json(json.loads(json.dumps(one.task.to_json()))) == one.task
    assert load_own(one.task).id == one.load().id
    np.save(place / "a.npy", 2 * u)
    with pytest.raises(InputError, match="changed since"):
        load_own(one.task)


def test_a_large_source_is_read_in_part_alone(place, monkeypatch):
    """Everything before training reads a bounded part of 8 GB, most of it a hole in the file."""
    shape = (100, 200, 1, 320, 320)
    np.lib.format.open_memmap(place / "u.npy", "w+", np.float32, shape)[:, ::50, 0, 5] = 1
    sources = open_files(["u.npy"])
    read, whole = [], type(sources.source).read
    monkeypatch.setattr(type(sources.source), "read", lambda *a: read.append(b := whole(*a)) or b)
    task = describe(sources, "u", Split())
    assert task.streamed and task.num_train_samples == 80
    data = load_own(task, sources)
    assert data.train.shape == (80, *shape[1:]) and data.test.nbytes < 2**28
    assert start_part(data.train).nbytes < 2**27
    assert sum(part.nbytes for part in read) < 10**9
