"""Exponential Runge-Kutta steps of one, two and four stages for the form on one grid."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Inexact

from sgno.sgno_x.closure import Terms, products
from sgno.sgno_x.trapping import enter, project, sup_bound
from sgno.spectral import namespace, phi1, phi2, phi3, to_modes
from sgno.spectral.bases import AnyArray

State = Complex[Array, "batch channels *modes"]
Features = list[Complex[Array, "batch *modes"]]


class Multipliers(eqx.Module):
    """Everything learned, on the modes of one grid.

    `Lambda` (rates), `m` (growth), `K` (linear coupling of channels), `D` (filters of the factors), `P` (what
    each product contributes to each channel), `f` (forcing), `T` (gain of the correction), `r` (trapping
    radii).
    """

    Lambda: Complex[AnyArray, "channels *modes"]
    m: Float[AnyArray, "channels *modes"]
    K: Inexact[AnyArray, "channels channels *modes"] | None
    D: Complex[AnyArray, "factors *modes"]
    P: Complex[AnyArray, "channels terms *modes"]
    f: Complex[AnyArray, "channels *modes"] | None
    T: Complex[AnyArray, "channels *modes"]
    r: Float[AnyArray, "channels *modes"] | None


class Closure(NamedTuple):
    """n(v) = contract(features(v)), where `contract` is linear.

    Features are the channels, if they are coupled, and then the products. Without any, `contract` has no
    batch axis.
    """

    features: Callable[[State], Features]
    contract: Callable[[Features], Array]


class Scheme(eqx.Module):
    """The coefficients of one inner step of length h = 1/S for

        dv/dt = (Lambda + m) v + n(v),   n(v) = K v + sum_j P_j q_j(v) + f.

    With z = h (Lambda + m),

        a  = e^z v + h phi_1(z) n(v)
        v+ = a + T c(v),

    where the correction `c` is nothing (one stage), `h phi_2(z) (n(a) - n(v))` (two stages: ETDRK2 of Cox
    and Matthews at T = 1), or that of their fourth-order scheme (four stages: ETDRK4 at T = 1). The gain
    `T(k)` is learned: it lets two stages match data of a solver with other coefficients. Every stage and the
    result are projected onto the trapping set.
    """

    w: Multipliers
    decay: Complex[AnyArray, "channels *modes"]
    half_decay: Complex[AnyArray, "channels *modes"]
    first: Complex[AnyArray, "channels *modes"]
    half: Complex[AnyArray, "channels *modes"]
    middle: Complex[AnyArray, "channels *modes"]
    last: Complex[AnyArray, "channels *modes"]
    terms: Terms
    points: tuple[int, ...] = eqx.field(static=True)
    stages: int = eqx.field(static=True)

    def __init__(
        self, w: Multipliers, terms: Terms, points: tuple[int, ...], *, inner_steps: int | Array, stages: int
    ):
        h = 1 / inner_steps
        z = h * (w.Lambda + w.m)
        p2, p3 = phi2(z), phi3(z)
        self.w = w
        xp = namespace(z)
        self.decay = xp.exp(z)
        self.half_decay = xp.exp(z / 2)
        self.first = h * phi1(z)
        self.half = h / 2 * phi1(z / 2)
        self.middle = h * (2 * p2 - 4 * p3)
        self.last = h * p2 if stages == 2 else h * (4 * p3 - p2)
        self.terms = terms
        self.points = points
        self.stages = stages

    def enter(self, u: Float[Array, "batch channels *points"]) -> State:
        """The amplitudes of a state, within the trapping set."""
        if self.w.r is not None:
            u = enter(u, sup_bound(self.w.r, self.points))
        return self.inside(to_modes(u, self.points))

    def inside(self, v: State) -> State:
        """The projection onto the trapping set, if there is one."""
        return v if self.w.r is None else project(v, self.w.r)

    def closure(self) -> Closure:
        """The closure, for use in `inner`."""
        w, num_terms = self.w, len(self.terms.products)
        # Weights as arrays of their own, taken apart here and not in the inner steps: the gradient of a slice
        # is a padded sum, which took longer there than all transforms.
        filters = [w.D[a] for a in range(len(self.terms.factors))]
        coupled = 0 if w.K is None else w.K.shape[1]
        columns = [] if w.K is None else [w.K[:, i] for i in range(coupled)]
        columns += [w.P[:, j] for j in range(num_terms)]

        def features(v: State) -> Features:
            return [v[:, i] for i in range(coupled)] + products(v, filters, self.terms, self.points)

        def contract(x: Features) -> Array:
            # Sums of a few elementwise products: as a contraction batched over modes it would not vectorise.
            n = jnp.zeros_like(w.Lambda) if w.f is None else w.f
            return sum((column * one[:, None] for column, one in zip(columns, x, strict=True)), start=n)

        return Closure(features, contract)

    def inner(self, v: State, closure: Closure) -> tuple[State, list[Features], State]:
        """One inner step.

        **Returns:** the next state, the features of every stage, and the correction `c`.
        """
        features, inside, T = closure.features, self.inside, self.w.T
        n = lambda x: jnp.broadcast_to(closure.contract(x), v.shape)
        x1 = features(v)
        n1 = n(x1)
        a = self.decay * v + self.first * n1
        if self.stages == 1:
            return inside(a), [x1], jnp.zeros_like(a)
        if self.stages == 2:
            x2 = features(inside(a))
            c = self.last * (n(x2) - n1)
            return inside(a + T * c), [x1, x2], c
        half_v = self.half_decay * v
        a2 = inside(half_v + self.half * n1)
        x2 = features(a2)
        n2 = n(x2)
        x3 = features(inside(half_v + self.half * n2))
        n3 = n(x3)
        x4 = features(inside(self.half_decay * a2 + self.half * (2 * n3 - n1)))
        c = self.middle * (n2 + n3 - 2 * n1) + self.last * (n(x4) - n1)
        return inside(a + T * c), [x1, x2, x3, x4], c

    def advance(self, v: State, inner_steps: int | Array) -> State:
        """`S` inner steps: one step of the data. Reverse-mode gradients need `S` as a number."""
        closure = self.closure()
        return jax.lax.fori_loop(0, inner_steps, lambda _, v: self.inner(v, closure)[0], v)
