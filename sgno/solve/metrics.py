"""How far a prediction is from the reference, in space and in frequency, and the few numbers a table shows.

Spectral errors are computed in the one-sided representation of the real FFT, without reconstructing the
conjugate half, for every model alike. The scores are plain numpy; nothing is clipped or dropped.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sgno.spectral import multiplicity, to_modes, wavenumber_norm

EPSILON = 1e-12
HORIZON = 100


def nrmse(
    prediction: Float[Array, "batch channels *points"], reference: Float[Array, "batch channels *points"]
) -> Float[Array, " batch"]:
    """||prediction - reference||_2 / (||reference||_2 + 1e-12), over channels and points."""
    return _norm(prediction - reference) / (_norm(reference) + EPSILON)


def correlation(
    prediction: Float[Array, "batch channels *points"], reference: Float[Array, "batch channels *points"]
) -> Float[Array, " batch"]:
    """<prediction, reference> / (||prediction|| ||reference||): 1 for states of the same shape."""
    inner = jnp.sum(prediction * reference, axis=tuple(range(1, prediction.ndim)))
    return inner / (_norm(prediction) * _norm(reference) + EPSILON)


def _norm(u: Float[Array, "batch *state"]) -> Float[Array, " batch"]:
    return jnp.sqrt(jnp.sum(jnp.square(u), axis=tuple(range(1, u.ndim))))


class SpectralErrors(NamedTuple):
    """One number per trajectory. `phase` is NaN where no mode is strong enough to have a phase."""

    energy: Float[Array | np.ndarray, "*times batch"]
    low: Float[Array | np.ndarray, "*times batch"]
    mid: Float[Array | np.ndarray, "*times batch"]
    high: Float[Array | np.ndarray, "*times batch"]
    phase: Float[Array | np.ndarray, "*times batch"]


def bands(points: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks of the low, mid and high thirds of the frequency radius."""
    r = wavenumber_norm(points)
    third = r.max() / 3
    return r <= third, (r > third) & (r <= 2 * third), r > 2 * third


def shells(points: tuple[int, ...]) -> np.ndarray:
    """1 where a mode, one a row, lies in an integer shell of |k|, one a column: those every axis has."""
    shell = np.rint(wavenumber_norm(points)).astype(int)
    return (shell.reshape(-1, 1) == np.arange(min(points) // 2 + 1)).astype(np.float32)


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
    weight = jnp.asarray(multiplicity(points), u.dtype)
    density = jnp.sum(jnp.square(jnp.abs(to_modes(u, points))) * weight, axis=1)
    return jnp.mean(density.reshape(len(u), -1) @ jnp.asarray(shells(points), density.dtype), axis=0)


def mean_over_trajectories(errors: np.ndarray) -> np.ndarray:
    """`(times, trajectories) -> (times,)`; one non-finite trajectory makes the step non-finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(errors, np.float64).mean(axis=1)


def gmean(mean_nrmse: np.ndarray, up_to: int = HORIZON) -> float:
    """exp(mean(log(L_t + 1e-12))) over steps 1..up_to, or up to the last step there is.

    Non-finite if any of these steps is.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.exp(np.mean(np.log(np.asarray(mean_nrmse, np.float64)[:up_to] + EPSILON))))


def stable_step(mean_nrmse: np.ndarray, tau: float = 0.2) -> int:
    """How many steps the mean nRMSE stays at or below `tau` without a break; non-finite counts as above."""
    above = ~(np.asarray(mean_nrmse) <= tau)
    return int(np.argmax(above)) if above.any() else len(above)


def nonfinite_steps(errors: np.ndarray) -> int:
    """How many steps have at least one non-finite trajectory."""
    finite = np.isfinite(np.asarray(errors)).reshape(len(errors), -1).all(axis=1)
    return int((~finite).sum())


def spectral_averages(errors: SpectralErrors, up_to: int = HORIZON) -> dict[str, float]:
    """The mean of each spectral error over steps and trajectories; of the phase error, over those it has."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = {name: np.asarray(e, np.float64)[:up_to] for name, e in errors._asdict().items()}
        phase = found["phase"][~np.isnan(found["phase"])]
        means = {name: float(e.mean()) for name, e in found.items()}
    return {**means, "phase": float(phase.mean()) if phase.size else float("nan")}
