"""The Spectral Generator Neural Operator."""

import dataclasses
from typing import ClassVar, get_args

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.errors import InputError
from sgno.models.config import ModelConfig
from sgno.models.coordinates import CoordinateKind, coordinate_channels, coordinates
from sgno.models.generator import GeneratorKind
from sgno.models.layer import CorrectionKind, Layer, PreparedLayer, UpdateKind, prepare_layers
from sgno.models.pointwise import Affine, Projection, affine, gelu
from sgno.models.step import AbstractStep, Grid, cached_states
from sgno.spectral import check_enough_points

PROJECTION_WIDTH = 128


@dataclasses.dataclass(frozen=True)
class SGNOConfig(ModelConfig):
    """Settings of SGNO. The last four are the paper's by default; others are ablations."""

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
        check_enough_points(grid.points, self.num_modes)
        settings = dataclasses.asdict(self)
        return SGNO(grid.num_spatial_dims, grid.channels, key=key, **settings)


class SGNO(AbstractStep):
    """u+ = u + Q(L_last(... gelu(L_0(P([u, x])))))

    `P` lifts the state and its coordinates to `width` channels, each layer carries and
    corrects `num_modes` Fourier modes per half axis, `Q` projects back to an increment.
    One class for 1D, 2D and 3D; the same weights run on any grid with enough points.

    The constraints hold for every value of the parameters: lambda <= 0, ||A(k)||_2 <= 1,
    0 < r < 2.
    """

    lift: Affine
    layers: tuple[Layer, ...]
    head: Projection
    num_spatial_dims: int = eqx.field(static=True)
    num_channels: int = eqx.field(static=True)
    num_modes: int = eqx.field(static=True)
    coordinates: CoordinateKind = eqx.field(static=True)

    def __init__(
        self,
        num_spatial_dims: int,
        num_channels: int,
        width: int,
        num_modes: int,
        num_blocks: int,
        *,
        coordinates: CoordinateKind = "ends",
        generator: GeneratorKind = "nonpositive",
        update: UpdateKind = "etd",
        correction: CorrectionKind = "mlp",
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `num_spatial_dims`: 1, 2 or 3.
        - `num_channels`: channels of the state, `C_u`.
        - `width`: latent channels, `C`.
        - `num_modes`: modes kept on each half axis, `m`; the grid needs `2m` points per axis.
        - `num_blocks`: layers, `L`.
        - `coordinates`: `"ends"` (the paper's), `"periodic"`, or `"none"` for translation equivariance.
        - `generator`, `update`, `correction`: the ablations.
        - `key`: initialises the weights.
        """
        lift_key, layers_key, head_key = jax.random.split(key, 3)
        self.lift = Affine(
            num_channels + coordinate_channels(coordinates, num_spatial_dims), width, key=lift_key
        )
        self.layers = tuple(
            Layer(
                num_spatial_dims,
                width,
                num_modes,
                generator=generator,
                update=update,
                correction=correction,
                key=layer_key,
            )
            for layer_key in jax.random.split(layers_key, num_blocks)
        )
        self.head = Projection(width, num_channels, PROJECTION_WIDTH, key=head_key)
        self.num_spatial_dims = num_spatial_dims
        self.num_channels = num_channels
        self.num_modes = num_modes
        self.coordinates = coordinates

    # Compiled as one program also where nobody compiles around it: op by op it takes seconds to start.
    @eqx.filter_jit
    def prepare(self) -> "PreparedSGNO":
        return PreparedSGNO(
            self.lift,
            prepare_layers(self.layers),
            self.head,
            self.num_channels,
            self.num_modes,
            self.coordinates,
        )

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.prepare()(u)

    def batch(self, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        return self.prepare().batch(u)


class PreparedSGNO(AbstractStep):
    """SGNO with every coefficient computed; see `SGNO.prepare`."""

    lift: Affine
    layers: tuple[PreparedLayer, ...]
    head: Projection
    num_channels: int = eqx.field(static=True)
    num_modes: int = eqx.field(static=True)
    coordinates: CoordinateKind = eqx.field(static=True)

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self._increment(u[:, None])[:, 0] + u

    def states_at_once(self, points: tuple[int, ...]) -> int:
        return cached_states(points)

    def batch(self, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        return self._increment(u.swapaxes(0, 1)).swapaxes(0, 1) + u

    def _increment(self, u: Float[Array, "channels batch *points"]) -> Float[Array, "channels batch *points"]:
        """Q(L_last(... P([u, x]))), with the batch behind the channels so that maps are single products."""
        points = u.shape[2:]
        if u.shape[0] != self.num_channels:
            raise ValueError(
                f"The state has {u.shape[0]} channels, but the model was built for {self.num_channels}. "
                "States are (channels, *points)."
            )
        check_enough_points(points, self.num_modes)
        x = coordinates(self.coordinates, points, u.dtype)
        # The coordinates are the same for the whole batch, so lift them once.
        static = affine(self.lift.weight[:, self.num_channels :], self.lift.bias, x)
        v = jax.lax.dot_general(self.lift.weight[:, : self.num_channels], u, (((1,), (0,)), ((), ())))
        v = v + static[:, None]
        for layer in self.layers[:-1]:
            v = gelu(layer(v, self.num_modes))
        return self.head(self.layers[-1](v, self.num_modes))
