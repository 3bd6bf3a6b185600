"""The Spectral Generator Neural Operator."""

import dataclasses
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.layer import (
    CorrectionKind,
    GeneratorKind,
    Layer,
    PreparedLayer,
    UpdateKind,
    prepare_layers,
)
from sgno.nn.pointwise import Affine, Projection, affine, gelu
from sgno.spectral import check_enough_points
from sgno.step import batch, cached_states, prepare, states_at_once

PROJECTION_WIDTH = 128

CoordinateKind = Literal["ends", "none", "periodic"]


@dataclasses.dataclass(frozen=True)
class SGNOConfig(ModelConfig):
    """Settings of SGNO. The last four are the paper's by default; others are ablations.

    **Arguments:**

    - `width`: latent channels, `C`.
    - `num_modes`: modes kept on each half axis, `m`; the grid needs `2m` points per axis.
    - `num_blocks`: layers, `L`.
    - `coordinates`: `"ends"` (the paper's), `"periodic"`, or `"none"` for translation equivariance.
    - `generator`, `update`, `correction`: the ablations; see `Layer`.
    """

    kind: ClassVar[str] = "sgno"

    width: int
    num_modes: int
    num_blocks: int
    coordinates: CoordinateKind = "ends"
    generator: GeneratorKind = "nonpositive"
    update: UpdateKind = "etd"
    correction: CorrectionKind = "mlp"

    def __post_init__(self):
        for name in ("width", "num_modes", "num_blocks"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)} must be at least 1.")
        for name, kind in (
            ("coordinates", CoordinateKind),
            ("generator", GeneratorKind),
            ("update", UpdateKind),
            ("correction", CorrectionKind),
        ):
            if getattr(self, name) not in get_args(kind):
                raise InputError(f"{name}={getattr(self, name)!r} is unknown. Use one of {get_args(kind)}.")

    def for_grid(self, grid: Grid) -> "SGNOConfig":
        """As many modes as the grid carries at most, and a width that does not squeeze many channels."""
        return dataclasses.replace(
            self,
            num_modes=min(self.num_modes, min(grid.points) // 2),
            width=max(self.width, 2 * grid.channels),
        )

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> "SGNO":
        return SGNO(self, grid, key=key)


class SGNO(eqx.Module):
    """u+ = u + Q(L_last(... gelu(L_0(P([u, x])))))

    `P` lifts the state and its coordinates to `width` channels, each layer carries and
    corrects `num_modes` Fourier modes per half axis, `Q` projects back to an increment.
    One class for 1D, 2D and 3D; the same weights run on any grid with enough points.

    The constraints hold for every value of the parameters: lambda <= 0, ||A(k)||_2 <= 1,
    0 < r < 2.

    `layers` is one `Layer` with the layers along the leading axis of its arrays.
    """

    lift: Affine
    layers: Layer
    head: Projection
    config: SGNOConfig = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __init__(self, config: SGNOConfig, grid: Grid, *, key: PRNGKeyArray):
        """**Raises:** `InputError` if the grid has fewer than `2 num_modes` points along an axis."""
        check_enough_points(grid.points, config.num_modes)
        keys = jax.random.split(key, 3)
        # Inside a program that is being traced the draws are a part of it.
        draw = _draw if isinstance(keys, Tracer) else _compiled_draw
        self.lift, self.layers, self.head = draw(config, grid, keys)
        self.config = config
        self.grid = grid

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return prepare(self)(u)


def _draw(config: SGNOConfig, grid: Grid, keys: Array) -> tuple[Affine, Layer, Projection]:
    """The parts of a model with their start values."""
    d, width = grid.num_spatial_dims, config.width
    lift_key, layers_key, head_key = keys
    channels_in = grid.channels + coordinate_channels(config.coordinates, d)

    def layer(key: PRNGKeyArray) -> Layer:
        return Layer(
            d,
            width,
            config.num_modes,
            generator=config.generator,
            update=config.update,
            correction=config.correction,
            key=key,
        )

    return (
        Affine(channels_in, width, key=lift_key),
        eqx.filter_vmap(layer)(jax.random.split(layers_key, config.num_blocks)),
        Projection(width, grid.channels, PROJECTION_WIDTH, key=head_key),
    )


# One program instead of dozens. It runs once, and optimising it would take five times as long.
_compiled_draw = jax.jit(
    _draw, static_argnums=(0, 1), compiler_options={"xla_backend_optimization_level": "0"}
)


class PreparedSGNO(eqx.Module):
    """SGNO with every coefficient computed; see `prepare`."""

    lift: Affine
    layers: PreparedLayer
    head: Projection
    num_channels: int = eqx.field(static=True)
    num_modes: int = eqx.field(static=True)
    coordinates: CoordinateKind = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.increment(u[:, None])[:, 0] + u

    def increment(self, u: Float[Array, "channels batch *points"]) -> Float[Array, "channels batch *points"]:
        """Q(L_last(... P([u, x]))), with the batch behind the channels so that maps are single products."""
        points = u.shape[2:]
        if u.shape[0] != self.num_channels:
            raise InputError(
                f"The state has {u.shape[0]} channels, but the model was built for {self.num_channels}. "
                "States are (channels, *points)."
            )
        check_enough_points(points, self.num_modes)
        x = coordinates(self.coordinates, points, u.dtype)
        # The coordinates are the same for the whole batch, so lift them once.
        static = affine(self.lift.weight[:, self.num_channels :], self.lift.bias, x)
        v = jax.lax.dot_general(self.lift.weight[:, : self.num_channels], u, (((1,), (0,)), ((), ())))
        v = v + static[:, None]
        # A scan compiles one layer, not all of them; two compile as quickly in turn, and run faster.
        count = len(self.layers.weight)
        # The last layer has no activation.
        active = np.arange(count) < count - 1

        def advance(v, of_layer):
            layer, is_active = of_layer
            w = layer(v, self.num_modes)
            return jnp.where(is_active, gelu(w), w), None

        return self.head(jax.lax.scan(advance, v, (self.layers, active), unroll=count <= 2)[0])


def coordinate_channels(kind: CoordinateKind, num_spatial_dims: int) -> int:
    """How many channels `coordinates` returns."""
    return {"ends": 1, "none": 0, "periodic": 2}[kind] * num_spatial_dims


def coordinates(
    kind: CoordinateKind, points: tuple[int, ...], dtype: np.dtype
) -> Float[Array, "coordinates *points"]:
    """The coordinate channels of a grid.

    - `"ends"`: `linspace(0, 1, N)` with both ends, one channel per axis, as in the paper.
    - `"periodic"`: sin and cos of 2 pi x per axis, smooth across the boundary.
    - `"none"`: no channel, which makes the model translation equivariant.
    """
    if kind == "none":
        return jnp.zeros((0, *points), dtype)
    channels = []
    for axis, n in enumerate(points):
        if kind == "ends":
            profiles = [np.linspace(0, 1, n)]
        else:
            angle = 2 * np.pi * np.arange(n) / n
            profiles = [np.sin(angle), np.cos(angle)]
        shape = [n if i == axis else 1 for i in range(len(points))]
        channels += [np.broadcast_to(profile.reshape(shape), points) for profile in profiles]
    return jnp.asarray(np.stack(channels), dtype)


# Compiled as one program also where nobody compiles around it: op by op it takes seconds to start.
@prepare.register(SGNO)
@eqx.filter_jit
def _(step: SGNO) -> PreparedSGNO:
    return PreparedSGNO(
        step.lift,
        prepare_layers(step.layers),
        step.head,
        step.grid.channels,
        step.config.num_modes,
        step.config.coordinates,
    )


@batch.register(SGNO)
def _(step: SGNO, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    return batch(prepare(step), u)


@batch.register(PreparedSGNO)
def _(
    step: PreparedSGNO, u: Float[Array, "batch channels *points"]
) -> Float[Array, "batch channels *points"]:
    return step.increment(u.swapaxes(0, 1)).swapaxes(0, 1) + u


@states_at_once.register(PreparedSGNO)
def _(step: PreparedSGNO, points: tuple[int, ...]) -> int:
    del step
    return cached_states(points)
