"""Settings of SGNO-X, and which of them are left to the training data."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from jaxtyping import PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid

if TYPE_CHECKING:
    from sgno.sgno_x.step import SGNOX

Start = Literal["data", "linear", "random"]
GeneratorKind = Literal["complex", "real"]
Carry = Literal["state", "latent"]
ClosureKind = Literal["products", "none"]
Updates = Literal["protocol", "none"]

_STAGES = (1, 2, 4)
_CHOICES = {
    "start": ("data", "linear", "random"),
    "generator": ("complex", "real"),
    "carry": ("state", "latent"),
    "closure": ("products", "none"),
    "updates": ("protocol", "none"),
}
# The same for every task of a dimension. A start without data takes the scheme its form needs unseen.
_MAX_TERMS = {1: 4, 2: 4, 3: 6}
_UNSEEN_INNER_STEPS = {1: 1, 2: 4, 3: 1}


@dataclasses.dataclass(frozen=True)
class SGNOXConfig(ModelConfig):
    """SGNO-X: a generator on the state itself, closed by products of filtered copies of the state.

    Whatever is `None` is chosen by `warm_start` from the training trajectories (a held-out part of them
    decides); the config of the step it returns, `step.config`, has every choice filled in, so that
    `step.config.build(grid)` has the same structure.

    **Arguments:**

    - `start`: `data` fits everything by least squares, `linear` fits the generator alone and draws the
        closure at random, `random` draws both.
    - `generator`: `complex` (damping and dispersion) or `real` (damping alone, an ablation).
    - `carry`: `state`, or `latent`: the generator acts on latent copies that are added to the state, as
        in the paper (an ablation).
    - `closure`: `products` or `none` (an ablation).
    - `degree`: the largest number of factors of a product, 2 or 3.
    - `max_terms`: at most this many products; `None` is 4 in 1D and 2D and 6 in 3D.
    - `second_stage`: `False` leaves the exponential Euler step alone (an ablation).
    - `stages`: 1, 2 or 4 evaluations of the closure per inner step.
    - `inner_steps`: `S`, the number of tied inner steps.
    - `forcing`: whether there is a static forcing. Without one the step commutes with translations.
    - `trapping`: whether every state is projected onto the trapping set.
    - `margin`: the trapping set reaches this many times as far as the training data, mode by mode.
    - `updates`: `protocol` trains on from the start, `none` leaves it as least squares made it.
    - `terms`: the products, each a tuple of factors such as `"0:d1"` (channel 0, derivative along axis 1).
    - `cutoff`: the largest wavenumber along each axis that enters a product.
    """

    kind: ClassVar[str] = "sgno-x"
    keeps_zero: ClassVar[bool] = True

    start: Start = "data"
    generator: GeneratorKind = "complex"
    carry: Carry = "state"
    closure: ClosureKind = "products"
    degree: int = 3
    max_terms: int | None = None
    second_stage: bool = True
    stages: int | None = None
    inner_steps: int | None = None
    forcing: bool | None = None
    trapping: bool = True
    margin: float = 4.0
    updates: Updates = "protocol"
    terms: Sequence[Sequence[str]] | None = None
    cutoff: Sequence[int] | None = None

    def __post_init__(self):
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(f"{name}={getattr(self, name)!r} is not one of {', '.join(known)}.")
        if self.degree not in (2, 3):
            raise InputError(f"degree={self.degree}: products have 2 or 3 factors. Use 2 or 3.")
        if self.stages is not None and self.stages not in _STAGES:
            raise InputError(f"stages={self.stages} is not one of {_STAGES}, or None to let the data choose.")
        if self.inner_steps is not None and self.inner_steps < 1:
            raise InputError(f"inner_steps={self.inner_steps} must be at least 1, or None.")
        if self.max_terms is not None and self.max_terms < 1:
            raise InputError(f'max_terms={self.max_terms} must be at least 1; closure="none" has no terms.')
        if not self.margin > 1:
            raise InputError(
                f"margin={self.margin} must exceed 1, or the trapping set cuts off the training data."
            )
        # JSON has no tuples.
        if self.terms is not None:
            object.__setattr__(self, "terms", tuple(tuple(term) for term in self.terms))
        if self.cutoff is not None:
            object.__setattr__(self, "cutoff", tuple(self.cutoff))

    def build(self, grid: Grid, *, key: PRNGKeyArray) -> "SGNOX":
        from sgno.sgno_x.step import SGNOX

        return SGNOX(self.unseen(grid), grid, asked=self, key=key)

    def recipe(self) -> Mapping[str, Any]:
        if self.updates == "none":
            return {"updates": 0}
        if self.start == "data":
            # Weights are kept in units of what the start leaves unexplained, so one rate serves every task.
            return {"peak_rate": 1e-2, "warmup": 500, "loss": "increment"}
        return {"peak_rate": 3e-3, "warmup": 500, "loss": "increment"}

    def most_terms(self, grid: Grid) -> int:
        if self.closure == "none":
            return 0
        return self.max_terms or _MAX_TERMS[grid.num_spatial_dims]

    def unseen(self, grid: Grid) -> "SGNOXConfig":
        """The same settings with every open choice filled in without data."""
        closed = self.closure == "none"
        stages = self.stages or 2
        return dataclasses.replace(
            self,
            stages=stages if self.second_stage else 1,
            inner_steps=self.inner_steps or _UNSEEN_INNER_STEPS[grid.num_spatial_dims],
            forcing=self.start != "data" if self.forcing is None else self.forcing,
            terms=() if closed or self.terms is None else self.terms,
            cutoff=two_thirds(grid.points) if self.cutoff is None else self.cutoff,
        )


def two_thirds(points: tuple[int, ...]) -> tuple[int, ...]:
    """The largest wavenumber of each axis below two thirds of Nyquist: squares alias only above it."""
    return tuple(max(1, (n // 2) * 2 // 3 - 1) for n in points)
