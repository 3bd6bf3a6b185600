"""The registry: entries with fields, settings from Python and from text, and models of a user's own."""

import dataclasses
import json
import subprocess
import sys
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

import sgno
from sgno.cli.catalogue import GRIDS, PARAMETERS
from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.normalised import NormalisedConfig
from sgno.nn.sgno import SGNOConfig
from sgno.registry import MODELS, config_from_json, describe, get_model, model_names, with_settings


def test_reading_the_registry_imports_nothing_heavy():
    code = "import sys, sgno.registry; print(sorted({'jax', 'equinox', 'apebench'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_entry_builds_its_config_and_back(name):
    entry = MODELS[name]
    assert entry.name == name and entry.family in MODELS
    for d in entry.settings:
        config = entry.config(d)
        assert config.kind == entry.kind
        assert config_from_json(json.loads(json.dumps(config.to_json()))) == config
    with pytest.raises(InputError, match="has settings for 1, 2, 3 dimensions, not for 4"):
        get_model(name, 4)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_listed_parameters_are_those_of_the_models(name):
    for d, points in GRIDS.items():
        config = get_model(name, d)
        step = eqx.filter_eval_shape(config.build, Grid(1, points), key=jax.random.PRNGKey(0))
        assert sgno.count_parameters(step) == PARAMETERS[name][d - 1]


def test_roles_and_families_are_fields():
    assert model_names("ablation", "sgno") == (
        "sgno-unconstrained",
        "sgno-residual",
        "sgno-pointwise",
        "sgno-nocorrection",
    )
    assert {"sgno-x-real", "sgno-x-untrapped"} < set(model_names("ablation", "sgno-x"))
    assert describe("sgno-x-start").role == "recipe" and describe("linear").role == "baseline"
    # Names of runs that are not in the table: changed settings, and an ablation of version 0.1.
    assert describe("sgno-x-latent").role == "ablation"
    assert describe("sgno-x-start-s4").family == "sgno-x" and describe("sgno-x-start-s4").role == "ablation"
    assert describe("MoRes;26;8;relu").role == "network" == describe("conv-wide").role


@pytest.mark.parametrize(
    ("model", "settings", "expected"),
    [
        ("sgno", {"width": "8"}, {"width": 8}),
        ("sgno", {"width": 8, "correction": "none"}, {"width": 8, "correction": "none"}),
        ("sgno-x", {"cutoff": (10,)}, {"cutoff": (10,)}),
        ("sgno-x", {"cutoff": "[10]", "forcing": "None"}, {"cutoff": (10,), "forcing": None}),
        ("sgno-x", {"terms": [["0", "0:d0"]]}, {"terms": (("0", "0:d0"),)}),
        ("sgno-x", {"trapping": "false", "stages": "4"}, {"trapping": False, "stages": 4}),
        ("linear", {"ridge": 0}, {"ridge": 0.0}),
        ("fno", {"network": "FNO;4;4;1;gelu"}, {"network": "FNO;4;4;1;gelu"}),
    ],
)
def test_settings_come_as_values_or_as_text(model, settings, expected):
    config = with_settings(get_model(model, 1), settings)
    for name, value in expected.items():
        assert getattr(config, name) == value and type(getattr(config, name)) is type(value)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("sgno", {"widht": "8"}, "Unknown setting of sgno 'widht'. Did you mean 'width'?"),
        ("sgno", {"width": "eight"}, "The setting width of sgno is 'eight', but int was expected."),
        ("sgno", {"width": 8.5}, "The setting width of sgno is 8.5, but int was expected."),
        ("sgno", {"width": True}, "The setting width of sgno is True, but int was expected."),
        ("sgno", {"update": "euler"}, "but one of etd, residual, pointwise was expected"),
        ("linear", {"ridge": "nan"}, "The setting ridge of linear is 'nan', but float was expected."),
        ("sgno-x", {"cutoff": "[1"}, "cutoff of sgno-x is '[1', but Sequence[int] or none was expected."),
    ],
)
def test_a_wrong_setting_says_what_came_and_what_was_expected(model, settings, message):
    with pytest.raises(InputError) as raised:
        with_settings(get_model(model, 1), settings)
    assert message in str(raised.value)


def test_settings_around_settings_are_decoded_and_bounded():
    config = NormalisedConfig(SGNOConfig(4, 4, 1), (0.5,), (2.0,))
    assert config_from_json(json.loads(json.dumps(config.to_json()))) == config
    content = config.to_json()
    with pytest.raises(InputError, match="cannot hold another normalised model"):
        config_from_json({**content, "model": content})
    for _ in range(5000):
        content = {**config.to_json(), "model": content}
    with pytest.raises(InputError, match="nested too deeply"):
        config_from_json(content)
    with pytest.raises(InputError, match="at most 4096 is read"):
        config_from_json({**SGNOConfig(4, 4, 1).to_json(), "width": 10**9})


class Damped(eqx.Module):
    """`u+ = rate u`, with one rate for each channel."""

    rate: jax.Array
    config: "DampedConfig" = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __call__(self, u):
        return self.rate.reshape(-1, *(1,) * (u.ndim - 1)) * u


@dataclasses.dataclass(frozen=True)
class DampedConfig(ModelConfig):
    """Every channel decays at a rate of its own."""

    kind: ClassVar[str] = "damped"
    start: float = 0.5

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> Damped:
        del key
        return Damped(jnp.full(grid.channels, self.start), self, grid)


@pytest.fixture
def registered(monkeypatch):
    from sgno import registry

    monkeypatch.setattr(registry, "MODELS", dict(MODELS))
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    return sgno.register_model(DampedConfig)


def test_a_model_of_a_user_saves_loads_and_is_known_by_name(registered, tmp_path):
    assert registered is DampedConfig and sgno.register_model(DampedConfig) is DampedConfig
    step = with_settings(get_model("damped", 2), {"start": "0.25"}).build(
        Grid(2, (8, 8)), key=jax.random.key(0)
    )
    sgno.save(tmp_path / "d.safetensors", step)
    loaded = sgno.load(tmp_path / "d.safetensors")
    assert eqx.tree_equal(loaded, step) and loaded.config == DampedConfig(0.25) and loaded.grid == step.grid


def test_a_model_of_a_user_is_fitted_by_name_and_by_config(registered, tmp_path):
    u = np.random.default_rng(0).normal(size=(6, 1, 1, 16)) * 0.9 ** np.arange(8).reshape(1, -1, 1, 1)
    by_name = sgno.fit(u.astype(np.float32), "damped", settings={"start": 0.8}, updates=3, normalise="none")
    by_config = sgno.fit(u.astype(np.float32), DampedConfig(0.8), updates=3, normalise="none")
    assert eqx.tree_equal(by_name.step, by_config.step) and by_name.step.config == DampedConfig(0.8)


def test_what_cannot_be_registered_is_refused(registered):
    @dataclasses.dataclass(frozen=True)
    class Sgno(DampedConfig):
        kind: ClassVar[str] = "sgno"

    with pytest.raises(InputError, match=r"'sgno' of .*Sgno is taken by sgno\.nn\.sgno:SGNOConfig"):
        sgno.register_model(Sgno)
    with pytest.raises(InputError, match="give a frozen dataclass that derives from"):
        sgno.register_model(Damped)  # pyright: ignore[reportArgumentType]
