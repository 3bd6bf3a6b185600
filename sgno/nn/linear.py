"""The linear step: one complex multiplier per Fourier mode, fitted by least squares.

No network and no training. On every task that is an exact Fourier multiplier (advection, diffusion,
dispersion) it is the answer up to rounding, so a table of networks ought to show it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.survey import Normalise
from sgno.spectral import mode_shape, shared_index, to_modes, to_points
from sgno.step import host_batch, trainable


class Linear(eqx.Module):
    """`u+^(k) = M(k) u^(k)`, a complex `C x C` matrix for each mode of the real FFT.

    The matrices are kept as two real arrays on the modes of the grid they are fitted on, and start as the
    identity. On a finer grid the further modes are set to zero; on a coarser one the matrices of modes it
    cannot carry are left out.
    """

    M_real: Float[Array, "channels_out channels_in *modes"]
    M_imag: Float[Array, "channels_out channels_in *modes"]
    config: "LinearConfig" = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __init__(self, config: "LinearConfig", grid: Grid, *, key: PRNGKeyArray | None = None):
        del key
        C, modes = grid.channels, mode_shape(grid.points)
        # Made on the host: there is nothing to compile.
        identity = np.eye(C, dtype=np.float32).reshape(C, C, *(1,) * len(modes))
        self.M_real = jax.device_put(np.broadcast_to(identity, (C, C, *modes)))
        self.M_imag = jax.device_put(np.zeros((C, C, *modes), np.float32))
        self.config = config
        self.grid = grid

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        points = u.shape[1:]
        self.check(u.shape)
        u_hat = to_modes(jnp.asarray(u), points)
        M = self.M_real + 1j * self.M_imag
        if points == self.grid.points:
            v_hat = jnp.einsum("oi...,i...->o...", M, u_hat)
        else:
            in_M, in_u = shared_index(self.grid.points, points)
            v_hat = jnp.zeros_like(u_hat).at[in_u].set(jnp.einsum("oi...,i...->o...", M[in_M], u_hat[in_u]))
        return to_points(v_hat, points)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `InputError` unless states of this shape can be advanced."""
        if len(shape) != 1 + self.grid.num_spatial_dims or shape[0] != self.grid.channels:
            raise InputError(
                f"This step was made for states of shape {self.grid.shape}, but got one of shape {shape}. "
                "The points per axis may differ, the channels and the number of axes may not."
            )


@host_batch.register(Linear)
def _(
    step: Linear, u: Float[np.ndarray, "batch channels *points"]
) -> Float[np.ndarray, "batch channels *points"]:
    points = u.shape[2:]
    step.check(u.shape[1:])
    u_hat = to_modes(u, points)
    M = np.asarray(step.M_real) + 1j * np.asarray(step.M_imag)
    in_M, in_u = shared_index(step.grid.points, points)
    v_hat = np.zeros_like(u_hat)
    v_hat[in_u] = np.einsum("oi...,bi...->bo...", M[in_M], u_hat[in_u])
    return to_points(v_hat, points)


@trainable.register(Linear)
def _(step: Linear) -> PyTree[bool]:
    """Nothing: the fit is the least-squares optimum already."""
    return jax.tree.map(lambda _: False, step)


@dataclasses.dataclass(frozen=True)
class LinearConfig(ModelConfig):
    """A linear step, fitted and not trained.

    **Arguments:**

    - `ridge`: relative to the power of the strongest mode. The default lies above the rounding errors that
        states kept in float32 gather over fifty steps (about 1e-14) and far below anything that matters.
    """

    kind: ClassVar[str] = "linear"
    units: ClassVar[Normalise] = "scale"

    ridge: float = 1e-12

    def __post_init__(self):
        if not 0 <= self.ridge < 1:
            raise InputError(f"ridge={self.ridge} must be at least 0 and below 1, such as 1e-12.")

    def build(self, grid: Grid, *, key: PRNGKeyArray | None = None) -> Linear:
        return Linear(self, grid, key=key)

    def recipe(self) -> Mapping[str, Any]:
        return {"updates": 0}
