"""A step fitted to data before its first update; Linear, by one small least-squares problem per mode."""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.errors import InputError
from sgno.nn.conditioned import Conditioned
from sgno.nn.linear import Linear
from sgno.nn.normalised import Normalised
from sgno.nn.walled import Walled
from sgno.spectral import to_modes

# States are read and transformed in blocks of this many bytes (as float64) while fitting, so that the
# trajectories may be a memory map larger than the memory.
_BLOCK_BYTES = 32 * 2**20


@singledispatch
def warm_start(
    step: Any,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> Any:
    """The step to start training from, given the training trajectories. Default: the step as it is."""
    del trajectories, key
    return step


@warm_start.register(Normalised)
def _(
    step: Normalised,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> Normalised:
    """A step in units of its own is fitted to data in these units."""
    mean, scale = (
        np.asarray(value, np.float32).reshape(-1, *(1,) * (trajectories.ndim - 3))
        for value in (step.mean, step.scale)
    )
    return Normalised(warm_start(step.step, (trajectories - mean) / scale, key=key), step.mean, step.scale)


@warm_start.register(Conditioned)
def _(
    step: Conditioned,
    trajectories: Float[Array | np.ndarray, "samples times wide *points"],
    *,
    key: PRNGKeyArray,
) -> Conditioned:
    """The inner step is fitted to the wide states, earlier frames and inputs among them."""
    return Conditioned(warm_start(step.step, trajectories, key=key), step.grid, step.history, step.inputs)


@warm_start.register(Walled)
def _(
    step: Walled,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray,
) -> Walled:
    """The inner step is fitted to the states on the doubled grid."""
    return step.around(warm_start(step.step, step.walls.enter(trajectories, step.frames), key=key))


@warm_start.register(Linear)
def _(
    step: Linear,
    trajectories: Float[Array | np.ndarray, "samples times channels *points"],
    *,
    key: PRNGKeyArray | None = None,
) -> Linear:
    """The least-squares fit over all pairs of neighbouring training states,

        M(k) = argmin sum |u+^(k) - M u^(k)|² + r |M|²  =  H(k) (G(k) + r)^-1,

    with `G = sum u^ u^*`, `H = sum u+^ u^*` and `r` the ridge times the largest power of a mode.
    In float64 whatever the trajectories are; they are read a block at a time.

    Modes that the training data do not excite hold rounding errors only, whose power is far below `r`,
    so their multiplier goes to zero: what was never seen is removed, and rounding errors cannot build
    up in a rollout. (An identity there would keep them, a fit to them would be noise.)

    **Raises:** `InputError` if the states do not have the shape of the grid, if there are fewer than
    two times, or if a value is not finite.
    """
    del key
    if trajectories.shape[2:] != step.grid.shape or trajectories.shape[1] < 2:
        raise InputError(
            f"Expected trajectories (samples, times >= 2, *{step.grid.shape}), "
            f"but got {trajectories.shape}. Pass trajectories on the grid that the step was built for."
        )
    C, modes = step.grid.channels, step.M_real.shape[2:]
    G = np.zeros((C, C, *modes), dtype=np.complex128)
    H = np.zeros_like(G)
    for u in _blocks(trajectories):
        u_hat = to_modes(u, step.grid.points)
        conj = u_hat[:-1].conj()
        G += np.einsum("tc...,td...->cd...", u_hat[:-1], conj)
        H += np.einsum("tc...,td...->cd...", u_hat[1:], conj)
    # Matrices last for the batched solve: M (G + r) = H  <=>  (G + r)^T M^T = H^T.
    G, H = (np.moveaxis(A.reshape(C, C, -1), -1, 0) for A in (G, H))
    power = np.trace(G, axis1=1, axis2=2).real.max() / C
    if not np.isfinite(power) or not np.isfinite(H).all():
        raise InputError(
            "The trajectories hold values that are not finite. Leave out the samples that diverged."
        )
    r = max(step.config.ridge * power, np.finfo(np.float64).tiny)
    M = np.linalg.solve((G + r * np.eye(C)).swapaxes(1, 2), H.swapaxes(1, 2)).swapaxes(1, 2)
    M = np.moveaxis(M, 0, -1).reshape(C, C, *modes)
    dtype = step.M_real.dtype
    return eqx.tree_at(
        lambda s: (s.M_real, s.M_imag),
        step,
        (jax.device_put(M.real.astype(dtype)), jax.device_put(M.imag.astype(dtype))),
    )


def _blocks(trajectories: Float[Array | np.ndarray, "samples times *state"]) -> Iterator[np.ndarray]:
    """Runs of consecutive states, each beginning with the last state of the run before it, so that every
    pair of neighbours in time occurs in exactly one run."""
    samples, times, *state = trajectories.shape
    pairs = max(1, _BLOCK_BYTES // (8 * int(np.prod(state))))
    for sample in range(samples):
        for start in range(0, times - 1, pairs):
            yield np.asarray(trajectories[sample, start : start + pairs + 1], dtype=np.float64)
