"""The diagonal generator of the spectral carry and the budget of the correction."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.spectral import radius, retained_shape

# softplus^-1(1e-3): both radial profiles start almost flat.
SOFTPLUS_INVERSE_MILLI = -6.907255

GeneratorKind = Literal["nonpositive", "unconstrained"]


class Generator(eqx.Module):
    """lambda_c(k) = -[softplus(theta_c(k)) + softplus(b_c - softplus(s_c) rho(k))] <= 0, real.

    A learned decay per mode plus a radial damping profile. With `kind="unconstrained"` (an
    ablation) the per-mode part is free in sign: lambda_c(k) = theta_c(k) - softplus(...).
    """

    theta: Float[Array, "channels *modes"]
    b: Float[Array, " channels"]
    s: Float[Array, " channels"]
    kind: GeneratorKind = eqx.field(static=True)

    def __init__(
        self,
        num_spatial_dims: int,
        width: int,
        num_modes: int,
        *,
        kind: GeneratorKind = "nonpositive",
        key: PRNGKeyArray,
    ):
        self.theta = 0.1 * jax.random.normal(key, (width, *retained_shape(num_spatial_dims, num_modes)))
        self.b = jnp.full((width,), SOFTPLUS_INVERSE_MILLI)
        self.s = jnp.full((width,), SOFTPLUS_INVERSE_MILLI)
        self.kind = kind

    def __call__(self) -> Float[Array, "channels *modes"]:
        damping = jax.nn.softplus(radial_profile(self.b, self.s, self.theta.shape[1:]))
        if self.kind == "unconstrained":
            return self.theta - damping
        return -(jax.nn.softplus(self.theta) + damping)


class Budget(eqx.Module):
    """r_c(k) = 2 sigmoid(a_c - softplus(t_c) rho(k)), strictly inside (0, 2)."""

    a: Float[Array, " channels"]
    t: Float[Array, " channels"]

    def __init__(self, width: int):
        self.a = jnp.zeros((width,))
        self.t = jnp.full((width,), SOFTPLUS_INVERSE_MILLI)

    def __call__(self, modes: tuple[int, ...]) -> Float[Array, "channels *modes"]:
        logit = radial_profile(self.a, self.t, modes)
        # Outside these limits float32 rounds the sigmoid to exactly 0 or 1.
        return 2 * jax.nn.sigmoid(jnp.clip(logit, -80, 15))


def radial_profile(
    level: Float[Array, " channels"], slope: Float[Array, " channels"], modes: tuple[int, ...]
) -> Float[Array, "channels *modes"]:
    """level_c - softplus(slope_c) rho(k)."""
    rho = jnp.asarray(radius(len(modes), modes[-1]), level.dtype)
    column = (-1, *(1,) * len(modes))
    return level.reshape(column) - jax.nn.softplus(slope).reshape(column) * rho
