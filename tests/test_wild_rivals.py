"""The rivals find what they should on easy data, choose by held-out data, and say what they cannot do."""

import dataclasses
import json

import numpy as np
import pytest

pytest.importorskip("pysindy")
pytest.importorskip("pydmd")
pytest.importorskip("opinf")

from sgno.errors import InputError
from sgno.lab import wild
from sgno.lab.wild import rivals, sindy
from sgno.lab.wild.__main__ import main, run_row
from sgno.lab.wild.periodic import Burgers, VaryingDiffusion
from sgno.lab.wild.score import errors, gmean_of, stable_of
from sgno.lab.wild.sindy import Feature, Found
from sgno.lab.wild.walls import WalledHeat

pytestmark = pytest.mark.filterwarnings("ignore")


def problem_of(system, samples=8, steps=30, seed=0):
    solution = system.solve(np.random.default_rng(seed), samples, steps)
    return rivals.Problem(system, solution.states, system.dt, solution.inputs)


@pytest.fixture(scope="module")
def burgers():
    return problem_of(Burgers(viscosity=0.15, modes=2))


def test_scores_are_those_of_the_paper():
    truth = np.ones((2, 3, 1, 4))
    wrong = errors(truth * np.array([1.1, 1.2, 1.4]).reshape(1, 3, 1, 1), truth)
    assert wrong.shape == (3, 2)
    assert gmean_of(wrong) == pytest.approx((0.1 * 0.2 * 0.4) ** (1 / 3))
    assert stable_of(errors(truth * np.array([1.1, 1.15, 1.4]).reshape(1, 3, 1, 1), truth)) == 2
    assert not np.isfinite(gmean_of(errors(np.full_like(truth, np.inf), truth)))


def test_names_of_features_are_read():
    assert Feature.parse("1", 2) == Feature((0, 0))
    assert Feature.parse("a^2 b", 2) == Feature((2, 1))
    assert Feature.parse("b_11", 2) == Feature((0, 0), (1, 2))
    assert Feature.parse("a ba_1", 2) == Feature((1, 1), (0, 1))
    assert Feature.parse("a^2b_111", 2).text(("u", "v")) == "u^2 v_xxx"


def test_the_solver_of_identified_equations_reproduces_the_data():
    # Smooth enough to be resolved by 64 points.
    smooth = problem_of(Burgers(viscosity=0.3, modes=2))
    features = (Feature((1,), (0, 1)), Feature((0,), (0, 2)))
    found = Found(smooth.system, ("u",), features, np.array([[-1.0, 0.3]]))
    assert str(found) == "u_t = -1 u u_x +0.3 u_xx"
    assert smooth.judge(found.forecast()) < 1e-6


def test_identified_equations_with_inputs_and_walls_are_simulated():
    forced = problem_of(Burgers(force="f", viscosity=0.2), samples=2, steps=5)
    features = (Feature((1, 0), (0, 1)), Feature((0, 0), (0, 2)), Feature((0, 1)))
    found = Found(forced.system, ("u", "f"), features, np.array([[-1.0, 0.2, 1.0]]))
    assert forced.judge(found.forecast()) < 1e-4
    heat = problem_of(WalledHeat(diffusivity=0.02), samples=2, steps=5)
    found = Found(heat.system, ("u",), (Feature((0,), (0, 2)),), np.array([[0.02]]))
    assert heat.judge(found.forecast()) < 1e-5


def test_an_equation_that_blows_up_is_judged_infinite(burgers):
    found = Found(burgers.system, ("u",), (Feature((0,), (0, 2)),), np.array([[-5.0]]))
    assert burgers.judge(found.forecast()) == np.inf


def test_pysindy_finds_burgers(burgers, monkeypatch):
    monkeypatch.setattr(sindy, "LIBRARIES", ((2, 2),))
    forecast, chosen = sindy.pde(burgers)
    assert burgers.judge(forecast) < 5e-3
    assert "u_xx" in chosen["equation"] and "u u_x" in chosen["equation"]


def test_the_weak_form_finds_burgers_in_noise(burgers, monkeypatch):
    monkeypatch.setattr(sindy, "LIBRARIES", ((2, 2),))
    noise = 0.02 * np.random.default_rng(1).standard_normal(burgers.train.shape)
    forecast, chosen = sindy.weak(dataclasses.replace(burgers, train=burgers.train + noise))
    assert burgers.judge(forecast) < 0.1
    assert "u u_x" in chosen["equation"]


def test_dmd_finds_any_linear_equation():
    problem = problem_of(VaryingDiffusion(), samples=20, steps=20)
    forecast, _ = rivals.exact_dmd(problem)
    unseen = problem_of(VaryingDiffusion(), samples=3, steps=40, seed=5)
    assert unseen.judge(forecast) < 1e-3
    # The eigenvalues give any other time step.
    half = problem_of(VaryingDiffusion(dt=0.025), samples=3, steps=40, seed=5)
    assert half.judge(forecast) < 1e-3


def test_operator_inference_is_better_than_no_model(burgers):
    forecast, chosen = rivals.operator_inference(problem_of(burgers.system, samples=24))
    still, _ = rivals.persistence(burgers)
    unseen = problem_of(burgers.system, seed=3)
    assert unseen.judge(forecast) < 0.2 * unseen.judge(still)
    assert chosen["tried"] == 18


def test_linear_is_refused_another_time_step():
    problem = problem_of(VaryingDiffusion(), samples=4, steps=10)
    forecast, _ = rivals.linear(problem)
    assert problem.judge(forecast) < 0.3
    with pytest.raises(InputError, match=r"runs at dt = 0\.05 only, but 0\.1 was asked"):
        forecast(problem.train[:, 0], 2, 0.1, {})


def test_held_out_parts_do_not_overlap():
    problem = problem_of(Burgers(force="c"), samples=5, steps=9)
    part, rest = problem.held_out()
    assert len(part.train) == 4 and len(rest.train) == 1 and len(rest.inputs["c"]) == 1
    one = problem.select(slice(0, 1), slice(None))
    part, rest = one.held_out()
    assert part.train.shape[1] + rest.train.shape[1] == one.train.shape[1]
    assert rest.inputs["c"].shape == (1, rest.train.shape[1])


def test_a_table_is_resumed(tmp_path, monkeypatch, capsys):
    task = dataclasses.replace(
        wild.get("burgers-half-dt"), train_samples=3, train_steps=5, test_samples=2, test_steps=5
    )
    monkeypatch.setenv("SGNO_CACHE", str(tmp_path))
    monkeypatch.setitem(wild.WILD, task.name, task)
    table = tmp_path / "table.json"
    arguments = ["wild", str(table), "--rows", task.name, "--models", "persistence,linear"]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    first = json.loads(table.read_text())
    assert [record["rival"] for record in first["records"]] == ["persistence", "linear"]
    assert "only, but 0.025 was asked" in first["records"][1]["refused"]
    assert "pysindy" in first["versions"]
    capsys.readouterr()
    main()
    assert capsys.readouterr().out == "" and json.loads(table.read_text()) == first
    with pytest.raises(InputError, match="Unknown rival 'dmd'"):
        run_row(task, "dmd")
