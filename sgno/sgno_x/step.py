"""SGNO-X as a step: its weights, its start, and its use on other grids."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.sgno_x.closure import Filters, Terms
from sgno.sgno_x.config import SGNOXConfig
from sgno.sgno_x.generator import Coupling, Generator, Growth, LatentCarry
from sgno.sgno_x.grids import extend
from sgno.sgno_x.multiplier import Multiplier
from sgno.sgno_x.prepared import PreparedSGNOX, Weights
from sgno.sgno_x.symbols import below, symbol, symbol_names
from sgno.sgno_x.trapping import TrappingSet
from sgno.spectral import mode_shape
from sgno.step import batch, cached_states, prepare, states_at_once

_LATENT_WIDTH = 4


class SGNOX(eqx.Module):
    """The Spectral Generator Neural Operator with its generator moved into state space.

    The state is carried by a complex generator with nonpositive real part and closed by products of
    filtered copies of itself, in `S` tied inner steps of an exponential Runge-Kutta scheme:

        dv/dt = (Lambda(k) + m(k)) v + sum_j P_j(k) q_j(v) + f(k),    q_j = FFT[ prod_a IFFT(D_a v) ].

    `Lambda` cannot grow a mode, the growth `m` is bounded, and every state lies in a trapping set
    (`TrappingSet` holds the proof that rollouts stay bounded). Weights live on the modes of the training
    grid; `prepare` computes the coefficients of the scheme from them, and other grids are served by
    `on_grid`.
    """

    generator: Generator
    latent: LatentCarry | None
    growth: Growth | None
    coupling: Coupling | None
    filters: Filters | None
    P: Multiplier
    forcing: Multiplier | None
    gain: Multiplier | None
    trapping: TrappingSet | None
    terms: Terms
    grid: Grid = eqx.field(static=True)
    config: SGNOXConfig = eqx.field(static=True)
    asked: SGNOXConfig = eqx.field(static=True)

    def __init__(self, config: SGNOXConfig, grid: Grid, *, asked: SGNOXConfig, key: PRNGKeyArray):
        """A step at values without data.

        **Arguments:**

        - `config`: the structure, every choice filled in.
        - `asked`: the settings as they were asked for, whose open choices `warm_start` makes.
        """
        if config.start != "data" and not config.terms:
            config = dataclasses.replace(config, terms=_mixed_terms(config.most_terms(grid), grid.channels))
        assert config.terms is not None and config.cutoff is not None and config.stages is not None
        cutoff = tuple(config.cutoff)
        if len(cutoff) != grid.num_spatial_dims or any(
            2 * c >= n for c, n in zip(cutoff, grid.points, strict=True)
        ):
            raise InputError(
                f"cutoff={cutoff} does not fit a grid of {grid.points} points. "
                "Give one wavenumber below Nyquist for each axis, or None."
            )
        modes, C = mode_shape(grid.points), grid.channels
        draw_key, latent_key = jax.random.split(key)
        real = config.generator == "real"
        terms = Terms(config.terms)
        L = np.zeros((C, *modes), complex)
        latent = LatentCarry(C, _LATENT_WIDTH, key=latent_key) if config.carry == "latent" else None
        rates = L - 1e-3
        self.generator = Generator(rates if latent is None else latent.copies(rates), 1.0, real=real)
        self.growth = Growth(L, 1.0) if latent is None else None
        self.latent = latent
        self.coupling = Coupling(np.zeros((C, C, *modes), complex), 1.0, real=real) if C > 1 else None
        J = len(terms.products)
        if J:
            D = _start_filters(terms, grid.points, cutoff, draw_key)
            self.filters = Filters(D, 1.0, grid.points, cutoff)
        else:
            self.filters = None
        self.P = Multiplier(np.zeros((C, J, *modes), complex))
        self.forcing = Multiplier(np.zeros((C, *modes), complex)) if config.forcing else None
        self.gain = Multiplier(np.ones((C, *modes), complex)) if J and config.stages != 1 else None
        self.trapping = (
            TrappingSet(np.full((C, *modes), 1e3), config.margin, grid.points) if config.trapping else None
        )
        self.terms = terms
        self.grid = grid
        self.config = config
        self.asked = asked

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return batch(self, u[None])[0]

    def on_grid(self, points: tuple[int, ...]) -> PreparedSGNOX:
        """This step for states on another grid of the same domain.

        The modes that the grids share keep their weights. Further modes continue the learned symbols (see
        `extend`), and a grid `n` times finer takes `n` times as many inner steps, as an explicit scheme must.
        """
        weights, inner_steps = self.weights(), self.config.inner_steps
        assert inner_steps is not None and self.config.stages is not None
        if points != self.grid.points:
            if self.latent is not None:
                raise InputError(
                    f'carry="latent" has no continuation to {points} points. Use the grid {self.grid.points}.'
                )
            cutoff = tuple(self.config.cutoff or ())
            known = self.generator.w.scale(), self.P.scale()
            weights = extend(weights, self.terms, known, cutoff, self.grid.points, points)
            finer = max(new / old for new, old in zip(points, self.grid.points, strict=True))
            inner_steps = max(1, round(inner_steps * max(1.0, finer)))
        grid = Grid(self.grid.channels, points)
        step = PreparedSGNOX(weights, self.terms, grid, inner_steps=inner_steps, stages=self.config.stages)
        if self.latent is None:
            return step
        Lambda, h = self.generator(), 1 / inner_steps
        return eqx.tree_at(
            lambda s: (s.tableau.decay, s.tableau.half_decay),
            step,
            (self.latent(Lambda, h), self.latent(Lambda, h / 2)),
        )

    def weights(self) -> Weights:
        """Everything learned, on the training grid."""
        modes = mode_shape(self.grid.points)
        Lambda = self.generator()
        if self.latent is not None:
            Lambda = jnp.zeros((self.grid.channels, *modes), Lambda.dtype)
        return Weights(
            Lambda=Lambda,
            m=jnp.zeros_like(Lambda.real) if self.growth is None else self.growth(),
            K=None if self.coupling is None else self.coupling(),
            D=jnp.zeros((0, *modes), Lambda.dtype) if self.filters is None else self.filters(),
            P=self.P(),
            f=None if self.forcing is None else self.forcing(),
            T=jnp.ones_like(Lambda) if self.gain is None else self.gain(),
            r=None if self.trapping is None else self.trapping.radius(),
        )

    def check(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 1 + self.grid.num_spatial_dims or shape[0] != self.grid.channels:
            raise InputError(
                f"This step was made for states of shape {self.grid.shape}, but got one of shape {shape}. "
                "The points per axis may differ, the channels and the number of axes may not."
            )


class Prepared(eqx.Module):
    """An SGNO-X with the coefficients for its training grid at hand; other grids go through `on_grid`."""

    step: SGNOX
    ready: PreparedSGNOX

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return batch(self, u[None])[0]


@prepare.register(SGNOX)
def _(step: SGNOX) -> Prepared:
    return Prepared(step, step.on_grid(step.grid.points))


@batch.register(SGNOX)
def _(step: SGNOX, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    step.check(u.shape[1:])
    return batch(step.on_grid(u.shape[2:]), u)


@batch.register(Prepared)
def _(step: Prepared, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
    if u.shape[2:] == step.step.grid.points:
        return batch(step.ready, u)
    return batch(step.step, u)


@states_at_once.register(Prepared)
def _(step: Prepared, points: tuple[int, ...]) -> int:
    del step
    return cached_states(points)


def _mixed_terms(count: int, channels: int) -> tuple[tuple[str, ...], ...]:
    """Products of two learned filters, channels in turn."""
    return tuple(
        (f"{j % channels}:mix{2 * j}", f"{j // channels % channels}:mix{2 * j + 1}") for j in range(count)
    )


def _start_filters(
    terms: Terms, points: tuple[int, ...], cutoff: tuple[int, ...], key: PRNGKeyArray
) -> np.ndarray | Array:
    """The factors' symbols, or, for factors called `mix`, random mixtures of all symbols scaled alike."""
    mask = below(points, cutoff)
    names = [name.split(":")[1] for name in terms.factors]
    if not any(name.startswith("mix") for name in names):
        return terms.start(points, cutoff)
    basis = np.stack([symbol(name, points) * mask for name in symbol_names(len(points))])
    basis /= np.abs(basis).max(axis=tuple(range(1, basis.ndim)), keepdims=True)
    return jnp.tensordot(jax.random.normal(key, (len(names), len(basis))), jnp.asarray(basis), axes=1)
