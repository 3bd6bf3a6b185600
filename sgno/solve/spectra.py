"""Spectral rollout diagnostics: where in frequency an error sits, and whether it is amplitude or phase.

All are computed in the one-sided representation of the real FFT, without reconstructing the
conjugate half, for every model alike.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

EPSILON = 1e-12


class SpectralErrors(NamedTuple):
    """One number per trajectory. `phase` is NaN where no mode is strong enough to have a phase."""

    energy: Float[Array, " batch"]
    low: Float[Array, " batch"]
    mid: Float[Array, " batch"]
    high: Float[Array, " batch"]
    phase: Float[Array, " batch"]


def frequency_radius(points: tuple[int, ...]) -> np.ndarray:
    """r(k) = |k|_2 on the grid of `rfftn`."""
    axes = [np.fft.fftfreq(n, 1 / n) for n in points[:-1]] + [np.fft.rfftfreq(points[-1], 1 / points[-1])]
    return np.sqrt(sum(k**2 for k in np.meshgrid(*axes, indexing="ij")))


def bands(points: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks of the low, mid and high thirds of the frequency radius."""
    r = frequency_radius(points)
    third = r.max() / 3
    return r <= third, (r > third) & (r <= 2 * third), r > 2 * third


def coefficients(u: Float[Array, "batch channels *points"]) -> Complex[Array, "batch channels *modes"]:
    """The one-sided real FFT over the grid axes."""
    return jnp.fft.rfftn(u, axes=tuple(range(2, u.ndim)))


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
    p, q = coefficients(prediction), coefficients(reference)
    p_energy, q_energy = jnp.square(jnp.abs(p)), jnp.square(jnp.abs(q))
    axes = tuple(range(1, p.ndim))
    energy = jnp.sum(jnp.abs(p_energy - q_energy), axes) / jnp.maximum(jnp.sum(q_energy, axes), EPSILON)

    def band_error(mask):
        got, true = jnp.sum(p_energy * mask, axes), jnp.sum(q_energy * mask, axes)
        return jnp.abs(got - true) / jnp.maximum(true, EPSILON)

    low, mid, high = (band_error(jnp.asarray(mask)) for mask in bands(reference.shape[2:]))
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
    shell = np.rint(frequency_radius(points)).astype(int)
    kept = min(points) // 2 + 1
    weight = np.full(shell.shape, 2.0)
    weight[..., 0] = 1.0
    if points[-1] % 2 == 0:
        weight[..., -1] = 1.0
    density = jnp.sum(jnp.square(jnp.abs(coefficients(u))) * weight, axis=1) / np.prod(points) ** 2
    onto = jnp.asarray((shell.reshape(-1, 1) == np.arange(kept)).astype(np.float32), density.dtype)
    return jnp.mean(density.reshape(len(u), -1) @ onto, axis=0)
