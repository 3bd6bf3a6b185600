"""SGNO and SGNO-X in APEBench's own experiments, run by APEBench's own trainer."""

import apebench
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from apebench_tiny import TINY

import sgno
from sgno.errors import InputError

# APEBench and what it stands on warn of their own futures; the numbers are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def registered():
    assert sgno.register_apebench() == sgno.register_apebench()


def test_the_trainer_of_apebench_trains_it():
    """One update, since each of the first three compiles; whole studies of both models are in validation."""
    settings = {key: value for key, value in TINY.items() if key not in ("scenario", "task", "train")}
    settings["optim_config"] = "adam;1;constant;0.01"
    scenario = apebench.scenarios.scenario_dict["diff_adv"](**settings)
    network = eqx.filter_jit(scenario.get_network)("SGNO;3;4;1;gelu", jax.random.PRNGKey(3))
    assert isinstance(network, sgno.SGNO)
    trained, losses, _ = scenario.get_trainer(train_config="one")(
        network, jax.random.PRNGKey(0), record_loss_every=1
    )
    assert losses.shape == (1,) and jnp.isfinite(losses).all()
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), network, trained)
    assert all(jax.tree.leaves(moved))


def test_networks_have_the_right_shapes_and_sizes():
    scenario = apebench.scenarios.scenario_dict["diff_ks"]()
    shapes = lambda name: eqx.filter_eval_shape(scenario.get_network, name, jax.random.PRNGKey(0))
    network = shapes("SGNO;11;26;7;gelu")
    assert sgno.count_parameters(network) == (30_573, 52_595)
    # APEBench hands every array to the optimiser, so there may be none without a gradient.
    network = shapes("SGNOX;4;2;identity")
    leaves = [leaf for leaf in jax.tree.leaves(network) if hasattr(leaf, "dtype")]
    assert leaves and all(leaf.dtype == jnp.float32 for leaf in leaves)
    assert network.settings.inner_steps == 2 and network.settings.max_terms == 4
    out = eqx.filter_eval_shape(lambda n, u: n(u), network, jax.ShapeDtypeStruct((1, 160), jnp.float32))
    assert out.shape == (1, 160)


@pytest.mark.parametrize(
    "network",
    ["SGNO;11;26;gelu", "SGNO;11;26;7;relu", "SGNO;a;26;7;gelu", "SGNO;0;26;7;gelu", "SGNOX;4;1;gelu"],
)
def test_a_malformed_string_says_the_form(network):
    scenario = apebench.scenarios.scenario_dict["diff_ks"]()
    with pytest.raises(InputError, match=r"does not have the form SGNOX?;[A-Z_;]*;(gelu|identity)"):
        scenario.get_network(network, jax.random.PRNGKey(0))
