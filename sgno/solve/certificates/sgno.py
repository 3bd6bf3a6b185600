"""The constants of a trained SGNO: what the paper's propositions mean for these weights."""

import dataclasses
from typing import Any

import numpy as np

from sgno.nn.layer import Layer, Norms, PreparedLayer, unstack
from sgno.nn.sgno import PreparedSGNO
from sgno.solve.certificates.bounds import (
    GELU_SLOPE,
    GELU_SPREAD,
    raised,
    spectral_norm,
)
from sgno.spectral import phi1


@dataclasses.dataclass(frozen=True)
class LayerConstants:
    """Upper bounds of one layer, gelu(B v + S v + Phi R A C(v)).

    - `carry`: max |exp(lambda)|, the norm of S; at most 1 unless the generator is unconstrained.
    - `phi1`: max |phi_1(lambda)|, the norm of Phi; at most 1 likewise.
    - `budget`: max r, the norm of R, below 2.
    - `mixer`: max_k ||A(k)||_2, at most 1 unless the update is the residual one.
    - `coupling`: max_k ||Phi R A(k)||_2 of the product as it runs.
    - `correction`: Lip(C).
    - `local`: ||B||_2.
    - `linear`: the norm of B + S, never above `local + carry`.
    - `activation`: Lip(gelu), or 1 on the last layer.
    - `paper`: q = activation (local + 1 + budget mixer correction), the paper's layer constant.
    - `sharp`: activation (linear + coupling correction), which is also an upper bound of Lip(L).
    """

    carry: float
    phi1: float
    budget: float
    mixer: float
    coupling: float
    correction: float
    local: float
    linear: float
    activation: float
    paper: float
    sharp: float


@dataclasses.dataclass(frozen=True)
class SGNOConstants:
    """Lip(f) <= 1 + head (prod q) lift, in the discrete L2 norm.

    `paper` is that constant with the paper's q, `sharp` with the sharper ones; both are upper bounds, and
    `step` is the smaller. Coordinates are constant, so they drop out of differences of states.
    """

    layers: tuple[LayerConstants, ...]
    lift: float
    head: float
    paper: float
    sharp: float

    @property
    def step(self) -> float:
        return min(self.paper, self.sharp)


def parts(layer: Layer, norms: Norms) -> dict[str, Any]:
    """lambda, phi_1(lambda), r and A of a layer as the step computes them; what a layer lacks is missing."""
    found = {}
    if layer.generator is not None:
        lam = layer.generator()
        found |= {"lambda": lam, "phi1": phi1(lam)}
        if layer.budget is not None:
            found["budget"] = layer.budget(lam.shape[1:])
    if layer.mixer is not None:
        real, imag = layer.mixers(norms.excess)
        found |= {"mixer_real": real, "mixer_imag": imag}
    return found


def sgno_constants(step: PreparedSGNO, layer_parts: tuple[dict[str, np.ndarray], ...]) -> SGNOConstants:
    """All constants of one step.

    **Arguments:**

    - `step`: the step with its coefficients computed, its leaves numpy arrays.
    - `layer_parts`: `parts` of each of its layers.
    """
    last = len(layer_parts) - 1
    layers = tuple(
        _layer(layer, found, 1.0 if i == last else GELU_SLOPE)
        for i, (layer, found) in enumerate(zip(unstack(step.layers), layer_parts, strict=True))
    )
    lift = raised(spectral_norm(step.lift.weight[:, : step.num_channels]))
    head = raised(through_gelu(step.head.first.weight, step.head.second.weight))
    paper, sharp = (
        1 + head * float(np.prod([getattr(layer, name) for layer in layers])) * lift
        for name in ("paper", "sharp")
    )
    return SGNOConstants(layers, lift, head, raised(paper), raised(sharp))


def through_gelu(first: Any, second: Any) -> float:
    """Lip(W_2 gelu(W_1 .)) <= ||W_2|| ||W_1|| Lip(gelu), or less by gelu(x) = x/2 + g(x)."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    product = spectral_norm(second) * spectral_norm(first)
    return min(GELU_SLOPE * product, spectral_norm(second @ first) / 2 + GELU_SPREAD * product)


def coupling_matrices(coupling: Any) -> np.ndarray:
    """The real `[[Re, -Im], [Im, Re]]` of a prepared layer as complex matrices, `(modes, out, in)`."""
    real = np.asarray(coupling, np.float64)
    width = real.shape[-1] // 2
    matrices = real[..., :width, :width] + 1j * real[..., width:, :width]
    return matrices.reshape(-1, *matrices.shape[-2:])


def split_rows(layer: PreparedLayer) -> tuple[np.ndarray, np.ndarray | None]:
    """B and W_1, which a prepared layer holds as one matrix."""
    width = layer.weight.shape[1]
    rows = np.asarray(layer.weight, np.float64)
    return rows[:width], rows[width:] if layer.second_weight is not None else None


def _layer(layer: PreparedLayer, found: dict[str, np.ndarray], activation: float) -> LayerConstants:
    B, W1 = split_rows(layer)
    local = spectral_norm(B)
    # Without a generator the retained modes are carried as they are.
    # The pointwise update has its identity in B.
    carries = np.full((1, len(B)), float(layer.spectral))
    if layer.carry is not None:
        carries = np.asarray(layer.carry, np.float64)
    carries = carries.reshape(-1, len(B))
    carry = float(carries.max())
    # On retained modes the two linear paths act as one matrix; elsewhere B acts alone. Modes whose conjugate
    # is stored too, or not kept, see an average of these matrices.
    linear = max(local, spectral_norm(B + carries[:, :, None] * np.eye(len(B))))
    mixer = budget = coupling = correction = 0.0
    if W1 is not None:
        correction, coupling, mixer = through_gelu(W1, layer.second_weight), 1.0, 1.0
        if layer.coupling is not None:
            coupling = spectral_norm(coupling_matrices(layer.coupling))
            A = np.asarray(found["mixer_real"], np.float64) + 1j * np.asarray(found["mixer_imag"], np.float64)
            A = np.moveaxis(A.reshape(*A.shape[:2], -1), -1, 0)
            mixer = spectral_norm(A)
        budget = float(found["budget"].max()) if "budget" in found else 1.0
    phi = float(found["phi1"].max()) if "phi1" in found else 1.0
    # Multiplying phi_1, r and A rounds each entry twice, which `raised` covers with the rest.
    paper = activation * (local + max(1.0, carry) + max(1.0, phi) * budget * mixer * correction)
    sharp = activation * (linear + coupling * correction)
    return LayerConstants(
        carry,
        phi,
        budget,
        mixer,
        coupling,
        correction,
        local,
        linear,
        activation,
        raised(paper),
        raised(sharp),
    )
