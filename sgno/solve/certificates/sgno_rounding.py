"""How far an SGNO step evaluated in floating-point arithmetic can be from the same map in real arithmetic."""

import math
from typing import Any

import numpy as np

from sgno.nn.layer import unstack
from sgno.nn.sgno import PreparedSGNO, coordinate_channels
from sgno.solve.certificates.bounds import (
    GELU_ROUNDINGS,
    GELU_SLOPE,
    NORM_MARGIN,
    frobenius_norm,
    gamma,
    raised,
    spectral_norm,
)
from sgno.solve.certificates.sgno import SGNOConstants, coupling_matrices, split_rows, through_gelu

# Quantities below are affine in the norm of the state: `a |u| + b` is the vector `(a, b)`.
_STATE = np.array([1.0, 0.0])
_ONE = np.array([0.0, 1.0])


def sgno_rounding(
    step: PreparedSGNO, constants: SGNOConstants, points: tuple[int, ...], unit: float
) -> tuple[float, float]:
    """`(a, b)` with |fl(f)(u) - f(u)| <= a |u| + b for every state u, as long as nothing overflows.

    Errors of each operation are bounded in the order in which a layer computes them, and pass through the
    layers behind it with their Lipschitz constants:

        E_{l+1} = q_l E_l + (what layer l adds).

    **Arguments:**

    - `step`, `constants`: the prepared step, its leaves numpy arrays, and its constants.
    - `points`: the grid of the states.
    - `unit`: the unit roundoff u of the arithmetic, 2^-24 for float32.
    """
    channels = step.num_channels
    W = np.asarray(step.lift.weight, np.float64)
    b = _size(step.lift.bias)
    # Coordinates lie in [0, 1], or are pairs of sine and cosine: at most d in mean square.
    x = math.sqrt(len(points)) if coordinate_channels(step.coordinates, len(points)) else 0.0
    norm = spectral_norm(W[:, :channels]) * _STATE + (spectral_norm(W[:, channels:]) * x + b) * _ONE
    error = gamma(W.shape[1] + 4, unit) * (
        frobenius_norm(W[:, :channels]) * _STATE + (frobenius_norm(W[:, channels:]) * x + b) * _ONE
    )
    transform = transform_error(points, step.num_modes, unit)
    for layer, known in zip(unstack(step.layers), constants.layers, strict=True):
        norm, added = _layer(layer, known.activation, norm, error, transform, unit)
        error = known.sharp * error + added
    Q1, Q2 = step.head.first, step.head.second
    hidden, hidden_error = _affine(Q1.weight, Q1.bias, norm + error, unit)
    hidden_error = GELU_SLOPE * hidden_error + GELU_ROUNDINGS * unit * (hidden + hidden_error)
    out, out_error = _affine(Q2.weight, Q2.bias, hidden + hidden_error, unit)
    head_error = spectral_norm(np.asarray(Q2.weight)) * hidden_error + out_error
    error = through_gelu(Q1.weight, Q2.weight) * error + head_error
    total = error + unit * (_STATE + out + error)
    return raised(float(total[0])), raised(float(total[1]))


def transform_error(points: tuple[int, ...], num_modes: int, unit: float) -> float:
    """The relative error of a truncated transform, either way, in the L2 norm.

    Each coefficient is a sum of products along every axis with cosines and sines rounded to `unit`: gamma_n
    of the sum of moduli, n the length of the sums, with a factor 2 for the complex products along each
    further axis. M coefficients together: 2^d sqrt(M) gamma_n. The FFT, used for many modes, is better.
    """
    d = len(points)
    modes = 2 ** (d - 1) * num_modes**d
    return 2**d * math.sqrt(modes) * gamma(sum(points) + 4 * d, unit)


def _layer(
    layer, activation: float, norm: np.ndarray, error: np.ndarray, transform: float, unit: float
) -> tuple[np.ndarray, np.ndarray]:
    """A bound of the layer's exact output, and of what its own rounding adds to it."""
    B, W1 = split_rows(layer)
    bias = np.asarray(layer.bias, np.float64)
    width = len(B)
    seen = norm + error
    out, added = _affine(B, bias[:width], seen, unit)
    exact_out = spectral_norm(B) * norm + _size(bias[:width]) * _ONE
    carry = float(layer.spectral) if layer.carry is None else float(layer.carry.max())
    modes = carry * (1 + transform) * seen
    modes_error = carry * transform * seen + 2 * unit * modes
    exact_modes = carry * norm
    if W1 is not None:
        hidden, hidden_error = _affine(W1, bias[width:], seen, unit)
        hidden_error = GELU_SLOPE * hidden_error + GELU_ROUNDINGS * unit * (hidden + hidden_error)
        field, field_error = _affine(layer.second_weight, layer.second_bias, hidden + hidden_error, unit)
        field_error = field_error + spectral_norm(np.asarray(layer.second_weight)) * hidden_error
        computed = (1 + transform) * (field + field_error)
        field_error = field_error + transform * (field + field_error)
        # The pointwise update adds the field as it is; transforms that it does not have only loosen this.
        G = np.eye(width)[None] if layer.coupling is None else coupling_matrices(layer.coupling)
        coupling = spectral_norm(G)
        modes_error = modes_error + coupling * field_error
        modes_error = modes_error + 2 * gamma(2 * width + 2, unit) * frobenius_norm(G) * computed
        modes = modes + coupling * computed
        exact_hidden = spectral_norm(W1) * norm + _size(bias[width:]) * _ONE
        exact_field = spectral_norm(np.asarray(layer.second_weight)) * exact_hidden
        exact_modes = exact_modes + coupling * (exact_field + _size(layer.second_bias) * _ONE)
    branch_error = modes_error + transform * (modes + modes_error)
    total_error = added + branch_error + 2 * unit * (out + modes + branch_error)
    if activation != 1.0:
        total_error = activation * total_error + GELU_ROUNDINGS * unit * (out + modes + total_error)
    return exact_out + exact_modes, total_error


def _affine(weight: Any, bias: Any, norm: np.ndarray, unit: float) -> tuple[np.ndarray, np.ndarray]:
    """The norm of W v + b for |v| <= norm, and the rounding error of computing it."""
    weight = np.asarray(weight, np.float64)
    size = _size(bias) * _ONE
    error = gamma(weight.shape[1] + 1, unit) * (frobenius_norm(weight) * norm + size)
    return spectral_norm(weight) * norm + size, error


def _size(bias: Any) -> float:
    return float(np.linalg.norm(np.asarray(bias, np.float64))) * (1 + NORM_MARGIN)
