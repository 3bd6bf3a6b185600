"""The trapping set: a bounded set of states that no step leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int16

from sgno.spectral import multiplicity, namespace
from sgno.spectral.bases import AnyArray
from sgno.step import LARGEST

# Radii are kept as quarters of powers of two, rounded up: 19 % at most above what was asked for.
_PER_OCTAVE = 4
# The smallest radius that is made is the smallest number of float32 times the margin.
_MOST_OCTAVES = 126
# A mode that the training data hardly excite may still reach this fraction of the strongest mode.
_FLOOR = 1e-4


class TrappingSet(eqx.Module):
    """B = { u : |u^_c(k)| <= r_c(k) for every channel c and mode k }, amplitudes of the forward FFT.

    **Bounded for ever.** `project` maps every array of coefficients, whatever its values, into B: the parts
    are first clipped to [-r, r] (a number that is not one becomes 0), then the modulus to r. A step ends
    with `project`, so its result lies in B for every input, and by induction so does every later state. By
    Parseval, with m(k) the multiplicity of a mode,

        mean_x |u_c(x)|² = sum_k m(k) |u^_c(k)|² <= sum_k m(k) r_c(k)² = rms_bound_c²,
        max_x |u_c(x)|   <= sum_k m(k) |u^_c(k)| <= sum_k m(k) r_c(k)  = sup_bound_c,

    for any number of steps, from any input. Stages inside a step are projected too, so that the closure is
    only ever evaluated on B, where its value is finite.

    **Harmless inside.** On B, `project` and `enter` are the identity. Clipping to a box and to a disc are
    both projections onto closed convex sets that contain B, so each moves no two points apart: as the paper's
    carry, they are nonexpansive, and the step keeps its Lipschitz constant.
    """

    exponent: Int16[AnyArray, "channels *modes"]
    points: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, envelope: Float[np.ndarray, "channels *modes"], margin: float, points: tuple[int, ...]
    ):
        """A set that reaches `margin` times as far as `envelope`, the largest amplitudes seen."""
        axes = tuple(range(1, envelope.ndim))
        reach = np.maximum(envelope, _FLOOR * envelope.max(axis=axes, keepdims=True))
        radius = margin * np.maximum(reach, np.finfo(np.float32).tiny)
        self.exponent = jax.device_put(np.ceil(_PER_OCTAVE * np.log2(radius)).astype(np.int16))
        self.points = points

    def fits(self) -> bool:
        """Whether the squares of all radii, and of their sum, are numbers of float32."""
        exponent = np.asarray(self.exponent, np.float64)
        with np.errstate(over="ignore"):
            reach = np.sum(multiplicity(self.points) * np.exp2(exponent / _PER_OCTAVE))
        return bool(exponent.min() >= -_MOST_OCTAVES * _PER_OCTAVE and reach <= LARGEST)

    def radius(self) -> Float[AnyArray, "channels *modes"]:
        """r_c(k)."""
        return namespace(self.exponent).exp2(self.exponent.astype(np.float32) / np.float32(_PER_OCTAVE))

    def rms_bound(self) -> Float[Array, " channels"]:
        """No state's root mean square in this channel exceeds this."""
        axes = tuple(range(1, self.exponent.ndim))
        radius = self.radius()
        return jnp.sqrt(jnp.sum(multiplicity(self.points).astype(radius.dtype) * radius**2, axis=axes))

    def sup_bound(self) -> Float[Array, " channels"]:
        """No state's value in this channel exceeds this."""
        return sup_bound(self.radius(), self.points)


def sup_bound(radius: Float[Array, "channels *modes"], points: tuple[int, ...]) -> Float[Array, " channels"]:
    """sum_k m(k) r_c(k): the largest value that a field within the radii can take."""
    m = multiplicity(points).astype(radius.dtype)
    return jnp.sum(m * radius, axis=tuple(range(1, radius.ndim)))


def enter(u: Float[Array, "batch channels *points"], bound: Float[Array, " channels"]):
    """A state of finite values within `bound`: what is not a number becomes 0, what is too large the bound.

    Inputs are clipped before their transform, which would turn one infinite value into a field of NaN.
    """
    bound = bound.reshape(-1, *(1,) * (u.ndim - 2))
    return jnp.clip(jnp.where(jnp.isnan(u), 0.0, u), -bound, bound)


def project(
    v: Complex[Array, "batch channels *modes"], radius: Float[Array, "channels *modes"]
) -> Complex[Array, "batch channels *modes"]:
    """Into the box |Re|, |Im| <= r, then into the disc |v| <= r; the identity inside the disc."""
    real, imag = (jnp.clip(jnp.where(jnp.isnan(x), 0.0, x), -radius, radius) for x in (v.real, v.imag))
    power = real**2 + imag**2
    outside = power > radius**2
    # The gradient of rsqrt at 0 is not finite even under `where`, so replace the power first.
    shrink = jnp.where(outside, radius * jax.lax.rsqrt(jnp.where(outside, power, 1.0)), 1.0)
    return jax.lax.complex(shrink * real, shrink * imag)


def touches(
    v: Complex[Array, "batch channels *modes"], radius: Float[Array, "channels *modes"]
) -> Float[Array, " batch"]:
    """The fraction of modes of each state that lie on or outside the set's edge, up to rounding."""
    outside = jnp.abs(v) >= radius * (1 - 1e-5)
    return outside.reshape(v.shape[0], -1).mean(axis=1)
