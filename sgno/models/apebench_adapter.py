"""The networks of APEBench (pdequinox) as steps, named by APEBench's own strings.

A string such as `FNO;12;18;4;gelu` is the benchmark's name of a network, so it is read here, at the
edge, and nowhere else. The network is made by APEBench's own constructor from the same key: its weights
are bit for bit those of APEBench's `get_network`.
"""

import dataclasses
import difflib
from collections.abc import Callable
from typing import ClassVar

from apebench.components import activation_fn_dict, architecture_dict
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.models.config import ModelConfig
from sgno.models.step import AbstractStep, Grid

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


def _known(name: str, what: str, options: list[str]) -> str:
    """`name` in lower case if it is one of `options`; otherwise an error that lists them."""
    if name.lower() in options:
        return name.lower()
    near = difflib.get_close_matches(name.lower(), options, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"Unknown {what} {name!r}.{hint} Known: {', '.join(options)}.")


class ApebenchStep(AbstractStep):
    """`u+ = network(u)`: a pdequinox network, which predicts the next state itself."""

    network: Callable[[Array], Array]

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.network(u)


@dataclasses.dataclass(frozen=True)
class ApebenchConfig(ModelConfig):
    """A network by its APEBench string.

    **Arguments:**

    - `network`: architecture, its numbers and its activation, separated by semicolons:
        `Conv;WIDTH;DEPTH;ACTIVATION`, `Res;WIDTH;BLOCKS;ACTIVATION`, `UNet;WIDTH;LEVELS;ACTIVATION`,
        `Dil;DILATION_DEPTH;WIDTH;BLOCKS;ACTIVATION`, `FNO;MODES;WIDTH;BLOCKS;ACTIVATION`,
        `MLP;WIDTH;DEPTH;ACTIVATION`, `Pure;KERNEL_SIZE;identity`, `MoRes;WIDTH;BLOCKS;ACTIVATION`,
        `MoUNet;WIDTH;LEVELS;ACTIVATION`, or any architecture added to APEBench's `architecture_dict`.

    **Raises:** `ValueError` if the architecture or the activation is unknown, or a number is missing.
    """

    kind: ClassVar[str] = "apebench"

    network: str

    def __post_init__(self):
        name, *numbers, activation = (self.network if ";" in self.network else self.network + ";").split(";")
        architecture = _known(name, "architecture", list(architecture_dict))
        # An architecture that a user added to APEBench has a form only that user knows.
        if (labels := _NUMBERS.get(architecture)) is not None:
            fits = len(numbers) == len(labels) and all(n.isdecimal() and int(n) > 0 for n in numbers)
            if not fits:
                raise ValueError(
                    f"network={self.network!r} does not have the form "
                    f"{';'.join((name, *labels, 'ACTIVATION'))} with positive whole numbers."
                )
        _known(activation, "activation", list(activation_fn_dict))

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> ApebenchStep:
        """The network that APEBench makes from the same string and the same key.

        **Raises:** `ValueError` if the network cannot live on `grid`.
        """
        name, *numbers, activation = self.network.split(";")
        architecture = name.lower()
        self._check_grid(architecture, [int(n) for n in numbers if n.isdecimal()], grid)
        network = architecture_dict[architecture](
            self.network,
            grid.num_spatial_dims,
            grid.points[0],
            grid.channels,
            activation_fn_dict[activation.lower()](activation),
            key,
        )
        return ApebenchStep(network)  # pyright: ignore[reportArgumentType]

    def _check_grid(self, architecture: str, numbers: list[int], grid: Grid) -> None:
        points = "x".join(map(str, grid.points))
        if architecture == "mlp" and len(set(grid.points)) > 1:
            raise ValueError(
                f"network={self.network!r} is tied to one number of points per axis, but the grid has "
                f"{points}. Use the same number of points along every axis, or a convolutional network."
            )
        if architecture in ("unet", "mounet") and any(n % 2 ** numbers[1] for n in grid.points):
            raise ValueError(
                f"network={self.network!r} halves the grid {numbers[1]} times, but the grid has {points}. "
                f"Use a multiple of {2 ** numbers[1]} points along every axis, or fewer levels."
            )
        if architecture == "fno" and min(grid.points) < 2 * numbers[0]:
            raise ValueError(
                f"network={self.network!r} needs at least {2 * numbers[0]} points per axis, "
                f"but the grid has {points}. Use fewer modes or a finer grid."
            )
