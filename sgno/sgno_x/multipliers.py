"""Learned Fourier multipliers: rates that cannot grow, bounded growth, bounded coupling.

Multipliers of NumPy arrays are computed on the host, which compiles nothing, those of JAX arrays by JAX.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Inexact, Int8

from sgno.spectral import namespace
from sgno.spectral.bases import AnyArray

# A mode grows by at most a factor e in one step.
GROWTH_BOUND = 1.0
COUPLING_BOUND = 1.0
# Damping and growth start this far above zero, where the modulus still has a gradient.
_ABOVE_ZERO = 1e-9


class Multiplier(eqx.Module):
    """w(k) = 2^unit(k) (real(k) + i imag(k)), or real altogether.

    The unit is a fixed integer for each number, set by the start: about the change of `w(k)` that would by
    itself explain what the start leaves unexplained. An optimiser whose steps have the size of its rate
    (Adam) then moves every multiplier in proportion to its uncertainty: hardly at all where least squares
    already reached the rounding errors of the data.
    """

    real: Float[AnyArray, "*shape"]
    imag: Float[AnyArray, "*shape"] | None
    unit: Int8[AnyArray, "*shape"]

    def __init__(self, value: np.ndarray | Array, unit: np.ndarray | float = 1.0, *, real: bool = False):
        # Host arrays stay on the host: each operation of JAX would be a program of its own to compile.
        xp = np if isinstance(value, np.ndarray) else jnp
        exponent = np.clip(np.floor(np.log2(np.maximum(unit, 1e-30))), -100, 100)
        exponent = np.broadcast_to(exponent, value.shape)
        inverse = (2.0**-exponent).astype(np.float32)
        self.real = jax.device_put(inverse * xp.real(value).astype(np.float32))
        self.imag = None if real else jax.device_put(inverse * xp.imag(value).astype(np.float32))
        self.unit = jax.device_put(exponent.astype(np.int8))

    def __call__(self) -> Inexact[AnyArray, "*shape"]:
        scale = self.scale()
        if self.imag is None:
            return scale * self.real
        return _complex(scale * self.real, scale * self.imag)

    def scale(self) -> Float[AnyArray, "*shape"]:
        """2^unit."""
        return namespace(self.unit).exp2(self.unit.astype(self.real.dtype))


class Rates(eqx.Module):
    """Lambda(k) = -|Re w(k)| + i Im w(k), so that |exp(Lambda(k))| <= 1 whatever the weights.

    The modulus, and not a softplus, because undamped modes are common (advection, dispersion): -|x| reaches
    zero and keeps its gradient there.
    """

    w: Multiplier

    def __init__(self, L: np.ndarray, unit: np.ndarray | float, *, real: bool):
        """From rates `L`, of which growth (a positive real part) is left out."""
        damping = np.maximum(-np.real(L), _ABOVE_ZERO)
        self.w = Multiplier(damping + 1j * np.imag(L), unit, real=real)

    def __call__(self) -> Complex[AnyArray, "channels *modes"]:
        w = self.w()
        return _complex(-namespace(w).abs(w.real), w.imag)


class Growth(eqx.Module):
    """m(k) = min(|w(k)|, 1) >= 0: what nonpositive rates cannot carry, such as the unstable band of
    Kuramoto-Sivashinsky. The step multiplies a mode by

        exp(Lambda + m) = exp(Lambda) + M,   M = exp(Lambda) (exp(m) - 1),   |M| <= e - 1:

    the nonexpansive carry and a bounded linear correction, which the trapping set contains.
    """

    w: Multiplier

    def __init__(self, L: np.ndarray, unit: np.ndarray | float):
        """From rates `L`, of which this is the positive real part."""
        self.w = Multiplier(np.maximum(np.real(L), _ABOVE_ZERO), unit, real=True)

    def __call__(self) -> Float[AnyArray, "channels *modes"]:
        w = self.w()
        xp = namespace(w)
        return xp.minimum(xp.abs(w), GROWTH_BOUND)


class Coupling(eqx.Module):
    """K_cd(k), what channel d contributes linearly to channel c != d; |K_cd(k)| <= 1."""

    w: Multiplier

    def __init__(self, K: np.ndarray, unit: np.ndarray | float, *, real: bool):
        self.w = Multiplier(K, unit, real=real)

    def __call__(self) -> Inexact[AnyArray, "out channels *modes"]:
        K = self.w()
        xp = namespace(K)
        power = xp.real(K) ** 2 + xp.imag(K) ** 2
        outside = power > COUPLING_BOUND**2
        K = K * xp.where(outside, COUPLING_BOUND / xp.sqrt(xp.where(outside, power, 1.0)), 1.0)
        others = (1 - np.eye(K.shape[0])).astype(power.dtype)
        return K * others.reshape(*K.shape[:2], *(1,) * (K.ndim - 2))


def _complex(real: Any, imag: Any) -> Any:
    return real + 1j * imag if isinstance(real, np.ndarray) else jax.lax.complex(real, imag)
