"""The generator of the carry: damping that is never negative, dispersion, and bounded growth."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Inexact, PRNGKeyArray

from sgno.sgno_x.multiplier import Multiplier

# A mode grows by at most a factor e in one step.
GROWTH_BOUND = 1.0
COUPLING_BOUND = 1.0
# Damping starts above zero by this much, where -|x| still has a gradient.
_NEUTRAL = 1e-9


class Generator(eqx.Module):
    """Lambda(k) = -|Re w(k)| + i Im w(k), so that |exp(Lambda(k))| <= 1 whatever the weights.

    The modulus, and not a softplus, because undamped modes are the rule (advection, dispersion): -|x|
    reaches zero and keeps its gradient there.
    """

    w: Multiplier

    def __init__(self, L: np.ndarray, unit: np.ndarray | float, *, real: bool):
        """From the rates `L`, whose growth (positive real part) is left out."""
        damping = np.maximum(-np.real(L), _NEUTRAL)
        self.w = Multiplier(damping + 1j * np.imag(L), unit, real=real)

    def __call__(self) -> Complex[Array, "channels *modes"]:
        w = self.w()
        return jax.lax.complex(-jnp.abs(w.real), jnp.imag(w))


class Growth(eqx.Module):
    """m(k) = min(|w(k)|, 1) >= 0: what a nonpositive generator may not carry, such as the unstable band of
    Kuramoto-Sivashinsky. The step multiplies a mode by

        exp(Lambda + m) = exp(Lambda) + M,   M = exp(Lambda) (exp(m) - 1),   |M| <= e - 1:

    the nonexpansive carry and a bounded linear correction, which the trapping set contains.
    """

    w: Multiplier

    def __init__(self, L: np.ndarray, unit: np.ndarray | float):
        """From the rates `L`, of which this is the positive real part."""
        self.w = Multiplier(np.maximum(np.real(L), _NEUTRAL), unit, real=True)

    def __call__(self) -> Float[Array, "channels *modes"]:
        return jnp.minimum(jnp.abs(self.w()), GROWTH_BOUND)


class Coupling(eqx.Module):
    """K_cd(k), what channel d contributes linearly to channel c != d; |K_cd(k)| <= 1."""

    w: Multiplier

    def __init__(self, K: np.ndarray, unit: np.ndarray | float, *, real: bool):
        self.w = Multiplier(K, unit, real=real)

    def __call__(self) -> Inexact[Array, "out channels *modes"]:
        K = self.w()
        power = jnp.real(K) ** 2 + jnp.imag(K) ** 2
        outside = power > COUPLING_BOUND**2
        K = K * jnp.where(outside, COUPLING_BOUND * jax.lax.rsqrt(jnp.where(outside, power, 1.0)), 1.0)
        return K * (1 - jnp.eye(K.shape[0])).reshape(*K.shape[:2], *(1,) * (K.ndim - 2))


class LatentCarry(eqx.Module):
    """The carry of the paper, for comparison: the state plus latent copies moved by generators of their own,

        v -> v + sum_w q_w exp(h Lambda_w) p_w v,

    the state itself carried by the identity.
    """

    lift: Float[Array, "channels width"]
    project: Float[Array, "channels width"]

    def __init__(self, channels: int, width: int, *, key: PRNGKeyArray):
        lift_key, project_key = jax.random.split(key)
        self.lift = jax.random.normal(lift_key, (channels, width)) / np.sqrt(width)
        self.project = jax.random.normal(project_key, (channels, width)) / np.sqrt(width)

    def __call__(
        self, Lambda: Complex[Array, "channels width *modes"], h: float
    ) -> Complex[Array, "channels *modes"]:
        """The factor by which a time `h` multiplies each mode."""
        return 1 + jnp.einsum("cw,cw...->c...", self.lift * self.project, jnp.exp(h * Lambda))

    def copies(self, rates: np.ndarray) -> np.ndarray:
        """The rates of the state as those of each of its copies, `(channels, width, *modes)`."""
        return np.repeat(rates[:, None], self.lift.shape[1], axis=1)
