"""The networks of APEBench (pdequinox) as steps, named by APEBench's own strings.

A string such as `FNO;12;18;4;gelu` is the benchmark's name of a network, so it is read here, at the
edge, and nowhere else. The network is made by APEBench's own constructor from the same key: its weights
are bit for bit those of APEBench's `get_network`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError, require, unknown_name
from sgno.grid import Grid
from sgno.nn.convolution import periodic_convolution, strided_convolution, transposed_convolution
from sgno.step import batch, cached_states, fast_batch, states_at_once

# The whole numbers between the name and the activation of each architecture that APEBench ships.
_NUMBERS = {
    "conv": ("WIDTH", "DEPTH"),
    "res": ("WIDTH", "BLOCKS"),
    "unet": ("WIDTH", "LEVELS"),
    "dil": ("DILATION_DEPTH", "WIDTH", "BLOCKS"),
    "fno": ("MODES", "WIDTH", "BLOCKS"),
    "mlp": ("WIDTH", "DEPTH"),
    "pure": ("KERNEL_SIZE",),
    "mores": ("WIDTH", "BLOCKS"),
    "mounet": ("WIDTH", "LEVELS"),
}
_ACTIVATIONS = ("relu", "sigmoid", "tanh", "swish", "gelu", "identity")


def _components() -> Any:
    return require("apebench.components", "paper", "A network of APEBench")


def _known(name: str, what: str, options: Iterable[str]) -> str:
    if (name := name.lower()) not in options:
        raise unknown_name(what, name, options)
    return name


def _convolution(x: Array, w: Array, dilation: int) -> Array:
    return periodic_convolution(x, w, dilation=dilation)


@cache
def _one_sample(
    convolution: Callable[[Array, Array, int], Array], number: int
) -> Callable[[Array, Array], Array]:
    """A convolution of one sample whose `vmap` is the convolution of many, in the layout that suits it.

    **Arguments:**

    - `convolution`: of `(channels, batch, *points)` with a kernel and a dilation or a stride.
    - `number`: that dilation or stride.
    """

    @jax.custom_batching.custom_vmap
    def convolve(x, w):
        return convolution(x[:, None], w, number)[:, 0]

    @convolve.def_vmap
    def _(axis_size, in_batched, x, w):
        del axis_size
        if in_batched != [True, False]:
            return jax.vmap(convolve.fun, in_axes=tuple(0 if b else None for b in in_batched))(x, w), True
        return convolution(x.swapaxes(0, 1), w, number).swapaxes(0, 1), True

    return convolve


class _Convolution(eqx.Module):
    """A convolution of pdequinox with the same weights, many samples at once as one matrix product."""

    conv: Any

    def __call__(self, x: Float[Array, "channels *points"]) -> Float[Array, "channels_out *points_out"]:
        strides, dilations = set(self.conv.stride), set(self.conv.dilation)
        if strides != {1} and len(strides) == 1 and dilations == {1}:
            y = _one_sample(strided_convolution, *strides)(x, self.conv.weight)
        else:
            y = _one_sample(_convolution, self.conv.dilation[0])(x, self.conv.weight)
            y = y[(slice(None), *(slice(None, None, stride) for stride in self.conv.stride))]
        return y if self.conv.bias is None else y + self.conv.bias


class _TransposedConvolution(eqx.Module):
    """The same for a transposed convolution."""

    conv: Any

    def __call__(self, x: Float[Array, "channels *points"]) -> Float[Array, "channels_out *points_out"]:
        y = _one_sample(transposed_convolution, self.conv.stride[0])(x, self.conv.weight)
        return y if self.conv.bias is None else y + self.conv.bias


@cache
def _faster_layers() -> dict[type, type]:
    conv = require("pdequinox", "paper", "A network of APEBench").conv
    return {
        conv.PhysicsConv: _Convolution,
        conv.PointwiseLinearConv: _Convolution,
        conv.PhysicsConvTranspose: _TransposedConvolution,
    }


def _base(part: Any) -> type | None:
    """Which of these layers `part` is; pdequinox's blocks derive from them and call them as they are."""
    layers = _faster_layers()
    return next((c for c in layers if isinstance(part, c) and type(part).__call__ is c.__call__), None)


def _faster(part: Any) -> Any:
    """The faster form of a layer that has one, and anything else as it is."""
    base = _base(part)
    return part if base is None else _faster_layers()[base](part)


class ApebenchStep(eqx.Module):
    """`u+ = network(u)`: a pdequinox network, which predicts the next state itself.

    It goes through the network as APEBench runs it. `fast_batch` runs the same weights with every
    convolution as a matrix product, which agrees up to rounding and is faster on a CPU
    (`python -m benchmarks.speed update` says by how much).
    """

    network: Callable[[Array], Array]
    config: "ApebenchConfig" = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)

    def __init__(self, config: "ApebenchConfig", grid: Grid, *, key: PRNGKeyArray):
        """The network that APEBench makes from the same string and the same key.

        **Raises:** `InputError` if the network cannot live on `grid`.
        """
        name, *numbers, activation = config.network.split(";")
        architecture = name.lower()
        config.check_grid(architecture, [int(n) for n in numbers if n.isdecimal()], grid)
        apebench = _components()
        self.network = apebench.architecture_dict[architecture](
            config.network,
            grid.num_spatial_dims,
            grid.points[0],
            grid.channels,
            apebench.activation_fn_dict[activation.lower()](activation),
            key,
        )
        self.config = config
        self.grid = grid

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.network(u)


@fast_batch.register(ApebenchStep)
def _(
    step: ApebenchStep, u: Float[Array, "batch channels *points"]
) -> Float[Array, "batch channels *points"]:
    if jax.default_backend() != "cpu":
        return batch(step, u)
    network = jax.tree.map(_faster, step.network, is_leaf=lambda part: _base(part) is not None)
    return jax.vmap(network)(u)


@states_at_once.register(ApebenchStep)
def _(step: ApebenchStep, points: tuple[int, ...]) -> int:
    del step
    return cached_states(points)


@dataclasses.dataclass(frozen=True)
class ApebenchConfig(ModelConfig):
    """A network by its APEBench string.

    **Arguments:**

    - `network`: architecture, its numbers and its activation, separated by semicolons:
        `Conv;WIDTH;DEPTH;ACTIVATION`, `Res;WIDTH;BLOCKS;ACTIVATION`, `UNet;WIDTH;LEVELS;ACTIVATION`,
        `Dil;DILATION_DEPTH;WIDTH;BLOCKS;ACTIVATION`, `FNO;MODES;WIDTH;BLOCKS;ACTIVATION`,
        `MLP;WIDTH;DEPTH;ACTIVATION`, `Pure;KERNEL_SIZE;identity`, `MoRes;WIDTH;BLOCKS;ACTIVATION`,
        `MoUNet;WIDTH;LEVELS;ACTIVATION`, or any architecture added to APEBench's `architecture_dict`.

    **Raises:** `InputError` if the architecture or the activation is unknown, or a number is missing.
    """

    kind: ClassVar[str] = "apebench"

    network: str

    def __post_init__(self):
        name, *numbers, activation = (self.network if ";" in self.network else self.network + ";").split(";")
        # The benchmark's own names are known without it; others are those that a user added to it.
        architecture = name.lower()
        if architecture not in _NUMBERS:
            _known(name, "architecture", _components().architecture_dict)
        # An architecture that a user added to APEBench has a form only that user knows.
        if (labels := _NUMBERS.get(architecture)) is not None:
            fits = len(numbers) == len(labels) and all(n.isdecimal() and int(n) > 0 for n in numbers)
            if not fits:
                raise InputError(
                    f"network={self.network!r} does not have the form "
                    f"{';'.join((name, *labels, 'ACTIVATION'))} with positive whole numbers."
                )
        if activation.lower() not in _ACTIVATIONS:
            _known(activation, "activation", _components().activation_fn_dict)

    def for_grid(self, grid: Grid) -> "ApebenchConfig":
        """Fewer modes or levels where the grid does not carry those of the string."""
        name, *numbers = self.network.split(";")
        if name.lower() == "fno":
            numbers[0] = str(min(int(numbers[0]), min(grid.points) // 2))
        elif name.lower() in ("unet", "mounet"):
            halvings = min((n & -n).bit_length() - 1 for n in grid.points)
            numbers[1] = str(max(1, min(int(numbers[1]), halvings)))
        return ApebenchConfig(";".join((name, *numbers)))

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> ApebenchStep:
        return ApebenchStep(self, grid, key=key)

    def check_grid(self, architecture: str, numbers: list[int], grid: Grid) -> None:
        points = "x".join(map(str, grid.points))
        if architecture == "mlp" and len(set(grid.points)) > 1:
            raise InputError(
                f"network={self.network!r} is tied to one number of points per axis, but the grid has "
                f"{points}. Use the same number of points along every axis, or a convolutional network."
            )
        if architecture in ("unet", "mounet") and any(n % 2 ** numbers[1] for n in grid.points):
            raise InputError(
                f"network={self.network!r} halves the grid {numbers[1]} times, but the grid has {points}. "
                f"Use a multiple of {2 ** numbers[1]} points along every axis, or fewer levels."
            )
        if architecture == "fno" and min(grid.points) < 2 * numbers[0]:
            raise InputError(
                f"network={self.network!r} needs at least {2 * numbers[0]} points per axis, "
                f"but the grid has {points}. Use fewer modes or a finer grid."
            )
