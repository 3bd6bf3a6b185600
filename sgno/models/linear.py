"""The linear step: one complex multiplier per Fourier mode, fitted by least squares.

No network and no training. On every task that is an exact Fourier multiplier (advection, diffusion,
dispersion) it is the answer up to rounding, so a table of networks ought to show it.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sgno.errors import InputError
from sgno.models.config import ModelConfig
from sgno.models.step import AbstractStep, Grid

# States are read and transformed in blocks of this many bytes (as float64) while fitting, so that the
# trajectories may be a memory map larger than the memory.
_BLOCK_BYTES = 32 * 2**20


def _shared_modes(fitted: int, given: int, *, last: bool) -> tuple[np.ndarray, np.ndarray]:
    """Where the modes that two grids share are stored on each of them, along one axis.

    Grids of different size share |k| < min/2: the Nyquist mode of the smaller grid stands for two modes
    (k and -k) of the larger one and has no counterpart there.
    """
    n = min(fitted, given)
    k = np.arange(n // 2 + 1) if last else np.fft.fftfreq(n, 1 / n).round().astype(int)
    if fitted != given:
        k = k[2 * np.abs(k) < n]
    return (k, k) if last else (k % fitted, k % given)


def _blocks(trajectories: Float[Array | np.ndarray, "samples times *state"]) -> Iterator[np.ndarray]:
    """Runs of consecutive states, each beginning with the last state of the run before it, so that every
    pair of neighbours in time occurs in exactly one run."""
    samples, times, *state = trajectories.shape
    pairs = max(1, _BLOCK_BYTES // (8 * int(np.prod(state))))
    for sample in range(samples):
        for start in range(0, times - 1, pairs):
            yield np.asarray(trajectories[sample, start : start + pairs + 1], dtype=np.float64)


class Linear(AbstractStep):
    """`u+^(k) = M(k) u^(k)`, a complex `C x C` matrix for each mode of the real FFT.

    The matrices are kept as two real arrays on the modes of the grid they are fitted on, and start as the
    identity. On a finer grid the further modes are set to zero; on a coarser one the matrices of modes it
    cannot carry are left out.
    """

    M_real: Float[Array, "channels_out channels_in *modes"]
    M_imag: Float[Array, "channels_out channels_in *modes"]
    grid: Grid = eqx.field(static=True)
    ridge: float = eqx.field(static=True)

    def __init__(self, grid: Grid, ridge: float):
        C, modes = grid.channels, (*grid.points[:-1], grid.points[-1] // 2 + 1)
        identity = jnp.eye(C).reshape(C, C, *(1,) * len(modes))
        self.M_real = jnp.broadcast_to(identity, (C, C, *modes))
        self.M_imag = jnp.zeros((C, C, *modes))
        self.grid = grid
        self.ridge = ridge

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        points = u.shape[1:]
        if len(points) != self.grid.num_spatial_dims or u.shape[0] != self.grid.channels:
            raise InputError(
                f"This step was made for states of shape {self.grid.shape}, but got one of shape {u.shape}. "
                "The points per axis may differ, the channels and the number of axes may not."
            )
        axes = tuple(range(1, u.ndim))
        u_hat = jnp.fft.rfftn(u, axes=axes)
        M = self.M_real + 1j * self.M_imag
        if points == self.grid.points:
            v_hat = jnp.einsum("oi...,i...->o...", M, u_hat)
        else:
            *leading, last = (
                _shared_modes(fitted, given, last=axis == len(points) - 1)
                for axis, (fitted, given) in enumerate(zip(self.grid.points, points, strict=True))
            )
            of_M, of_u = zip(*leading, last, strict=True)
            in_M = (slice(None), slice(None), *np.ix_(*of_M))
            in_u = (slice(None), *np.ix_(*of_u))
            v_hat = jnp.zeros_like(u_hat).at[in_u].set(jnp.einsum("oi...,i...->o...", M[in_M], u_hat[in_u]))
        return jnp.fft.irfftn(v_hat, s=points, axes=axes)

    def warm_start(
        self,
        trajectories: Float[Array | np.ndarray, "samples times channels *points"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> "Linear":
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
        if trajectories.shape[2:] != self.grid.shape or trajectories.shape[1] < 2:
            raise InputError(
                f"Expected trajectories (samples, times >= 2, *{self.grid.shape}), "
                f"but got {trajectories.shape}. Pass trajectories on the grid that the step was built for."
            )
        C, modes = self.grid.channels, self.M_real.shape[2:]
        G = np.zeros((C, C, *modes), dtype=np.complex128)
        H = np.zeros_like(G)
        for u in _blocks(trajectories):
            u_hat = np.fft.rfftn(u, axes=tuple(range(2, u.ndim)))
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
        r = max(self.ridge * power, np.finfo(np.float64).tiny)
        M = np.linalg.solve((G + r * np.eye(C)).swapaxes(1, 2), H.swapaxes(1, 2)).swapaxes(1, 2)
        M = np.moveaxis(M, 0, -1).reshape(C, C, *modes)
        dtype = self.M_real.dtype
        return eqx.tree_at(
            lambda step: (step.M_real, step.M_imag),
            self,
            (jnp.asarray(M.real, dtype=dtype), jnp.asarray(M.imag, dtype=dtype)),
        )

    def trainable(self) -> PyTree[bool]:
        """Nothing: the fit is the least-squares optimum already."""
        return jax.tree.map(lambda _: False, self)


@dataclasses.dataclass(frozen=True)
class LinearConfig(ModelConfig):
    """A linear step, fitted and not trained.

    **Arguments:**

    - `ridge`: relative to the power of the strongest mode. The default lies above the rounding errors that
        states kept in float32 gather over fifty steps (about 1e-14) and far below anything that matters.
    """

    kind: ClassVar[str] = "linear"
    keeps_zero: ClassVar[bool] = True

    ridge: float = 1e-12

    def __post_init__(self):
        if not 0 <= self.ridge < 1:
            raise InputError(f"ridge={self.ridge} must be at least 0 and below 1, such as 1e-12.")

    def build(self, grid: Grid, *, key: PRNGKeyArray | None = None) -> Linear:
        del key
        return Linear(grid, self.ridge)

    def recipe(self) -> Mapping[str, Any]:
        return {"updates": 0}
