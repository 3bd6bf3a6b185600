"""`sgno explain`: what an SGNO-X learned, read back from weights and held against the equation."""

import json

import numpy as np
import pytest
from matplotlib.axes import Axes
from typer.testing import CliRunner

from sgno.cli.app import app
from sgno.lab.data.scenario import true_symbol
from sgno.lab.report.figures.one_model import explain_figure
from sgno.lab.tasks import get_task
from sgno.lab.zoo import find
from sgno.nn.normalised import Normalised
from sgno.weights import load, save

TASKS = {"adv1d": "along x", "ks1d": "d(u)/dx * d(u)/dx"}


def explained(*arguments: str) -> dict:
    result = CliRunner().invoke(app, ["explain", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Smooth states: what terms are weighed by need not be the training data."""
    x = 2 * np.pi * np.arange(160) / 160
    shift = np.linspace(0, 6, 4)[:, None, None, None]
    path = tmp_path_factory.mktemp("explain") / "u.npy"
    np.save(path, (np.sin(x + shift) + 0.5 * np.cos(3 * x - shift)).astype(np.float32))
    return path


@pytest.mark.parametrize("task", TASKS)
def test_a_shipped_step_is_explained_in_words(task, states, tmp_path):
    found = explained(f"{task}/sgno-x", "--data", str(states), "--out", str(tmp_path))
    assert TASKS[task] in found["text"]
    assert {p.name for p in tmp_path.iterdir()} == {"explain.png", "explain.svg", "explain.json"}
    assert found["rms_bound"][0] > 0


@pytest.mark.parametrize(
    ("task", "symbol"),
    [
        # u_t = -c u_x by gamma_1 = -4: a phase of -4 (2 pi k / N) a step, and no damping.
        ("adv1d", lambda k: -4j * 2 * np.pi * k / 160),
        # u_t = nu u_xx by gamma_2 = 4: damping 4 (2 pi k / N)² / 2 a step.
        ("diff1d", lambda k: -4 * (2 * np.pi * k / 160) ** 2 / 2),
    ],
)
def test_the_equations_own_symbol(task, symbol):
    k = np.arange(20)
    assert np.allclose(true_symbol(get_task(task))[0, :20], symbol(k), atol=1e-5)


def test_adv1d_learned_the_equations_phase(states):
    found = explained("adv1d/sgno-x", "--data", str(states))
    (curve,) = found["curves"]
    known = [k for k, data in zip(curve["wavenumber"], curve["known"], strict=True) if data and k]
    truth = np.imag(true_symbol(get_task("adv1d"))[0])
    assert np.allclose(np.array(curve["dispersion"])[known], truth[known], atol=1e-5)


def test_other_models_and_missing_data_are_refused(tmp_path, states):
    for arguments, words in (
        (["ks1d/sgno", "--data", str(states)], "only SGNO-X"),
        (["ks1d/sgno-x", "--data", str(tmp_path / "no.npy")], "no.npy"),
        (["ks2d/sgno-x"], "neither a file"),
    ):
        result = CliRunner().invoke(app, ["explain", *arguments])
        assert result.exit_code == 2 and words in result.output.replace("\n", " ")


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_forcing_and_several_channels_are_drawn(dims):
    curve = {
        "axis": 0,
        "wavenumber": [0, 1, 2],
        "damping": [0, 1, 2],
        "dispersion": [0, 1, 2],
        "growth": [0] * 3,
    }
    figure = explain_figure(
        {
            "channels": 2,
            "curves": [{**curve, "channel": c, "known": [False, True, True]} for c in (0, 1)],
            "terms": [{"channel": 0, "product": "u0 * u1", "strength": 0.5}],
            "forcing": np.ones((2, *(8,) * dims)).tolist(),
        },
        "two channels",
    )
    titles = [axes.get_title() for axes in figure.findobj(Axes)]
    assert "static forcing a step" in titles


def test_a_step_in_units_of_its_own_is_explained_in_them(states, tmp_path):
    wrapped = Normalised(load(find("ks1d/sgno-x")), (0.0,), (10.0,))
    save(tmp_path / "w.safetensors", wrapped)
    np.save(tmp_path / "u.npy", 10 * np.load(states))
    found = explained(str(tmp_path / "w.safetensors"), "--data", str(tmp_path / "u.npy"))
    plain = explained("ks1d/sgno-x", "--data", str(states))
    assert found["terms"][0]["strength"] == pytest.approx(plain["terms"][0]["strength"], rel=1e-5)
