"""Convolutional Neural Operator (Raonic et al. 2023, arXiv 2302.01178) on periodic grids.

A U-shaped network of convolutions in which every activation acts on a grid twice as fine and its result is
cut back to the band of the grid it came from, so that each layer maps band-limited functions to band-limited
functions. Here the filters are ideal (sharp in Fourier space), as periodic grids allow.

Where the paper leaves a choice, its authors' settings and the benchmark's count of weights decide: the
network predicts the next state itself, not its increment; leaky ReLU; no normalisation (29,903 and 58,717
weights leave no room for one, and statistics over a batch would tie the samples together).
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.convolution import periodic_convolution, xla_convolution
from sgno.spectral.resample import half_shifted_copies, mean_of_copies, resample
from sgno.step import batch, fast_batch

_KERNEL_SIZE = 3

# Hidden channels of the lift and the projection are made in blocks of about this many bytes.
_BLOCK_BYTES = 2 * 2**20


class Convolution(eqx.Module):
    """A periodic convolution with three taps per axis, and a bias, on `(C, B, *N)`."""

    w: Float[Array, "channels_out channels_in *kernel"]
    b: Float[Array, "channels_out"]

    def __init__(self, num_spatial_dims: int, channels_in: int, channels_out: int, *, key: PRNGKeyArray):
        limit = (channels_in * _KERNEL_SIZE**num_spatial_dims) ** -0.5
        w_key, b_key = jax.random.split(key)
        shape = (channels_out, channels_in, *(_KERNEL_SIZE,) * num_spatial_dims)
        self.w = jax.random.uniform(w_key, shape, minval=-limit, maxval=limit)
        self.b = jax.random.uniform(b_key, (channels_out,), minval=-limit, maxval=limit)

    def __call__(
        self, v: Float[Array, "channels_in batch *points"]
    ) -> Float[Array, "channels_out batch *points"]:
        return xla_convolution(v, self.w) + self.b.reshape(-1, *(1,) * (v.ndim - 1))


class _MatrixConvolution(eqx.Module):
    """The same as a matrix product, for `fast_batch`."""

    w: Float[Array, "channels_out channels_in *kernel"]
    b: Float[Array, "channels_out"]

    def __call__(
        self, v: Float[Array, "channels_in batch *points"]
    ) -> Float[Array, "channels_out batch *points"]:
        return periodic_convolution(v, self.w) + self.b.reshape(-1, *(1,) * (v.ndim - 1))


def activate(v: Float[Array, "channels batch *points"]) -> Float[Array, "channels batch *points"]:
    """Leaky ReLU on the grid twice as fine, cut back to the band of the grid."""
    return mean_of_copies(jax.nn.leaky_relu(half_shifted_copies(v)))


class ConvolutionPair(eqx.Module):
    """Convolution, activation, convolution: the lift, the projection, the inside of a residual block."""

    first: Convolution
    second: Convolution

    def __init__(self, d: int, channels_in: int, hidden: int, channels_out: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = Convolution(d, channels_in, hidden, key=first_key)
        self.second = Convolution(d, hidden, channels_out, key=second_key)

    def __call__(
        self, v: Float[Array, "channels_in batch *points"]
    ) -> Float[Array, "channels_out batch *points"]:
        # Convolutions commute with shifts, so the half-cell shifts may act outside both of them, where the
        # channels are fewer.
        return mean_of_copies(self._in_blocks(half_shifted_copies(v)))

    def _in_blocks(
        self, v: Float[Array, "channels_in copies *points"]
    ) -> Float[Array, "channels_out copies *points"]:
        """A few copies at a time, so that the hidden channels stay in the cache; the backward pass makes
        them again, which is cheaper than to keep them for all `2^d` copies of the batch."""
        f = jax.checkpoint(lambda x: self.second(jax.nn.leaky_relu(self.first(x))))
        copies = v.shape[1]
        hidden_bytes = 4 * self.first.b.size * v[0].size
        blocks = next(
            m
            for m in range(1, copies + 1)
            if copies % m == 0 and (hidden_bytes <= m * _BLOCK_BYTES or m == copies)
        )
        if blocks == 1:
            return f(v)
        blocked = jnp.moveaxis(v.reshape(v.shape[0], blocks, -1, *v.shape[2:]), 1, 0)
        w = jnp.moveaxis(jax.lax.map(f, blocked), 0, 1)
        return w.reshape(w.shape[0], copies, *v.shape[2:])


class Level(eqx.Module):
    """What the network has on one grid of the U: residual blocks, then an activated convolution."""

    residual: tuple[ConvolutionPair, ...]
    invariant: Convolution

    def __init__(self, d: int, channels: int, num_blocks: int, *, key: PRNGKeyArray):
        *block_keys, key = jax.random.split(key, num_blocks + 1)
        self.residual = tuple(ConvolutionPair(d, channels, channels, channels, key=k) for k in block_keys)
        self.invariant = Convolution(d, channels, channels, key=key)

    def __call__(self, v: Float[Array, "channels batch *points"]) -> Float[Array, "channels batch *points"]:
        for block in self.residual:
            v = v + block(v)
        return activate(self.invariant(v))


class CNO(eqx.Module):
    """`u+ = project(U(lift(u)))`, the U over grids of n, n/2, ..., n/2^L points per axis.

    The kernels belong to the grid that the step was built for. A state on another grid is resampled to it,
    advanced and resampled back, which is what makes the step an operator: the same function in, the same
    function out, whatever the grid.
    """

    lift: ConvolutionPair
    levels: tuple[Level, ...]
    down: tuple[Convolution, ...]
    up: tuple[Convolution, ...]
    project: ConvolutionPair
    config: "CNOConfig" = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __init__(self, config: "CNOConfig", grid: Grid, *, key: PRNGKeyArray):
        d, L, C = grid.num_spatial_dims, config.num_levels, config.channel_multiplier
        # Half the multiplier on the finest grid, then doubled with every halving of the grid.
        widths = (C // 2, *(C * 2**level for level in range(L)))
        lift_key, project_key, level_key, down_key, up_key = jax.random.split(key, 5)
        self.lift = ConvolutionPair(d, grid.channels, config.latent, widths[0], key=lift_key)
        self.project = ConvolutionPair(d, 2 * widths[0], config.latent, grid.channels, key=project_key)
        blocks = (*(config.num_residual,) * L, config.num_residual_neck)
        keys = jax.random.split(level_key, L + 1)
        self.levels = tuple(Level(d, c, n, key=k) for c, n, k in zip(widths, blocks, keys, strict=True))
        keys = jax.random.split(down_key, L)
        self.down = tuple(Convolution(d, widths[i], widths[i + 1], key=keys[i]) for i in range(L))
        keys = jax.random.split(up_key, L)
        # From the second level upwards what came through the U is joined by what that level kept.
        joined = (*(2 * c for c in widths[1:-1]), widths[-1])
        self.up = tuple(Convolution(d, joined[i], widths[i], key=keys[i]) for i in range(L))
        self.config = config
        self.grid = grid

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return batch(self, u[None])[0]

    def many(self, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        if u.shape[1] != self.grid.channels or u.ndim != 2 + self.grid.num_spatial_dims:
            raise InputError(
                f"This step was made for states of shape {self.grid.shape}, but got {u.shape[1:]}. "
                "The points per axis may differ, the channels and the number of axes may not."
            )
        v = resample(u.swapaxes(0, 1), self.grid.points)
        v = self._network(v)
        return resample(v, u.shape[2:]).swapaxes(0, 1)

    def _network(self, v: Float[Array, "channels batch *points"]) -> Float[Array, "channels batch *points"]:
        v = self.lift(v)
        kept = []
        for level, down in zip(self.levels[:-1], self.down, strict=True):
            kept.append(level(v))
            coarser = tuple(n // 2 for n in v.shape[2:])
            v = resample(activate(down(v)), coarser)
        v = self.levels[-1](v)
        for same, up in zip(reversed(kept), reversed(self.up), strict=True):
            v = activate(resample(up(v), same.shape[2:]))
            v = jnp.concatenate([v, same], axis=0)
        return self.project(v)


@batch.register(CNO)
def _(step: CNO, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    return step.many(u)


@fast_batch.register(CNO)
def _(step: CNO, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    """On a CPU the same weights with every convolution as a matrix product."""
    if jax.default_backend() != "cpu":
        return batch(step, u)
    is_convolution = lambda part: isinstance(part, Convolution)
    faster = lambda part: _MatrixConvolution(part.w, part.b) if is_convolution(part) else part
    return jax.tree.map(faster, step, is_leaf=is_convolution).many(u)


@dataclasses.dataclass(frozen=True)
class CNOConfig(ModelConfig):
    """Sizes of a CNO. The defaults are the benchmark's in 1D.

    **Arguments:**

    - `channel_multiplier`: channels after the first halving of the grid; half as many on the finest grid,
        twice as many after each further halving. 10 in 1D (29,903 weights), 8 in 2D (58,717).
    - `num_levels`: how often the grid is halved.
    - `num_residual`: residual blocks on each grid but the coarsest.
    - `num_residual_neck`: residual blocks on the coarsest grid.
    - `latent`: hidden channels of the lift and the projection: 64. In 3D, for which nothing is published,
        `CNOConfig(9, latent=32)` has 202,567 weights and half the work on the finest grid.
    """

    kind: ClassVar[str] = "cno"

    channel_multiplier: int = 10
    num_levels: int = 3
    num_residual: int = 1
    num_residual_neck: int = 1
    latent: int = 64

    def __post_init__(self):
        least = {
            "channel_multiplier": 2,
            "num_levels": 1,
            "num_residual": 0,
            "num_residual_neck": 0,
            "latent": 1,
        }
        for name, minimum in least.items():
            if (value := getattr(self, name)) < minimum:
                raise InputError(f"{name}={value} must be at least {minimum}.")

    def for_grid(self, grid: Grid) -> "CNOConfig":
        """As many levels as the grid can be halved, at least one."""
        levels = self.num_levels
        while levels > 1 and any(n % 2**levels or n < 2 * 2**levels for n in grid.points):
            levels -= 1
        return dataclasses.replace(self, num_levels=levels)

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> CNO:
        """A fresh CNO.

        **Raises:** `InputError` if the grid cannot be halved `num_levels` times down to 2 points or more.
        """
        parts = 2**self.num_levels
        if any(n % parts or n < 2 * parts for n in grid.points):
            raise InputError(
                f"num_levels={self.num_levels} halves the grid {self.num_levels} times, so each axis needs a "
                f"multiple of {parts} points and at least {2 * parts}, but the grid has "
                f"{'x'.join(map(str, grid.points))}. Use such a grid, or fewer levels."
            )
        return CNO(self, grid, key=key)
