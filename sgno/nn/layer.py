"""One SGNO layer: local path plus spectral generator branch."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sgno.nn.correction import Correction
from sgno.nn.generator import Budget, Generator, GeneratorKind
from sgno.nn.mixer import Mixer, excesses
from sgno.nn.pointwise import Affine, affine, gelu
from sgno.spectral import from_retained, phi1, to_retained

UpdateKind = Literal["etd", "residual"]
CorrectionKind = Literal["mlp", "none"]


class Layer(eqx.Module):
    """L(v) = B v + IFFT[ exp(lambda) v^ + phi_1(lambda) r (A C(v)^) ] on the retained modes.

    The activation is applied by the model, which leaves it out on the last layer.
    `update="residual"` is the ablation `v^ + A C(v)^`: no exponential, no phi_1, no norm cap,
    no budget. `correction="none"` keeps the carry and the local path only.
    """

    local: Affine
    generator: Generator | None
    budget: Budget | None
    mixer: Mixer | None
    correction: Correction | None

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
        structured, corrected = update == "etd", correction == "mlp"
        self.local = Affine(width, width, key=keys[0])
        self.generator = (
            Generator(num_spatial_dims, width, num_modes, kind=generator, key=keys[1]) if structured else None
        )
        self.budget = Budget(width) if structured and corrected else None
        self.mixer = Mixer(num_spatial_dims, width, num_modes, key=keys[2]) if corrected else None
        self.correction = Correction(width, key=keys[3]) if corrected else None

    def prepare(self, norms: "Norms") -> "PreparedLayer":
        """Everything that depends on the weights alone, given its norms; see `prepare_layers`."""
        carry = gain = None
        if self.generator is not None:
            lam = self.generator()
            carry = jnp.exp(lam)
            if self.budget is not None:
                gain = phi1(lam) * self.budget(lam.shape[1:])
        if self.correction is None or self.mixer is None:
            return PreparedLayer(self.local.weight, self.local.bias, None, None, _modes_first(carry, 1), None)
        if gain is None:
            re, im = self.mixer.real, self.mixer.imag
        else:
            re, im = (gain[:, None] * part for part in self.mixer.capped(norms.excess))
        assert norms.matrices is not None
        first, second = norms.matrices
        return PreparedLayer(
            # One product serves the two pointwise maps that read v.
            jnp.concatenate([self.local.weight, first]),
            jnp.concatenate([self.local.bias, self.correction.first.bias]),
            second,
            self.correction.second.bias,
            _modes_first(carry, 1),
            # A complex product is a real one of twice the size, and one product per mode is faster than four.
            _modes_first(jnp.concatenate([_beside(re, -im), _beside(im, re)]), 2),
        )


class Norms(NamedTuple):
    """What takes spectral norms: the divisors of a mixer, the normalised matrices of a correction."""

    excess: Float[Array, "*layers_and_modes"] | None
    matrices: tuple[Float[Array, "*layers hidden in"], Float[Array, "*layers out hidden"]] | None


def prepare_layers(layers: Sequence[Layer]) -> tuple["PreparedLayer", ...]:
    """Layers of one shape with their coefficients computed, all at once: their arithmetic vectorises."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    # Norms not under `vmap`, which computes both sides of the choice whether there is anything to square.
    prepared = jax.vmap(lambda layer, norms: layer.prepare(norms))(stacked, _norms(stacked))
    leaves, structure = jax.tree.flatten(prepared)
    # Split at once, so that the gradient is one concatenation, not a sum of pads.
    parts = [jax.lax.split(leaf, (1,) * len(layers)) for leaf in leaves]
    return tuple(
        jax.tree.unflatten(structure, [leaf.squeeze(0) for leaf in layer])
        for layer in zip(*parts, strict=True)
    )


def _norms(stacked: Layer) -> Norms:
    """The norms of layers stacked along a leading axis."""
    mixer, correction = stacked.mixer, stacked.correction
    if mixer is None or correction is None:
        return Norms(None, None)
    capped = stacked.budget is not None
    excess = excesses(*(jnp.moveaxis(x, 0, 2) for x in (mixer.real, mixer.imag))) if capped else None
    return Norms(excess, correction.normalised())


def _modes_first(x: Float[Array, "..."] | None, num_channel_axes: int) -> Float[Array, "..."] | None:
    return None if x is None else jnp.moveaxis(x, range(num_channel_axes), range(-num_channel_axes, 0))


def _beside(left: Float[Array, "out in *modes"], right: Float[Array, "out in *modes"]) -> Array:
    return jnp.concatenate([left, right], axis=1)


class PreparedLayer(eqx.Module):
    """A layer with its coefficients computed: norms capped, exponentials taken, modes first."""

    weight: Float[Array, "rows channels"]
    bias: Float[Array, " rows"]
    second_weight: Float[Array, "channels hidden"] | None
    second_bias: Float[Array, " channels"] | None
    carry: Float[Array, "*modes channels"] | None
    coupling: Float[Array, "*modes twice_channels twice_channels"] | None

    def __call__(
        self, v: Float[Array, "channels batch *points"], num_modes: int
    ) -> Float[Array, "channels batch *points"]:
        width = v.shape[0]
        pointwise = affine(self.weight, self.bias, v)
        local = pointwise[:width]
        modes = to_retained(v, num_modes)
        if self.carry is not None:
            modes = self.carry[..., None, :, None] * modes
        if self.coupling is not None and self.second_weight is not None and self.second_bias is not None:
            field = affine(self.second_weight, self.second_bias, gelu(pointwise[width:]))
            modes = modes + _couple(self.coupling, to_retained(field, num_modes))
        return local + from_retained(modes, v.shape[2:])


def _couple(
    coupling: Float[Array, "*modes twice_channels twice_channels"],
    modes: Float[Array, "*modes 2 channels batch"],
) -> Float[Array, "*modes 2 channels batch"]:
    """A(k) c(k) for every mode, in real arithmetic."""
    stacked = modes.reshape(*coupling.shape[:-1], modes.shape[-1])
    return (coupling @ stacked).reshape(modes.shape)
