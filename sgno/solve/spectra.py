"""Spectral rollout diagnostics: where in frequency an error sits, and whether it is amplitude or phase.

All are computed in the one-sided representation of the real FFT, without reconstructing the
conjugate half, for every model alike.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sgno.spectral import multiplicity, to_modes, wavenumber_norm

EPSILON = 1e-12


class SpectralErrors(NamedTuple):
    """One number per trajectory. `phase` is NaN where no mode is strong enough to have a phase."""

    energy: Float[Array, " batch"]
    low: Float[Array, " batch"]
    mid: Float[Array, " batch"]
    high: Float[Array, " batch"]
    phase: Float[Array, " batch"]


def bands(points: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks of the low, mid and high thirds of the frequency radius."""
    r = wavenumber_norm(points)
    third = r.max() / 3
    return r <= third, (r > third) & (r <= 2 * third), r > 2 * third


def spectral_errors(
    prediction: Float[Array, "batch channels *points"], reference: Float[Array, "batch channels *points"]
) -> SpectralErrors:
    """Energy error, error of the low, mid and high band energies, and masked phase error.

        E_spec  = sum | |p|^2 - |q|^2 | / max(sum |q|^2, eps)
        E_band  = | sum_band |p|^2 - sum_band |q|^2 | / max(sum_band |q|^2, eps)
        E_phase = mean over |q| > tau of | arg(p conj q) |

    with p, q the coefficients of prediction and reference, sums over modes and channels, and
    tau = max(eps, 0.05 q75(|q|), 1e-3 max |q|) for each state.
    """
    points = reference.shape[2:]
    # Unnormalised coefficients, to which the paper's eps refers.
    p, q = (math.prod(points) * to_modes(u, points) for u in (prediction, reference))
    p_energy, q_energy = jnp.square(jnp.abs(p)), jnp.square(jnp.abs(q))
    axes = tuple(range(1, p.ndim))
    energy = jnp.sum(jnp.abs(p_energy - q_energy), axes) / jnp.maximum(jnp.sum(q_energy, axes), EPSILON)

    def band_error(mask):
        got, true = jnp.sum(p_energy * mask, axes), jnp.sum(q_energy * mask, axes)
        return jnp.abs(got - true) / jnp.maximum(true, EPSILON)

    low, mid, high = (band_error(jnp.asarray(mask)) for mask in bands(points))
    amplitude = jnp.abs(q)
    flat = amplitude.reshape(len(q), -1)
    tau = jnp.maximum(0.05 * jnp.quantile(flat, 0.75, axis=1), 1e-3 * jnp.max(flat, axis=1))
    mask = amplitude > jnp.maximum(tau, EPSILON).reshape(-1, *(1,) * (p.ndim - 1))
    difference = jnp.abs(jnp.angle(p * jnp.conj(q)))
    # 0/0 where no mode is above tau: NaN says that the step has no phase error.
    phase = jnp.sum(jnp.where(mask, difference, 0), axes) / jnp.sum(mask, axes)
    return SpectralErrors(energy, low, mid, high, phase)


def energy_spectrum(u: Float[Array, "batch channels *points"]) -> Float[Array, " radius"]:
    """Energy per integer shell of |k|, averaged over the batch; the same for a function on any grid."""
    points = u.shape[2:]
    shell = np.rint(wavenumber_norm(points)).astype(int)
    kept = min(points) // 2 + 1
    density = jnp.sum(jnp.square(jnp.abs(to_modes(u, points))) * multiplicity(points), axis=1)
    onto = jnp.asarray((shell.reshape(-1, 1) == np.arange(kept)).astype(np.float32), density.dtype)
    return jnp.mean(density.reshape(len(u), -1) @ onto, axis=0)
