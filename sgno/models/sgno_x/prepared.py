"""SGNO-X with its coefficients computed: what runs, on the training grid or another one."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Inexact

from sgno.models.sgno_x.closure import Terms, products
from sgno.models.sgno_x.symbols import to_modes, to_points
from sgno.models.sgno_x.tableau import Tableau
from sgno.models.sgno_x.trapping import enter, project, sup_bound
from sgno.models.step import AbstractStep, Grid


class Weights(eqx.Module):
    """Everything learned, as plain multipliers on the modes of one grid.

    `Lambda` (generator), `m` (growth), `K` (linear coupling of channels), `D` (filters of the
    factors), `P` (what each product contributes to each channel), `f` (forcing), `T` (gain of the
    correction), `r` (trapping radii).
    """

    Lambda: Complex[Array, "channels *modes"]
    m: Float[Array, "channels *modes"]
    K: Inexact[Array, "channels channels *modes"] | None
    D: Complex[Array, "factors *modes"]
    P: Complex[Array, "channels terms *modes"]
    f: Complex[Array, "channels *modes"] | None
    T: Complex[Array, "channels *modes"]
    r: Float[Array, "channels *modes"] | None


class Sensitivity(NamedTuple):
    """One step with what it answers to: the next state and the responses to its weights, by mode."""

    v: Complex[Array, "batch channels *modes"]
    carry: Complex[Array, "batch channels *modes"]
    features: Complex[Array, "batch channels features *modes"]
    forcing: Complex[Array, "channels *modes"]
    correction: Complex[Array, "batch channels *modes"]


class PreparedSGNOX(AbstractStep):
    """S inner steps of an exponential Runge-Kutta scheme for

        dv/dt = (Lambda + m) v + n(v),   n(v) = K v + sum_j P_j q_j(v) + f,

    on one grid, every stage within the trapping set.
    """

    weights: Weights
    tableau: Tableau
    terms: Terms
    grid: Grid = eqx.field(static=True)
    inner_steps: int = eqx.field(static=True)

    def __init__(self, weights: Weights, terms: Terms, grid: Grid, *, inner_steps: int, stages: int):
        self.weights = weights
        self.tableau = Tableau(weights.Lambda + weights.m, inner_steps=inner_steps, stages=stages)
        self.terms = terms
        self.grid = grid
        self.inner_steps = inner_steps

    def __call__(self, u: Float[Array, "channels *points"]) -> Float[Array, "channels *points"]:
        return self.batch(u[None])[0]

    def batch(self, u: Float[Array, "batch channels *points"]) -> Float[Array, "batch channels *points"]:
        return to_points(self.advance(self.enter(u)), self.grid.points)

    def enter(self, u: Float[Array, "batch channels *points"]) -> Complex[Array, "batch channels *modes"]:
        """The amplitudes of a state, within the trapping set."""
        if self.weights.r is not None:
            u = enter(u, sup_bound(self.weights.r, self.grid.points))
        return self.inside(to_modes(u, self.grid.num_spatial_dims))

    def inside(self, v: Complex[Array, "batch channels *modes"]) -> Complex[Array, "batch channels *modes"]:
        return v if self.weights.r is None else project(v, self.weights.r)

    def advance(self, v: Complex[Array, "batch channels *modes"]) -> Complex[Array, "batch channels *modes"]:
        """One step in terms of amplitudes."""

        def inner(v, _):
            return self.tableau.advance(v, self._features, self._contract, self.weights.T, self.inside)[
                0
            ], None

        if self.inner_steps == 1:
            return inner(v, None)[0]
        return jax.lax.scan(inner, v, None, length=self.inner_steps)[0]

    def sensitivity(self, v: Complex[Array, "batch channels *modes"]) -> Sensitivity:
        """One step and, mode by mode, its response to the weights of that mode:

            d v+_c(k) / d(weight of channel c, mode k)

        for the factor exp((Lambda + m)/S), the weights K and P of the features, the forcing, and the gain.
        Responses by way of other modes are left out: they are of higher order.
        """
        tableau, T = self.tableau, self.weights.T

        def inner(carry, _):
            v, moved, features, forcing, correction = carry
            v_next, x, c = tableau.advance(v, self._features, self._contract, T, self.inside)
            return Sensitivity(
                v_next,
                tableau.decay * moved + v,
                tableau.decay[:, None] * features + tableau.response(x, T),
                tableau.decay * forcing + tableau.first,
                tableau.decay * correction + c,
            ), None

        num_features = self.linear_features + len(self.terms.products)
        batch, channels, *modes = v.shape
        zeros = jnp.zeros((batch, channels, num_features, *modes), dtype=v.dtype)
        first = Sensitivity(v, jnp.zeros_like(v), zeros, jnp.zeros_like(tableau.first), jnp.zeros_like(v))
        return jax.lax.scan(inner, first, None, length=self.inner_steps)[0]

    @property
    def linear_features(self) -> int:
        """How many features are the channels themselves, which only serve to couple them."""
        return 0 if self.weights.K is None else self.grid.channels

    def _features(
        self, v: Complex[Array, "batch channels *modes"]
    ) -> Complex[Array, "batch features *modes"]:
        linear = v[:, : self.linear_features]
        if not self.terms.products:
            return linear
        return jnp.concatenate([linear, products(v, self.weights.D, self.terms, self.grid.points)], axis=1)

    def _contract(
        self, x: Complex[Array, "batch features *modes"]
    ) -> Complex[Array, "batch channels *modes"]:
        # Sums of a few elementwise products: as a contraction batched over modes it would not vectorise.
        n = jnp.zeros_like(x, shape=(x.shape[0], *self.weights.Lambda.shape))
        if self.weights.f is not None:
            n = n + self.weights.f
        if self.weights.K is not None:
            for i in range(self.grid.channels):
                n = n + self.weights.K[:, i] * x[:, i, None]
        for j in range(len(self.terms.products)):
            n = n + self.weights.P[:, j] * x[:, self.linear_features + j, None]
        return n
