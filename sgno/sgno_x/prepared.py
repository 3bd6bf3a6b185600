"""SGNO-X with its coefficients computed: what runs, on the training grid or another one."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Inexact

from sgno.grid import Grid
from sgno.sgno_x.closure import Terms, products
from sgno.sgno_x.tableau import Features, State, Tableau
from sgno.sgno_x.trapping import enter, project, sup_bound
from sgno.spectral import to_modes, to_points
from sgno.step import batch


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


class PreparedSGNOX(eqx.Module):
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
        return batch(self, u[None])[0]

    def enter(self, u: Float[Array, "batch channels *points"]) -> Complex[Array, "batch channels *modes"]:
        """The amplitudes of a state, within the trapping set."""
        if self.weights.r is not None:
            u = enter(u, sup_bound(self.weights.r, self.grid.points))
        return self.inside(to_modes(u, self.grid.points))

    def inside(self, v: Complex[Array, "batch channels *modes"]) -> Complex[Array, "batch channels *modes"]:
        return v if self.weights.r is None else project(v, self.weights.r)

    def advance(self, v: Complex[Array, "batch channels *modes"]) -> Complex[Array, "batch channels *modes"]:
        """One step in terms of amplitudes."""

        features, contract = self._closure()

        def inner(v, _):
            return self.tableau.advance(v, features, contract, self.weights.T, self.inside)[0], None

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
        features, contract = self._closure()
        num_features = self.linear_features + len(self.terms.products)

        def inner(carry, _):
            v, moved, answers, forcing, correction = carry
            v_next, x, c = tableau.advance(v, features, contract, T, self.inside)
            return Sensitivity(
                v_next,
                tableau.decay * moved + v,
                tableau.decay[:, None] * answers + (tableau.response(x, T) if num_features else 0),
                tableau.decay * forcing + tableau.first,
                tableau.decay * correction + c,
            ), None

        batch, channels, *modes = v.shape
        zeros = jnp.zeros((batch, channels, num_features, *modes), dtype=v.dtype)
        first = Sensitivity(v, jnp.zeros_like(v), zeros, jnp.zeros_like(tableau.first), jnp.zeros_like(v))
        return jax.lax.scan(inner, first, None, length=self.inner_steps)[0]

    @property
    def linear_features(self) -> int:
        """How many features are the channels themselves, which only serve to couple them."""
        return 0 if self.weights.K is None else self.grid.channels

    def _closure(self) -> tuple[Callable[[State], Features], Callable[[Features], Array]]:
        """The features of a state (its channels if they are coupled, then the products), and what they
        contribute: n(v) = contract(features(v)), without a batch axis where there are no features."""
        w = self.weights
        # Weights as arrays of their own, taken apart here and not in the inner steps: the gradient of a slice
        # is a padded sum, which took longer there than all transforms.
        filters = [w.D[a] for a in range(len(self.terms.factors))]
        columns = [] if w.K is None else [w.K[:, i] for i in range(self.linear_features)]
        columns += [w.P[:, j] for j in range(len(self.terms.products))]

        def features(v: State) -> Features:
            linear = [v[:, i] for i in range(self.linear_features)]
            return linear + products(v, filters, self.terms, self.grid.points)

        def contract(x: Features) -> Array:
            # Sums of a few elementwise products: as a contraction batched over modes it would not vectorise.
            n = jnp.zeros_like(w.Lambda) if w.f is None else w.f
            return sum((column * one[:, None] for column, one in zip(columns, x, strict=True)), start=n)

        return features, contract


@batch.register(PreparedSGNOX)
def _(
    step: PreparedSGNOX, u: Float[Array, "batch channels *points"]
) -> Float[Array, "batch channels *points"]:
    return to_points(step.advance(step.enter(u)), step.grid.points)
