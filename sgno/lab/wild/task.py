"""A task of the wild suite: a system, how it is sampled and disturbed, its data and its equation."""

import abc
import dataclasses
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import safetensors.numpy

from sgno.errors import InputError
from sgno.io.commit import make_folder, write_bytes
from sgno.io.files import content_id
from sgno.io.locks import claim
from sgno.lab.data.trajectories import check_finite, default_cache

# Raise it when a solver changes the numbers it makes.
GENERATION = 1
_FACTOR = re.compile(r"(?:(?P<function>[a-z0-9/()+^-]+)\[)?(?P<name>[a-zA-Z]+)(?:_(?P<axes>[xyz]+))?\]?$")


@dataclasses.dataclass(frozen=True)
class Factor:
    """A derivative of a channel, an input or a field, or a function of it."""

    name: str
    derivative: tuple[int, ...] = ()
    function: str | None = None

    @staticmethod
    def parse(text: str) -> "Factor":
        """`u`, `u_xx`, `u_xy`, or with a function `sin[u]`."""
        found = _FACTOR.match(text)
        if found is None:
            raise InputError(f"'{text}' is no factor. Write u, u_xx or sin[u].")
        axes = found["axes"] or ""
        derivative = tuple(axes.count(axis) for axis in "xyz") if axes else ()
        return Factor(found["name"], derivative, found["function"])

    def __str__(self) -> str:
        axes = "".join(axis * n for axis, n in zip("xyz", self.derivative, strict=False))
        text = f"{self.name}_{axes}" if axes else self.name
        return f"{self.function}[{text}]" if self.function else text


@dataclasses.dataclass(frozen=True)
class Term:
    """`coefficient * D(product of factors)`, where `outer` counts the derivatives D along each axis."""

    coefficient: float
    factors: tuple[Factor, ...] = ()
    outer: tuple[int, ...] = ()

    def __str__(self) -> str:
        product = " ".join([f"{self.coefficient:+.6g}", *map(str, self.factors)])
        axes = "".join(axis * n for axis, n in zip("xyz", self.outer, strict=False))
        return f"({product})_{axes}" if axes else product


def term(coefficient: float, *factors: str, outer: tuple[int, ...] = ()) -> Term:
    """`term(-1, "u", "u_x")` is `-u u_x`."""
    return Term(coefficient, tuple(map(Factor.parse, factors)), outer)


@dataclasses.dataclass(frozen=True)
class Equation:
    """The right-hand side of `u_t = ...` for each channel, in the units of `dt` and `length`.

    `fields` names the coefficients that vary in space and are not given as inputs.
    """

    terms: Mapping[str, tuple[Term, ...]]
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(f"{name}_t = {' '.join(map(str, terms))}" for name, terms in self.terms.items())


@dataclasses.dataclass(frozen=True)
class Solution:
    """States `(samples, steps + 1, channels, *points)` of one draw, and the inputs that drove them.

    `dt` is an array `(samples,)` if the trajectories differ in it.
    """

    states: np.ndarray
    inputs: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    dt: np.ndarray | None = None


class Box(Protocol):
    """Where a system is solved and how it is observed."""

    @property
    def length(self) -> float | tuple[float, ...]:
        """Of each axis."""
        ...


class System(abc.ABC):
    """An equation with its box and its solver; a frozen dataclass whose fields decide the data."""

    dt: float
    box: Box
    channels: ClassVar[tuple[str, ...]] = ("u",)
    # For each axis: "periodic", "dirichlet" or "neumann".
    boundary: ClassVar[tuple[str, ...]] = ("periodic",)
    # Between walls the points are cell centres ("cells") or include both walls ("walls").
    nodes: ClassVar[str] = "cells"
    # Values at the lower and the upper wall of the channels for which they are not zero.
    wall_values: ClassVar[Mapping[str, tuple[float, float]]] = {}
    # How an input that depends on time behaves between two frames: "constant" or "linear".
    holds: ClassVar[Mapping[str, str]] = {}

    @property
    def length(self) -> tuple[float, ...]:
        """Of each axis."""
        length = self.box.length
        return length if isinstance(length, tuple) else (length,)

    @abc.abstractmethod
    def equation(self) -> Equation:
        """The equation that is solved."""

    @abc.abstractmethod
    def solve(self, rng: np.random.Generator, samples: int, steps: int) -> Solution:
        """Draw initial states and inputs, and solve from them."""


@dataclasses.dataclass(frozen=True)
class WildData:
    """The arrays of a task, float32. Noise is on `train` alone; inputs and `test` are clean."""

    task: "WildTask"
    train: np.ndarray
    test: np.ndarray
    train_inputs: Mapping[str, np.ndarray]
    test_inputs: Mapping[str, np.ndarray]
    train_dt: float | np.ndarray
    test_dt: float | np.ndarray


@dataclasses.dataclass(frozen=True)
class WildTask:
    """A row of the suite.

    **Arguments:**

    - `noise`: standard deviation of the noise on the training data, by that of each channel.
    - `every`: only every n-th frame is seen, in training and in testing; the number of frames stays.
    - `test_system`: the system of the test part, if it is another one (unseen amplitudes, for example).
    """

    name: str
    description: str
    system: System
    noise: float = 0.0
    every: int = 1
    train_samples: int = 30
    train_steps: int = 50
    test_samples: int = 10
    test_steps: int = 100
    train_seed: int = 0
    test_seed: int = 773
    test_system: System | None = None

    @property
    def equation(self) -> Equation:
        return self.system.equation()

    @property
    def dt(self) -> float:
        """Time between two frames as they are seen."""
        return self.system.dt * self.every

    def settings(self) -> dict[str, Any]:
        """All that decides the data without noise."""
        both = [self.system, self.test_system or self.system]
        return {
            "generation": GENERATION,
            "systems": [[type(system).__name__, dataclasses.asdict(system)] for system in both],  # pyright: ignore
            "every": self.every,
            "train": [self.train_samples, self.train_steps, self.train_seed],
            "test": [self.test_samples, self.test_steps, self.test_seed],
            "versions": {name: version(name) for name in ("numpy", "scipy")},
        }

    def data(self, *, noise_seed: int = 0, cache: Path | None = None) -> WildData:
        """The task's data, from the cache or solved now.

        **Arguments:**

        - `noise_seed`: of the noise on the training part; it does not change anything else.
        - `cache`: a folder, instead of the one that all tasks share.
        """
        folder = make_folder((cache or default_cache()) / "wild")
        path = folder / f"{content_id(self.settings())}.safetensors"
        with claim(folder / f".{path.stem}.claim", on_wait=lambda owner: None):
            if not path.exists():
                write_bytes(path, [safetensors.numpy.save(self._solve(), {"task": self.name})])
        arrays = safetensors.numpy.load_file(path)
        parts = {part: _strip(arrays, f"{part}.") for part in ("train", "test")}
        inputs = {part: _strip(parts[part], "inputs.") for part in parts}
        train = _disturbed(parts["train"]["states"], self.noise, noise_seed)
        dt = {part: parts[part].get("dt", system.dt * self.every) for part, system in self._systems().items()}
        test = parts["test"]["states"]
        return WildData(self, train, test, inputs["train"], inputs["test"], dt["train"], dt["test"])

    def _systems(self) -> dict[str, System]:
        return {"train": self.system, "test": self.test_system or self.system}

    def _solve(self) -> dict[str, np.ndarray]:
        arrays = {}
        sizes = {
            "train": (self.train_samples, self.train_steps, self.train_seed),
            "test": (self.test_samples, self.test_steps, self.test_seed),
        }
        for part, system in self._systems().items():
            samples, steps, seed = sizes[part]
            solution = system.solve(np.random.default_rng(seed), samples, steps * self.every)
            states = solution.states[:, :: self.every].astype(np.float32)
            check_finite(states, f"{part} data of {self.name}")
            arrays[f"{part}.states"] = np.ascontiguousarray(states)
            for name, values in solution.inputs.items():
                arrays[f"{part}.inputs.{name}"] = values.astype(np.float32)
            if solution.dt is not None:
                arrays[f"{part}.dt"] = solution.dt * self.every
        return arrays


def _strip(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _disturbed(states: np.ndarray, noise: float, seed: int) -> np.ndarray:
    if noise == 0:
        return states
    scale = noise * states.std(axis=(0, 1, *range(3, states.ndim)), keepdims=True)
    return states + (scale * np.random.default_rng([seed, 20]).standard_normal(states.shape)).astype(
        np.float32
    )
