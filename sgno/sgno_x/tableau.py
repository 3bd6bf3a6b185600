"""Exponential Runge-Kutta steps of one, two and four stages, for any complex generator."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex

from sgno.spectral import phi1, phi2, phi3

Features = list[Complex[Array, "batch *modes"]]
State = Complex[Array, "batch channels *modes"]


class Tableau(eqx.Module):
    """The coefficients of one inner step of length h = 1/S for the generator Lambda, z = h Lambda:

        a  = e^z v + h phi_1(z) n(v)
        v+ = a + T c(v),

    where the correction `c` is nothing (one stage), `h phi_2(z) (n(a) - n(v))` (two stages: ETDRK2 of Cox
    and Matthews at T = 1), or that of their fourth-order scheme (four stages: ETDRK4 at T = 1). The gain
    `T(k)` is learned: it is what lets two stages match data of a solver with other coefficients.
    """

    decay: Complex[Array, "channels *modes"]
    half_decay: Complex[Array, "channels *modes"]
    first: Complex[Array, "channels *modes"]
    half: Complex[Array, "channels *modes"]
    middle: Complex[Array, "channels *modes"]
    last: Complex[Array, "channels *modes"]
    stages: int = eqx.field(static=True)

    def __init__(self, Lambda: Complex[Array, "channels *modes"], *, inner_steps: int, stages: int):
        h = 1 / inner_steps
        z = h * Lambda
        p2, p3 = phi2(z), phi3(z)
        self.decay = jnp.exp(z)
        self.half_decay = jnp.exp(z / 2)
        self.first = h * phi1(z)
        self.half = h / 2 * phi1(z / 2)
        self.middle = h * (2 * p2 - 4 * p3)
        self.last = h * p2 if stages == 2 else h * (4 * p3 - p2)
        self.stages = stages

    def advance(
        self,
        v: State,
        features: Callable[[State], Features],
        contract: Callable[[Features], Array],
        gain: Complex[Array, "channels *modes"],
        inside: Callable[[State], State],
    ) -> tuple[State, list[Features], State]:
        """One inner step.

        **Arguments:**

        - `features`, `contract`: the closure is `n(v) = contract(features(v))`, `contract` linear.
        - `gain`: T.
        - `inside`: the projection onto the trapping set, applied to every stage and to the result.

        **Returns:** the next state; the features of every stage, for `response`; and the correction `c`.
        """
        # Without features the closure has no batch axis.
        n = lambda x: jnp.broadcast_to(contract(x), v.shape)
        x1 = features(v)
        n1 = n(x1)
        linear = self.decay * v
        a = linear + self.first * n1
        if self.stages == 1:
            return inside(a), [x1], jnp.zeros_like(a)
        if self.stages == 2:
            x2 = features(inside(a))
            c = self.last * (n(x2) - n1)
            return inside(a + gain * c), [x1, x2], c
        half_v = self.half_decay * v
        a2 = inside(half_v + self.half * n1)
        x2 = features(a2)
        n2 = n(x2)
        x3 = features(inside(half_v + self.half * n2))
        n3 = n(x3)
        x4 = features(inside(self.half_decay * a2 + self.half * (2 * n3 - n1)))
        c = self.middle * (n2 + n3 - 2 * n1) + self.last * (n(x4) - n1)
        return inside(a + gain * c), [x1, x2, x3, x4], c

    def response(
        self, x: list[Features], gain: Complex[Array, "channels *modes"]
    ) -> Complex[Array, "batch channels features *modes"]:
        """How the result of one inner step answers to the weight of each feature in each channel, the
        answer of the other stages' features to that weight left out: the features seen through the step."""

        x1, *later = (jnp.stack(features, axis=1)[:, None] for features in x)
        answer = self.first[:, None] * x1
        if self.stages == 2:
            answer += (gain * self.last)[:, None] * (later[0] - x1)
        elif self.stages == 4:
            answer += (gain * self.middle)[:, None] * (later[0] + later[1] - 2 * x1)
            answer += (gain * self.last)[:, None] * (later[2] - x1)
        return answer
