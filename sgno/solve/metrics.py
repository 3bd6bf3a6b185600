"""How far a prediction is from the reference, in space and in frequency, and the few numbers a table shows.

Spectral errors are computed in the one-sided representation of the real FFT, without reconstructing the
conjugate half, for every model alike. Errors of NumPy arrays are computed on the host, which compiles
nothing, those of JAX arrays by JAX. The scores are plain numpy; nothing is clipped or dropped.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from sgno.spectral import multiplicity, namespace, to_modes, wavenumber_norm
from sgno.spectral.bases import Either

EPSILON = 1e-12
HORIZON = 100


def nrmse(
    prediction: Float[Either, "batch channels *points"], reference: Float[Either, "batch channels *points"]
) -> Float[Either, " batch"]:
    """||prediction - reference||_2 / (||reference||_2 + 1e-12), over channels and points."""
    return _norm(prediction - reference) / (_norm(reference) + EPSILON)


def correlation(
    prediction: Float[Either, "batch channels *points"], reference: Float[Either, "batch channels *points"]
) -> Float[Either, " batch"]:
    """<prediction, reference> / (||prediction|| ||reference||): 1 for states of the same shape."""
    xp = namespace(prediction)
    inner = xp.sum(prediction * reference, axis=tuple(range(1, prediction.ndim)))
    return inner / (_norm(prediction) * _norm(reference) + EPSILON)


def _norm(u: Float[Either, "batch *state"]) -> Float[Either, " batch"]:
    xp = namespace(u)
    return xp.sqrt(xp.sum(xp.square(u), axis=tuple(range(1, u.ndim))))


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
    prediction: Float[Either, "batch channels *points"], reference: Float[Either, "batch channels *points"]
) -> SpectralErrors:
    """Energy error, error of the low, mid and high band energies, and masked phase error.

        E_spec  = sum | |p|^2 - |q|^2 | / max(sum |q|^2, eps)
        E_band  = | sum_band |p|^2 - sum_band |q|^2 | / max(sum_band |q|^2, eps)
        E_phase = mean over |q| > tau of | arg(p conj q) |

    with p, q the coefficients of prediction and reference, sums over modes and channels, and
    tau = max(eps, 0.05 q75(|q|), 1e-3 max |q|) for each state.
    """
    xp, points = namespace(reference), reference.shape[2:]
    # Unnormalised coefficients, to which the paper's eps refers.
    p, q = (math.prod(points) * to_modes(u, points) for u in (prediction, reference))
    p_energy, q_energy = xp.square(xp.abs(p)), xp.square(xp.abs(q))
    axes = tuple(range(1, p.ndim))
    energy = xp.sum(xp.abs(p_energy - q_energy), axes) / xp.maximum(xp.sum(q_energy, axes), EPSILON)

    def band_error(mask):
        got, true = xp.sum(p_energy * mask, axes), xp.sum(q_energy * mask, axes)
        return xp.abs(got - true) / xp.maximum(true, EPSILON)

    low, mid, high = (band_error(xp.asarray(mask)) for mask in bands(points))
    amplitude = xp.abs(q)
    flat = amplitude.reshape(len(q), -1)
    tau = xp.maximum(0.05 * xp.quantile(flat, 0.75, axis=1), 1e-3 * xp.max(flat, axis=1))
    mask = amplitude > xp.maximum(tau, EPSILON).reshape(-1, *(1,) * (p.ndim - 1))
    difference = xp.abs(xp.angle(p * xp.conj(q)))
    # 0/0 where no mode is above tau: NaN says that the step has no phase error.
    phase = xp.sum(xp.where(mask, difference, 0), axes) / xp.sum(mask, axes)
    return SpectralErrors(energy, low, mid, high, phase)


def energy_spectra(u: Float[Either, "batch channels *points"]) -> Float[Either, "batch radius"]:
    """Energy per integer shell of |k| of each state; the same for a function on any grid."""
    xp, points = namespace(u), u.shape[2:]
    weight = xp.asarray(multiplicity(points), dtype=u.dtype)
    density = xp.sum(xp.square(xp.abs(to_modes(u, points))) * weight, axis=1)
    return density.reshape(len(u), -1) @ xp.asarray(shells(points), dtype=density.dtype)


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
