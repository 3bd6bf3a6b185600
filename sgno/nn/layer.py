"""The layers of SGNO: L(v) = B v + F^-1[ exp(lambda) F v + phi_1(lambda) r A F C(v) ] on the retained modes.

A model keeps its layers as one `Layer` whose arrays have a leading axis for them: they have one shape, so
that their coefficients are computed together and one compiled program runs them all.
"""

import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.nn.pointwise import Affine, affine, gelu
from sgno.spectral import from_retained, phi1, radius, retained_shape, spectral_norm_bound, to_retained

GeneratorKind = Literal["nonpositive", "unconstrained"]
UpdateKind = Literal["etd", "residual", "pointwise"]
CorrectionKind = Literal["mlp", "none"]

# softplus^-1(1e-3): both radial profiles start almost flat.
SOFTPLUS_INVERSE_MILLI = -6.907255


@jax.custom_jvp
def softplus(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log(1 + e^x). `jax.nn.softplus` looks for infinities too, and takes three times as long to compile."""
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return softplus(x), jax.nn.sigmoid(x) * dx


class Generator(eqx.Module):
    """lambda_c(k) = -[softplus(theta_c(k)) + softplus(b_c - softplus(s_c) rho(k))] <= 0, real.

    A learned decay per mode plus a radial damping profile. With `kind="unconstrained"` (an ablation) the
    per-mode part is free in sign: lambda_c(k) = theta_c(k) - softplus(...).
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
        self.b = jnp.full((width,), SOFTPLUS_INVERSE_MILLI, jnp.float32)
        self.s = jnp.full((width,), SOFTPLUS_INVERSE_MILLI, jnp.float32)
        self.kind = kind

    def __call__(self) -> Float[Array, "channels *modes"]:
        damping = softplus(radial_profile(self.b, self.s, self.theta.shape[1:]))
        if self.kind == "unconstrained":
            return self.theta - damping
        return -(softplus(self.theta) + damping)


class Budget(eqx.Module):
    """r_c(k) = 2 sigmoid(a_c - softplus(t_c) rho(k)), strictly inside (0, 2)."""

    a: Float[Array, " channels"]
    t: Float[Array, " channels"]

    def __init__(self, width: int):
        self.a = jnp.zeros((width,))
        self.t = jnp.full((width,), SOFTPLUS_INVERSE_MILLI, jnp.float32)

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
    return level.reshape(column) - softplus(slope).reshape(column) * rho


class Mixer(eqx.Module):
    """A(k), one complex `C x C` matrix per retained mode, stored as two real arrays."""

    real: Float[Array, "out in *modes"]
    imag: Float[Array, "out in *modes"]

    def __init__(self, num_spatial_dims: int, width: int, num_modes: int, *, key: PRNGKeyArray):
        """In 1D and 3D (U[0,1) + i U[0,1)) / C^2; in 2D complex normal of variance 1/C."""
        shape = (width, width, *retained_shape(num_spatial_dims, num_modes))
        re_key, im_key = jax.random.split(key)
        if num_spatial_dims == 2:
            scale, draw = math.sqrt(0.5 / width), jax.random.normal
        else:
            scale, draw = 1 / width**2, jax.random.uniform
        self.real = scale * draw(re_key, shape)
        self.imag = scale * draw(im_key, shape)


def excesses(re: Float[Array, "out in *many"], im: Float[Array, "out in *many"]) -> Float[Array, "*many"]:
    """max(1, ||A||_2) of each of many matrices: what a mixer is divided by to have at most norm 1."""
    return jnp.maximum(1, spectral_norm_bound(re, im, cap=1.0))


class Correction(eqx.Module):
    """C(v) = W_2 gelu(W_1 v + b_1) + b_2 with `C -> 2C -> C` and ||W_1||_2 = ||W_2||_2 = 1."""

    first: Affine
    second: Affine

    def __init__(self, width: int, *, key: PRNGKeyArray):
        first_key, second_key = jax.random.split(key)
        self.first = Affine(width, 2 * width, key=first_key)
        self.second = Affine(2 * width, width, key=second_key)

    def normalised(self) -> tuple[Float[Array, "*layers hidden in"], Float[Array, "*layers out hidden"]]:
        """The two matrices, each divided by its spectral norm; those of many layers if these are stacked."""
        # All at once: they have one shape, and squaring many takes no longer than squaring one.
        matrices = jnp.stack([self.first.weight, self.second.weight.mT])
        # Scaled to entries of size one, so that the gradient of the quotient has no 1/norm² to overflow.
        largest = jax.lax.stop_gradient(jnp.max(jnp.abs(matrices), axis=(-2, -1), keepdims=True))
        matrices = matrices / jnp.where(largest > 0, largest, 1)
        norms = spectral_norm_bound(jnp.moveaxis(matrices, (-2, -1), (0, 1)))[..., None, None]
        # A zero matrix stays zero, with a zero gradient instead of 0/0.
        first, second = matrices / jnp.where(norms > 0, norms, 1)
        return first, second.mT


class Layer(eqx.Module):
    """One layer, or several whose arrays are stacked along a leading axis.

    The activation is applied by the model, which leaves it out on the last layer. Ablations lack parts:
    `update="residual"` is `v^ + A C(v)^` (no exponential, no phi_1, no norm cap, no budget);
    `update="pointwise"` is `v + C(v)` at every point (no transform either); `correction="none"` keeps the
    carry and the local path only.
    """

    local: Affine
    generator: Generator | None
    budget: Budget | None
    mixer: Mixer | None
    correction: Correction | None
    update: UpdateKind = eqx.field(static=True)

    def __init__(
        self,
        num_spatial_dims: int,
        width: int,
        num_modes: int,
        *,
        generator: GeneratorKind,
        update: UpdateKind,
        correction: CorrectionKind,
        key: PRNGKeyArray,
    ):
        keys = jax.random.split(key, 4)
        modes, corrected = (num_spatial_dims, width, num_modes), correction == "mlp"
        self.local = Affine(width, width, key=keys[0])
        self.generator = Generator(*modes, kind=generator, key=keys[1]) if update == "etd" else None
        self.budget = Budget(width) if update == "etd" and corrected else None
        self.mixer = Mixer(*modes, key=keys[2]) if update != "pointwise" and corrected else None
        self.correction = Correction(width, key=keys[3]) if corrected else None
        self.update = update

    def mixers(
        self, excess: Float[Array, "*modes"] | None
    ) -> tuple[Float[Array, "out in *modes"], Float[Array, "out in *modes"]]:
        """A(k) as it runs: divided by its `excess` over norm 1 unless the update is the residual one."""
        assert self.mixer is not None
        if excess is None:
            return self.mixer.real, self.mixer.imag
        return self.mixer.real / excess, self.mixer.imag / excess

    def prepare(self, norms: "Norms") -> "PreparedLayer":
        """Everything that depends on the weights alone, given the norms; see `prepare_layers`."""
        weight, bias = self.local.weight, self.local.bias
        second_weight = second_bias = carry = gain = coupling = None
        if self.update == "pointwise":
            # v + B v as one matrix.
            weight = weight + jnp.eye(len(weight), dtype=weight.dtype)
        if self.generator is not None:
            lam = self.generator()
            carry = _modes_first(jnp.exp(lam), 1)
            if self.budget is not None:
                gain = phi1(lam) * self.budget(lam.shape[1:])
        if self.correction is not None:
            assert norms.matrices is not None
            first, second_weight = norms.matrices
            second_bias = self.correction.second.bias
            # One product serves the two pointwise maps that read v.
            weight = jnp.concatenate([weight, first])
            bias = jnp.concatenate([bias, self.correction.first.bias])
        if self.mixer is not None:
            re, im = self.mixers(norms.excess)
            if gain is not None:
                re, im = gain[:, None] * re, gain[:, None] * im
            # A complex product is a real one of twice the size, and one product per mode is faster than four.
            beside = lambda left, right: jnp.concatenate([left, right], axis=1)
            coupling = _modes_first(jnp.concatenate([beside(re, -im), beside(im, re)]), 2)
        return PreparedLayer(
            weight, bias, second_weight, second_bias, carry, coupling, self.update != "pointwise"
        )


def _modes_first(x: Float[Array, "..."], num_channel_axes: int) -> Float[Array, "..."]:
    return jnp.moveaxis(x, range(num_channel_axes), range(-num_channel_axes, 0))


class Norms(NamedTuple):
    """What takes spectral norms: the divisors of the mixers, the normalised matrices of the corrections."""

    excess: Float[Array, "*layers_and_modes"] | None
    matrices: tuple[Float[Array, "*layers hidden in"], Float[Array, "*layers out hidden"]] | None


def norms_of(layers: Layer) -> Norms:
    """The norms of stacked layers, all at once. Not under `vmap`, where a loop goes on until all are done."""
    excess = None
    if layers.mixer is not None and layers.budget is not None:
        excess = excesses(*(jnp.moveaxis(x, 0, 2) for x in (layers.mixer.real, layers.mixer.imag)))
    return Norms(excess, None if layers.correction is None else layers.correction.normalised())


def prepare_layers(layers: Layer) -> "PreparedLayer":
    """Stacked layers with their coefficients computed."""
    return jax.vmap(lambda layer, norms: layer.prepare(norms))(layers, norms_of(layers))


def unstack(layers: eqx.Module) -> list:
    """The layers one by one."""
    count = len(jax.tree.leaves(layers)[0])
    return [jax.tree.map(lambda leaf, i=i: leaf[i], layers) for i in range(count)]


class PreparedLayer(eqx.Module):
    """A layer with its coefficients computed: norms capped, exponentials taken, modes first."""

    weight: Float[Array, "rows channels"]
    bias: Float[Array, " rows"]
    second_weight: Float[Array, "channels hidden"] | None
    second_bias: Float[Array, " channels"] | None
    carry: Float[Array, "*modes channels"] | None
    coupling: Float[Array, "*modes twice_channels twice_channels"] | None
    spectral: bool = eqx.field(static=True)

    def __call__(
        self, v: Float[Array, "channels batch *points"], num_modes: int
    ) -> Float[Array, "channels batch *points"]:
        width = v.shape[0]
        pointwise = affine(self.weight, self.bias, v)
        local = pointwise[:width]
        field = None
        if self.second_weight is not None and self.second_bias is not None:
            field = affine(self.second_weight, self.second_bias, gelu(pointwise[width:]))
        if not self.spectral:
            return local if field is None else local + field
        modes = to_retained(v, num_modes)
        if self.carry is not None:
            modes = self.carry[..., None, :, None] * modes
        if self.coupling is not None and field is not None:
            modes = modes + _couple(self.coupling, to_retained(field, num_modes))
        return local + from_retained(modes, v.shape[2:])


def _couple(
    coupling: Float[Array, "*modes twice_channels twice_channels"],
    modes: Float[Array, "*modes 2 channels batch"],
) -> Float[Array, "*modes 2 channels batch"]:
    """A(k) c(k) for every mode, in real arithmetic."""
    stacked = modes.reshape(*coupling.shape[:-1], modes.shape[-1])
    return (coupling @ stacked).reshape(modes.shape)
