"""`auto`: the best of several models by held-out forecasts, within a time, and never silent."""

import json
import time

import numpy as np
import pytest
from own_data import TINY, burgers, invoke

import sgno
from sgno.errors import InputError
from sgno.io.split import Split
from sgno.lab import auto
from sgno.lab.auto import Search, Tried
from sgno.lab.data.own import divide, open_data
from sgno.lab.fit import plan_fit
from sgno.lab.store import Store


@pytest.fixture(scope="module")
def divided():
    return divide(open_data(burgers(8, 9, n=16)), Split())


@pytest.fixture
def search(tmp_path, divided, monkeypatch):
    """A search whose jobs are not run, but answered by a dictionary of errors."""
    monkeypatch.setattr(auto, "CANDIDATES", ("persistence", "linear", "sgno-x-start", "cno"))

    def make(errors, **options):
        calls = []

        def run(job):
            calls.append(job.model_name)
            error = errors[job.model_name]
            if isinstance(error, BaseException):
                raise error
            if callable(error):
                error()
            (store.job(job.id)).mkdir(parents=True, exist_ok=True)
            (store.job(job.id) / "record.json").write_text("{}")
            return {"validation": {"gmean100": error}}

        store = Store(tmp_path)
        make_job = lambda name, changed: plan_fit(divided, name, training={"updates": 300, **changed}).job(0)
        found = Search(make_job, {"data": 1}, store, updates=300, **options)
        return found, (divided.load(), run), calls

    return make


def outcomes(found: auto.Auto) -> list[str]:
    return [row.outcome for row in found.tried]


def test_the_best_forecaster_is_chosen_and_the_search_is_remembered(search):
    errors = {"persistence": 0.9, "linear": 0.5, "sgno-x-start": None, "cno": 0.1}
    first, with_data, calls = search(errors)
    found = first.choose(*with_data)
    assert found.chosen == "cno" and outcomes(found) == ["tried"] * 4 and found.best.updates == 300
    again, _, _ = search({})
    assert again.found == found and calls == list(errors)
    json.dumps(found.to_json(), allow_nan=False)


def test_nothing_beats_persistence(search):
    errors = {"persistence": 0.1, "linear": 0.5, "sgno-x-start": None, "cno": 0.1}
    made, with_data, _ = search(errors)
    assert made.choose(*with_data).chosen == "persistence"


def test_a_search_ends_where_nothing_is_left_to_gain(search):
    made, with_data, calls = search({"persistence": 0.9, "linear": 1e-6})
    found = made.choose(*with_data)
    assert found.stopped == "floor" and outcomes(found)[2:] == ["needless"] * 2 and len(calls) == 2


def test_networks_are_not_trained_where_they_never_come(search):
    made, with_data, _ = search({"persistence": 0.9, "linear": 0.5, "sgno-x-start": 1e-4})
    found = made.choose(*with_data)
    assert found.chosen == "sgno-x-start" and outcomes(found)[3] == "needless"


def test_an_interrupted_search_goes_on_where_it_stopped(search):
    errors = {"persistence": 0.9, "linear": 0.5, "sgno-x-start": 0.3, "cno": KeyboardInterrupt()}
    made, with_data, _ = search(errors)
    with pytest.raises(KeyboardInterrupt):
        made.choose(*with_data)
    assert made.rows["cno"] == Tried("cno", "running", updates=300)
    made, with_data, calls = search({"cno": 0.2})
    assert made.choose(*with_data).chosen == "cno" and calls == ["cno"]


def test_a_candidate_that_cannot_take_the_data_or_is_too_slow_gets_a_line(search):
    slow = lambda: time.sleep(60)
    errors = {"persistence": 0.9, "linear": InputError("No such data."), "sgno-x-start": slow, "cno": 0.1}
    made, with_data, _ = search(errors, minutes=5 / 60)
    began = time.monotonic()
    found = made.choose(*with_data)
    assert time.monotonic() - began < 40 and found.chosen in ("persistence", "cno")
    # Half of the time was left for the last one, unless the machine is very slow.
    assert outcomes(found)[:3] == ["tried", "refused", "out of time"]
    assert found.tried[1].reason == "No such data." and found.tried[2].reason


def test_a_candidate_that_fails_does_not_end_the_search(search, caplog):
    broken = np.linalg.LinAlgError("SVD did not converge")
    made, with_data, _ = search({"persistence": 0.9, "linear": broken, "sgno-x-start": 0.3, "cno": 0.5})
    found = made.choose(*with_data)
    assert found.chosen == "sgno-x-start" and outcomes(found)[1] == "failed" and "SVD" in caplog.text
    assert "Traceback" in next(made.store.failures())["traceback"]


def test_the_noise_of_the_data_is_seen():
    rng = np.random.default_rng(0)
    clean = burgers(8, 12, n=64)
    assert auto._relative_noise(clean) == 0
    noisy = clean + (0.05 * clean.std() * rng.standard_normal(clean.shape)).astype(np.float32)
    assert auto._relative_noise(noisy) == pytest.approx(0.05, rel=0.15)


def test_by_command_and_in_python(tmp_path, monkeypatch, cache):
    """Real jobs: a travelling wave, for which Linear is exact."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(auto, "CANDIDATES", ("persistence", "linear", TINY))
    rng, x = np.random.default_rng(0), 2 * np.pi * np.arange(16) / 16
    a, p = rng.uniform(0.5, 1, (12, 1, 3, 1)), rng.uniform(0, 7, (12, 1, 3, 1))
    moved = x - 0.15 * np.arange(13)[:, None, None]
    u = (a * np.cos(np.arange(1, 4)[:, None] * moved + p)).sum(2)[:, :, None].astype(np.float32)
    np.save("own.npy", u)
    done = invoke("fit", "own.npy", "--validation", 5, "--test", 4, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["model"] == "linear" and found["auto"]["stopped"] == "floor"
    assert found["horizon"]["steps"] == 12 and found["horizon"]["trajectories"] == 9
    for said in ("nothing is left to gain", "at least 12 steps", "Chosen: linear"):
        assert said in done.output
    again = invoke("fit", "own.npy", "--validation", 5, "--test", 4, "--json", "--level", 1e-9)
    assert json.loads(again.stdout.splitlines()[-1])["horizon"]["steps"] == 0

    assert "LinearConfig" in str(sgno.load("runs").config)

    fitted = sgno.fit(u, validation=5, test=4)
    assert [row.model for row in fitted.tried] == ["persistence", "linear", TINY]
    assert fitted.record["auto"]["chosen"] == "linear" and "Chosen: linear" in fitted.summary
    assert fitted.horizon.steps == 12 and fitted.horizon.probability == 0.9
    assert sgno.evaluate(fitted.step, u).gmean100 < 1e-5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--minutes", 0], "minutes=0 is no time"),
        (["--minutes", 3, "--model", "linear"], "--minutes 3 is for --model auto"),
        (["--set", "width=8"], "width is a setting of one model"),
        (["--validation", 0], "Models are compared on a validation part"),
        (["--level", 0], "An error of 0 means nothing"),
        (["--probability", 1], "A probability of 1.0 cannot be claimed"),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(tmp_path, monkeypatch, cache, options, said):
    monkeypatch.chdir(tmp_path)
    np.save("own.npy", np.zeros((8, 9, 1, 16), np.float32) + np.arange(9, dtype=np.float32)[:, None, None])
    done = invoke("fit", "own.npy", *options)
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert not (tmp_path / "runs").exists()
