"""SGNO and SGNO-X inside APEBench: as `network_config` strings of its own experiments and studies.

SGNO;WIDTH;MODES;BLOCKS;gelu            for example SGNO;11;26;7;gelu, the paper's in 1D
SGNOX;TERMS;INNER_STEPS;identity        for example SGNOX;4;1;identity
"""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.errors import InputError, require
from sgno.grid import Grid
from sgno.nn.sgno import SGNO, SGNOConfig
from sgno.sgno_x import SGNOX, SGNOXConfig

_FORMS = {
    "sgno": ("SGNO", ("WIDTH", "MODES", "BLOCKS"), "gelu"),
    "sgnox": ("SGNOX", ("TERMS", "INNER_STEPS"), "identity"),
}


def register_apebench() -> tuple[str, ...]:
    """Make SGNO and SGNO-X known to APEBench, so that its own trainer and scores run them:

        sgno.register_apebench()
        apebench.run_experiment(scenario="diff_ks", task="predict", net="SGNO;11;26;7;gelu",
                                train="one", start_seed=0, num_seeds=1)

    - `SGNO;WIDTH;MODES;BLOCKS;gelu`: the paper's network; its activation is the exact GELU.
    - `SGNOX;TERMS;INNER_STEPS;identity`: SGNO-X with this many products of two learned filters and this
        many inner steps. APEBench shows a network no data before training, so this one starts at random
        values: the start from data, which decides its accuracy, is what `sgno run` and `sgno.fit` add.

    Calling it again changes nothing.

    **Returns:** the forms of the strings.
    """
    architecture_dict = require("apebench.components", "paper", "register_apebench").architecture_dict
    architecture_dict["sgno"] = _sgno
    architecture_dict["sgnox"] = _sgno_x
    return tuple(";".join((name, *labels, activation)) for name, labels, activation in _FORMS.values())


def _sgno(
    network: str, num_spatial_dims: int, num_points: int, num_channels: int, activation: Callable, key
) -> SGNO:
    """What APEBench calls for `SGNO;...`."""
    del activation
    width, num_modes, num_blocks = _numbers("sgno", network)
    config = SGNOConfig(width, num_modes, num_blocks)
    return config.build(Grid(num_channels, (num_points,) * num_spatial_dims), key=key)


def _sgno_x(
    network: str, num_spatial_dims: int, num_points: int, num_channels: int, activation: Callable, key
) -> "StateSpaceNetwork":
    """What APEBench calls for `SGNOX;...`."""
    del activation
    terms, inner_steps = _numbers("sgnox", network)
    config = SGNOXConfig(start="random", degree=2, max_terms=terms, inner_steps=inner_steps)
    return StateSpaceNetwork(config, Grid(num_channels, (num_points,) * num_spatial_dims), key=key)


class StateSpaceNetwork(eqx.Module):
    """SGNO-X with its trainable arrays alone as leaves.

    APEBench's trainer hands every array to the optimiser, and SGNO-X also has whole numbers (units, radii),
    which have no gradient. They do not depend on the key, so that they are made again where needed.
    """

    params: SGNOX
    # Not `config` and `grid`, by which `sgno.save` would take it for an SGNO-X: save `network.step()`.
    settings: SGNOXConfig = eqx.field(static=True)
    states: Grid = eqx.field(static=True)

    def __init__(self, config: SGNOXConfig, grid: Grid, *, key: PRNGKeyArray):
        self.params = eqx.filter(config.build(grid, key=key), eqx.is_inexact_array)
        self.settings = config
        self.states = grid

    def step(self) -> SGNOX:
        """The same as a step of this package."""
        whole = eqx.filter(
            self.settings.build(self.states, key=jax.random.PRNGKey(0)), eqx.is_inexact_array, inverse=True
        )
        return eqx.combine(self.params, whole)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.step()(u)


def _numbers(name: str, network: str) -> list[int]:
    """The whole numbers of a string, checked against its form."""
    label, labels, activation = _FORMS[name]
    _, *numbers, given = network.split(";") if ";" in network else (network, "")
    fits = len(numbers) == len(labels) and all(n.isdecimal() and int(n) > 0 for n in numbers)
    if not fits or given.lower() != activation:
        raise InputError(
            f"network_config '{network}' does not have the form {';'.join((label, *labels, activation))} "
            "with positive whole numbers."
        )
    return [int(n) for n in numbers]
