"""How far a prediction is from the reference, one number per trajectory and step."""

import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-12


def nrmse(
    prediction: Float[Array, "batch channels *points"], reference: Float[Array, "batch channels *points"]
) -> Float[Array, " batch"]:
    """||prediction - reference||_2 / (||reference||_2 + 1e-12), over channels and points."""
    return _norm(prediction - reference) / (_norm(reference) + EPSILON)


def correlation(
    prediction: Float[Array, "batch channels *points"], reference: Float[Array, "batch channels *points"]
) -> Float[Array, " batch"]:
    """<prediction, reference> / (||prediction|| ||reference||): 1 for states of the same shape."""
    axes = tuple(range(1, prediction.ndim))
    inner = jnp.sum(prediction * reference, axis=axes)
    return inner / (_norm(prediction) * _norm(reference) + EPSILON)


def _norm(u: Float[Array, "batch *state"]) -> Float[Array, " batch"]:
    return jnp.sqrt(jnp.sum(jnp.square(u), axis=tuple(range(1, u.ndim))))
