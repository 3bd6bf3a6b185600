"""A user's own trajectories fitted by every road there is."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from own_data import TINY, burgers, fitted, hdf5, invoke

import sgno
from sgno.errors import InputError
from sgno.io.split import Split, excerpt
from sgno.lab.data.own import OwnTask, divide, load_data, open_data
from sgno.lab.fit import plan_fit
from sgno.nn.normalised import Normalised
from sgno.weights import flatten, load


@pytest.fixture(scope="module")
def u() -> np.ndarray:
    return burgers(12, 12)


@pytest.fixture
def place(tmp_path, monkeypatch, cache) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_sgno_x_learns_a_users_equation_and_its_weights_speak_the_users_units(place, u):
    """Values a thousand times as large, a missing channel axis, and the test part apart."""
    scaled = 1000 * u[:, :, 0]
    np.savez(place / "own.npz", train=scaled[:10], test=scaled[10:])
    command = ["own.npz", "--model", "sgno-x", "--layout", "sample time space", "--updates", 0]
    command += ["--set", "degree=2"]
    found = fitted(*command)
    assert found["gmean100"] < 2e-3 and found["warnings"] == [] and found["validation_gmean100"] is not None
    trained = load(Path(found["weights"][0]))
    assert isinstance(trained, Normalised) and trained.mean == (0.0,)
    scored = sgno.evaluate(trained, scaled[10:, :, None])
    # The score is made of rounding errors of float32, which differ between two programs. Weights that spoke
    # other units would be off by a factor of a thousand.
    assert scored.gmean100 == pytest.approx(found["gmean100"], rel=1e-2)
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
    trained = load(Path(found["weights"][0]))
    one, two = flatten(step), flatten(trained)
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
    assert len(list(place.glob("broken/checkpoints/*.safetensors"))) == 1
    first = []
    resumed = sgno.fit(
        place / "own.npy", **options, out=place / "broken", on_progress=lambda p: first.append(p.update)
    )
    whole = sgno.fit(place / "own.npy", **options)
    assert min(first) > seen[-1] and resumed.record["mean_nrmse"] == whole.record["mean_nrmse"]
    assert not list(place.glob("broken/checkpoints/*"))


def test_a_task_is_its_content_wherever_the_file_is(place, u):
    np.save(place / "a.npy", u)
    (place / "there").mkdir()
    hdf5(place / "there/b.h5", u=u.transpose(0, 1, 3, 2))
    one = plan_fit(open_data("a.npy"), TINY)
    layout = "sample time space channel"
    two = plan_fit(open_data(place / "there/b.h5", layout=layout), TINY)
    assert one.job(0).id == two.job(0).id != one.job(1).id
    assert OwnTask.from_json(json.loads(json.dumps(one.task.to_json()))) == one.task
    assert load_data(one.task).id == one.data.load().id
    np.save(place / "a.npy", 2 * u)
    with pytest.raises(InputError, match="changed since"):
        load_data(one.task)


def test_a_large_source_is_read_in_part_alone(place, monkeypatch):
    """Everything before training reads a bounded part of 8 GB, most of it a hole in the file."""
    shape = (100, 200, 1, 320, 320)
    np.lib.format.open_memmap(place / "u.npy", "w+", np.float32, shape)[:, ::50, 0, 5] = 1
    sources = open_data(["u.npy"])
    read, whole = [], type(sources.source).read
    monkeypatch.setattr(type(sources.source), "read", lambda *a: read.append(b := whole(*a)) or b)
    divided = divide(sources, Split())
    task = divided.task
    assert task.streamed and task.num_train_samples == 80
    data = divided.load()
    assert data.train.shape == (80, *shape[1:]) and data.test.nbytes < 2**28
    assert excerpt(data.train).nbytes < 2**27
    assert sum(part.nbytes for part in read) < 10**9
