"""The constants of a trained SGNO: what the paper's propositions mean for these weights."""

import dataclasses
from typing import Any

import numpy as np

from sgno.nn.layer import PreparedLayer, unstack
from sgno.nn.sgno import PreparedSGNO
from sgno.solve.certificates.bounds import GELU_SLOPE, raised, spectral_norm, through_gelu


@dataclasses.dataclass(frozen=True)
class LayerConstants:
    """Upper bounds of one layer, gelu(B v + S v + Phi R A C(v)).

    - `carry`: max |exp(lambda)|, the norm of S; at most 1 unless the generator is unconstrained.
    - `coupling`: max_k ||Phi R A(k)||_2 of the product as it runs; the paper bounds it by r mu.
    - `correction`: Lip(C).
    - `linear`: the norm of B + S, never above ||B|| + 1.
    - `lipschitz`: q = Lip(gelu) (linear + coupling correction), without Lip(gelu) on the last layer.
    """

    carry: float
    coupling: float
    correction: float
    linear: float
    lipschitz: float


@dataclasses.dataclass(frozen=True)
class SGNOConstants:
    """Lip(f) <= step = 1 + head (prod q) lift, in the discrete L2 norm.

    Coordinates are constant, so they drop out of differences of states.
    """

    layers: tuple[LayerConstants, ...]
    lift: float
    head: float
    step: float


def sgno_constants(step: PreparedSGNO) -> SGNOConstants:
    """All constants of one step with its coefficients computed, its leaves numpy arrays."""
    prepared = unstack(step.layers)
    layers = tuple(
        _layer(layer, GELU_SLOPE if i < len(prepared) - 1 else 1.0) for i, layer in enumerate(prepared)
    )
    lift = raised(spectral_norm(step.lift.weight[:, : step.num_channels]))
    head = raised(through_gelu(step.head.first.weight, step.head.second.weight))
    product = float(np.prod([layer.lipschitz for layer in layers]))
    return SGNOConstants(layers, lift, head, raised(1 + head * product * lift))


def _layer(layer: PreparedLayer, activation: float) -> LayerConstants:
    # A prepared layer holds B and the first matrix of the correction as one.
    width = layer.weight.shape[1]
    B, W1 = np.split(np.asarray(layer.weight, np.float64), [width])
    # Without a generator the retained modes are carried as they are, or not at all: the identity of the
    # pointwise update is in B.
    carries = np.full((1, width), float(layer.spectral))
    if layer.carry is not None:
        carries = np.asarray(layer.carry, np.float64).reshape(-1, width)
    # On retained modes the two linear paths act as one matrix; elsewhere B acts alone. Modes whose conjugate
    # is stored too, or not kept, see an average of these matrices.
    linear = max(spectral_norm(B), spectral_norm(B + carries[:, :, None] * np.eye(width)))
    coupling = correction = 0.0
    if layer.second_weight is not None:
        correction = through_gelu(W1, layer.second_weight)
        coupling = 1.0 if layer.coupling is None else spectral_norm(_complex(layer.coupling))
    lipschitz = raised(activation * (linear + coupling * correction))
    return LayerConstants(float(carries.max()), coupling, correction, linear, lipschitz)


def _complex(coupling: Any) -> np.ndarray:
    """The real `[[Re, -Im], [Im, Re]]` of a prepared layer as complex matrices, `(modes, out, in)`."""
    real = np.asarray(coupling, np.float64)
    width = real.shape[-1] // 2
    matrices = real[..., :width, :width] + 1j * real[..., width:, :width]
    return matrices.reshape(-1, *matrices.shape[-2:])
