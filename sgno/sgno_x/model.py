"""SGNO-X: its settings, and the step with its learned parts."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.config import ModelConfig
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.survey import Normalise
from sgno.sgno_x.closure import Filters, Terms, mixed_terms, starting_filters
from sgno.sgno_x.grids import extend
from sgno.sgno_x.multipliers import Coupling, Growth, Multiplier, Rates
from sgno.sgno_x.scheme import Multipliers, Scheme
from sgno.sgno_x.symbols import two_thirds
from sgno.sgno_x.trapping import TrappingSet
from sgno.spectral import mode_shape, namespace, to_points
from sgno.step import batch, cached_states, fault, prepare, states_at_once

_CHOICES = {
    "start": ("data", "linear", "random"),
    "generator": ("complex", "real"),
    "carry": ("state", "latent"),
    "closure": ("products", "none"),
    "updates": ("protocol", "none"),
    "stages": (None, 1, 2, 4),
    "degree": (2, 3),
}
# One setting serves every task of a dimension; chosen on the ten tasks of the paper.
_MAX_TERMS = {1: 4, 2: 4, 3: 6}
_INNER_STEPS_WITHOUT_DATA = {1: 1, 2: 4, 3: 1}


@dataclasses.dataclass(frozen=True)
class SGNOXConfig(ModelConfig):
    """SGNO-X: a generator on the state itself, closed by products of filtered copies of the state.

    Whatever is `None` is chosen by `warm_start` from the training trajectories (a held-out part of them
    decides). The settings of a step, `step.config`, have every choice filled in (`ResolvedSGNOXConfig`).

    **Arguments:**

    - `start`: `data` fits everything by least squares, `linear` fits the generator alone and draws the
        closure at random, `random` draws both.
    - `generator`: `complex` (damping and dispersion) or `real` (damping alone, an ablation).
    - `carry`: `state`. Records of version 0.1 may also hold `latent`, an ablation that is no longer built.
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
    units: ClassVar[Normalise] = "scale"

    start: Literal["data", "linear", "random"] = "data"
    generator: Literal["complex", "real"] = "complex"
    # One value is left, but the ids of stored jobs are hashes of all fields.
    carry: Literal["state", "latent"] = "state"
    closure: Literal["products", "none"] = "products"
    degree: int = 3
    max_terms: int | None = None
    second_stage: bool = True
    stages: int | None = None
    inner_steps: int | None = None
    forcing: bool | None = None
    trapping: bool = True
    margin: float = 4.0
    updates: Literal["protocol", "none"] = "protocol"
    terms: Sequence[Sequence[str]] | None = None
    cutoff: Sequence[int] | None = None

    def __post_init__(self):
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                listed = " or ".join(map(str, known))
                raise InputError(f"{name}={getattr(self, name)!r} is not one of those known. Use {listed}.")
        for name in ("inner_steps", "max_terms"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f'{name}={value} must be at least 1. Use closure="none" for no products.')
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
        return SGNOX(self, grid, key=key)

    def recipe(self) -> Mapping[str, Any]:
        if self.updates == "none":
            return {"updates": 0}
        # Multipliers are kept in units of their uncertainty, so one rate serves every task.
        return {"peak_rate": 1e-2 if self.start == "data" else 3e-3, "warmup": 500, "loss": "increment"}

    def open_choices(self) -> frozenset[str]:
        """The names of the settings that the training data choose."""
        names = ("stages", "inner_steps", "forcing", "terms", "cutoff")
        return frozenset(name for name in names if getattr(self, name) is None)

    def resolve(self, grid: Grid) -> "ResolvedSGNOXConfig":
        """The settings with every open choice filled in without data.

        **Raises:** `InputError` if the cutoff does not fit the grid, or for a carry that is no longer built.
        """
        d = grid.num_spatial_dims
        if self.carry == "latent":
            raise InputError('carry="latent" was an ablation of version 0.1. Use carry="state".')
        cutoff = two_thirds(grid.points) if self.cutoff is None else tuple(self.cutoff)
        if len(cutoff) != d or any(2 * c >= n for c, n in zip(cutoff, grid.points, strict=True)):
            raise InputError(
                f"cutoff={cutoff} does not fit a grid of {grid.points} points. "
                "Give one wavenumber below Nyquist for each axis, or None."
            )
        max_terms = self.max_terms or _MAX_TERMS[d]
        terms = () if self.terms is None or self.closure == "none" else self.terms
        if self.start != "data" and self.closure == "products" and not terms:
            terms = mixed_terms(max_terms, grid.channels)
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        settings |= {
            "max_terms": max_terms,
            "stages": (self.stages or 2) if self.second_stage else 1,
            "inner_steps": self.inner_steps or _INNER_STEPS_WITHOUT_DATA[d],
            "forcing": self.start != "data" if self.forcing is None else self.forcing,
            "terms": terms,
            "cutoff": cutoff,
        }
        return ResolvedSGNOXConfig(**settings)


@dataclasses.dataclass(frozen=True)
class ResolvedSGNOXConfig(SGNOXConfig):
    """The settings of a step, with no choice left open. Its JSON is that of an `SGNOXConfig`."""

    max_terms: int = 4
    stages: int = 2
    inner_steps: int = 1
    forcing: bool = False
    terms: tuple[tuple[str, ...], ...] = ()
    cutoff: tuple[int, ...] = ()


class SGNOX(eqx.Module):
    """The Spectral Generator Neural Operator with its generator moved into state space.

    The state is carried by a complex generator with nonpositive real part and closed by products of
    filtered copies of itself, in `S` tied inner steps of an exponential Runge-Kutta scheme (`Scheme`):

        dv/dt = (Lambda(k) + m(k)) v + K(k) v + sum_j P_j(k) q_j(v) + f(k),
        q_j = FFT[ prod_a IFFT(D_a v) ].

    `Lambda` cannot grow a mode, the growth `m` is bounded, and every state lies in a trapping set
    (`TrappingSet` holds the proof that rollouts stay bounded). The parts are learned on the modes of the
    training grid and continued to other grids by `extend`.

    `config` has every choice filled in; `open_choices` names those that `warm_start` may still change.
    `prepared` holds the coefficients for one grid once `on_grid` or `prepare` has computed them.
    """

    generator: Rates
    growth: Growth
    coupling: Coupling | None
    filters: Filters | None
    P: Multiplier
    forcing: Multiplier | None
    gain: Multiplier | None
    trapping: TrappingSet | None
    prepared: Scheme | None
    grid: Grid = eqx.field(static=True)
    config: ResolvedSGNOXConfig = eqx.field(static=True)
    open_choices: frozenset[str] = eqx.field(static=True)

    def __init__(self, config: SGNOXConfig, grid: Grid, *, key: PRNGKeyArray):
        """A step at values chosen without data; `key` draws the filters of a random start."""
        resolved = config.resolve(grid)
        real = resolved.generator == "real"
        terms, J, C = Terms(resolved.terms), len(resolved.terms), grid.channels
        zero = np.zeros((C, *mode_shape(grid.points)), complex)
        self.generator = Rates(zero - 1e-3, 1.0, real=real)
        self.growth = Growth(zero, 1.0)
        self.coupling = Coupling(np.stack([zero] * C), 1.0, real=real) if C > 1 else None
        self.filters = None
        if J:
            D = starting_filters(terms, grid.points, resolved.cutoff, key=key)
            self.filters = Filters(D, 1.0, grid.points, resolved.cutoff)
        self.P = Multiplier(np.zeros((C, J, *zero.shape[1:]), complex))
        self.forcing = Multiplier(zero) if resolved.forcing else None
        self.gain = Multiplier(zero + 1) if J and resolved.stages != 1 else None
        self.trapping = None
        if resolved.trapping:
            self.trapping = TrappingSet(np.full(zero.shape, 1e3), resolved.margin, grid.points)
        self.prepared = None
        self.grid = grid
        self.config = resolved
        self.open_choices = config.open_choices()

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return batch(self, u[None])[0]

    @property
    def terms(self) -> Terms:
        return Terms(self.config.terms)

    def multipliers(self) -> Multipliers:
        """Everything learned, on the training grid."""
        Lambda = self.generator()
        xp = namespace(Lambda)
        return Multipliers(
            Lambda=Lambda,
            m=self.growth(),
            K=None if self.coupling is None else self.coupling(),
            D=xp.zeros((0, *Lambda.shape[1:]), Lambda.dtype) if self.filters is None else self.filters(),
            P=self.P(),
            f=None if self.forcing is None else self.forcing(),
            T=xp.ones_like(Lambda) if self.gain is None else self.gain(),
            r=None if self.trapping is None else self.trapping.radius(),
        )

    def inner_steps(self, points: tuple[int, ...]) -> int:
        """S on a grid: `n` times as many where it is `n` times finer, as an explicit scheme needs."""
        finer = max(new / old for new, old in zip(points, self.grid.points, strict=True))
        return max(1, round(self.config.inner_steps * max(1.0, finer)))

    def scheme(self, points: tuple[int, ...]) -> Scheme:
        """The coefficients of one inner step on a grid of the same domain."""
        if self.prepared is not None and self.prepared.points == points:
            return self.prepared
        w = self.multipliers()
        if points != self.grid.points:
            known = self.generator.w.scale(), self.P.scale()
            w = extend(w, self.terms, known, self.config.cutoff, self.grid.points, points)
        S, stages = self.inner_steps(points), self.config.stages
        return Scheme(w, self.terms, points, inner_steps=S, stages=stages)

    def on_grid(self, points: tuple[int, ...]) -> "SGNOX":
        """The same step with its coefficients for one grid computed; it still runs on every other."""
        return eqx.tree_at(lambda s: s.prepared, self, self.scheme(points), is_leaf=lambda x: x is None)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `InputError` unless states of this shape can be advanced."""
        if len(shape) != 1 + self.grid.num_spatial_dims or shape[0] != self.grid.channels:
            raise InputError(
                f"This step was made for states of shape {self.grid.shape}, but got one of shape {shape}. "
                "The points per axis may differ, the channels and the number of axes may not."
            )


@prepare.register(SGNOX)
def _(step: SGNOX) -> SGNOX:
    return step.on_grid(step.grid.points)


@batch.register(SGNOX)
def _(step: SGNOX, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    step.check(u.shape[1:])
    points = u.shape[2:]
    scheme = step.scheme(points)
    return to_points(scheme.advance(scheme.enter(u), step.inner_steps(points)), points)


@fault.register(SGNOX)
def _(step: SGNOX) -> str | None:
    """Also a trapping set whose bounds overflow."""
    if step.trapping is not None and not step.trapping.fits():
        return "its trapping set reaches further than float32 can square"
    return fault.dispatch(object)(step)


@states_at_once.register(SGNOX)
def _(step: SGNOX, points: tuple[int, ...]) -> int:
    del step
    return cached_states(points)
