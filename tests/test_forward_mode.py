"""Forward mode through every model of the registry, against finite differences in float64."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgno.grid import Grid
from sgno.lab.presets import PRESETS
from sgno.nn.normalised import Normalised
from sgno.registry import MODELS, get_model
from sgno.step import batch

STEP = 1e-6


def tiny(name: str):
    """A model of the registry in the sizes of the preset that tries everything, in float64."""
    config = dataclasses.replace(get_model(name, 1), **PRESETS["smoke"].settings.get(name, {}))
    step = config.build(Grid(1, (16,)), key=jax.random.PRNGKey(0))
    return jax.tree.map(lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, step)


@pytest.mark.parametrize("name", [*sorted(MODELS), "normalised"])
def test_jvp_is_the_directional_derivative(name):
    with jax.enable_x64(True):
        step = Normalised(tiny("sgno"), (0.5,), (2.0,)) if name == "normalised" else tiny(name)
        weights, static = eqx.partition(step, eqx.is_inexact_array)
        rng = np.random.default_rng(0)
        u = jnp.asarray(rng.normal(size=(2, 1, 16)))
        # Away from what a start sets to zero, and in a direction that changes every weight and the state.
        weights = jax.tree.map(lambda w: w + 1e-2 * rng.normal(size=w.shape), weights)
        tangents = jax.tree.map(lambda w: jnp.asarray(rng.normal(size=w.shape)), (weights, u))

        def advance(weights, u):
            step = eqx.combine(weights, static)
            return step(u[0]), batch(step, u)

        @jax.jit
        def both(weights, u, tangents):
            moved = lambda h: jax.tree.map(lambda x, t: x + h * t, (weights, u), tangents)
            # A loop, so that the model is compiled once for both sides.
            sides = jax.lax.map(lambda h: advance(*moved(h)), jnp.asarray([STEP, -STEP]))
            differences = jax.tree.map(lambda side: (side[0] - side[1]) / (2 * STEP), sides)
            return jax.jvp(advance, (weights, u), tangents)[1], differences

        for found, expected in zip(*both(weights, u, tangents), strict=True):
            assert float(jnp.abs(expected).max()) > 0
            np.testing.assert_allclose(found, expected, atol=1e-5 * float(jnp.abs(expected).max()))
