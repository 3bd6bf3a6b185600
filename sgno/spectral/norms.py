"""Spectral norms that are upper bounds, for many small complex matrices at once.

Power iteration approaches the norm from below, which cannot prove a cap. Repeated squaring
of `G = A^H A` approaches it from above: with `q = 2^p`,

    ||A||_2^2 = lambda_max(G) <= tr(G^q)^(1/q) <= C^(1/q) lambda_max(G).

The gap closes doubly exponentially in `p` wherever the top eigenvalue is separated.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SQUARINGS = 8
# Below this width the sum over the inner index is unrolled: one fused pass over all matrices
# took 1.0 / 5.5 / 9.4 ms for ten squarings at the paper's sizes, batched products 1.9 / 52 / 14 ms.
_UNROLL_BELOW = 32
# Relative rounding of the squarings in float32 (measured below 4e-6 for C <= 64): the bound is raised by it.
ROUNDING_MARGIN = 1e-5


def spectral_norm_bound(
    re: Float[Array, "rows cols *batch"],
    im: Float[Array, "rows cols *batch"] | None = None,
    *,
    cap: float | None = None,
) -> Float[Array, "*batch"]:
    """An upper bound of `||A||_2` for matrices stored along the *leading* two axes.

    The matrix axes come first so that the products vectorise over the batch of modes.

    The value never lies below the true norm (a rounding margin of 1e-5 is included) and
    exceeds it by at most a factor `C^(1/512)`, usually by the margin alone. Its gradient is that of
    the norm itself, `Re(x^H dA y)` with the top singular vectors x, y held constant.

    **Arguments:**

    - `re`, `im`: real and imaginary parts; leave `im` out for real matrices.
    - `cap`: if only `max(cap, bound)` matters, it spares most of the work as long as no norm exceeds `cap`:
        the squarings end as soon as every bound is below it.

    **Returns:**

    One bound per matrix; 0 for a zero matrix.
    """
    scale = jnp.max(jnp.abs(re), axis=(0, 1))
    if im is not None:
        scale = jnp.maximum(scale, jnp.max(jnp.abs(im), axis=(0, 1)))
    nonzero = scale > 0
    # Scaled to entries of size one, so that no square overflows or vanishes.
    scale = jax.lax.stop_gradient(jnp.where(nonzero, scale, 1))
    a = re / scale
    b = None if im is None else im / scale
    # The bound of log ||a + ib||^2 that is low enough; zero matrices are from the start.
    enough = jnp.where(nonzero, -jnp.inf if cap is None else 2 * jnp.log(cap / _raised(scale)), jnp.inf)
    y_re, y_im, log_bound = _top_right_vector(jax.lax.stop_gradient(a), jax.lax.stop_gradient(b), enough)
    bound = jnp.where(nonzero, _raised(jnp.exp(0.5 * log_bound)), 0)
    estimate = _gain(a, b, y_re, y_im)
    # The value of the bound with the gradient of the norm.
    return scale * (bound + estimate - jax.lax.stop_gradient(estimate))


def _product(a: Array, b: Array) -> Array:
    """sum_k a[k, i] b[k, j] for matrices along the leading axes."""
    if a.ndim == 2 or a.shape[0] >= _UNROLL_BELOW:
        return jnp.einsum("ki...,kj...->ij...", a, b)
    total = a[0, :, None] * b[0, None]
    for k in range(1, a.shape[0]):
        total = total + a[k, :, None] * b[k, None]
    return total


def _gram(a: Array, b: Array | None) -> tuple[Array, Array | None]:
    """(a + ib)^H (a + ib), as real and imaginary parts."""
    if b is None:
        return _product(a, a), None
    mixed = _product(a, b)
    return _product(a, a) + _product(b, b), mixed - mixed.swapaxes(0, 1)


def _raised(bound: Array) -> Array:
    """The bound with the margin for its rounding."""
    return bound * (1 + ROUNDING_MARGIN)


@jax.custom_batching.custom_vmap
def _top_right_vector(a: Array, b: Array | None, enough: Array) -> tuple[Array, Array | None, Array]:
    """The dominant right singular vector (unnormalised) and the log of the bound of ||A||^2."""

    def more(carry):
        p, _, _, log_bound = carry
        return (p < SQUARINGS) & jnp.any(log_bound > enough)

    def square(carry):
        # With G Hermitian, G^2 = G^H G: the same product as the first one, A^H A.
        p, g, h, log_bound = carry
        g, h = _gram(g, h)
        trace = sum((g[i, i] for i in range(1, g.shape[0])), g[0, 0])
        trace = jnp.where(trace > 0, trace, 1)
        log_bound = log_bound + jnp.log(trace) / 2.0**p
        return p + 1, g / trace, None if h is None else h / trace, log_bound

    # Before the first product nothing is known. It is outside the loop, which keeps one shape.
    carry = square((0, a, b, jnp.zeros(a.shape[2:], a.dtype)))
    # A loop, not an unrolled graph: it compiles eight times faster and runs as fast.
    squarings, g, h, log_bound = jax.lax.while_loop(more, square, carry)
    # tr(G^2) = ||G||_F^2 spares the last product.
    square_of_g = jnp.sum(g * g, axis=(0, 1)) + (0 if h is None else jnp.sum(h * h, axis=(0, 1)))
    square_of_g = jnp.where(square_of_g > 0, square_of_g, 1)
    log_bound = log_bound + jnp.log(square_of_g) / 2.0**squarings
    # Every column of G^q is close to the dominant vector; the one with the largest diagonal is surest.
    pick = jax.nn.one_hot(jnp.argmax(jnp.einsum("ii...->i...", g), axis=0), g.shape[0], axis=0, dtype=g.dtype)
    y_re = jnp.sum(g * pick[None], axis=1)
    y_im = None if h is None else jnp.sum(h * pick[None], axis=1)
    return y_re, y_im, log_bound


@_top_right_vector.def_vmap
def _(axis_size, batched, a, b, enough):
    """More matrices are a longer batch: one loop for all, where `vmap` would keep one apart for each."""

    def last(x, is_batched):
        return jnp.moveaxis(x, 0, -1) if is_batched else jnp.broadcast_to(x[..., None], (*x.shape, axis_size))

    moved = jax.tree.map(last, (a, b, enough), tuple(batched))
    found = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), _top_right_vector(*moved))
    return found, jax.tree.map(lambda _: True, found)


def _gain(a: Array, b: Array | None, y_re: Array, y_im: Array | None) -> Array:
    """Re(x^H A y) with x = A y / |A y|, y normalised, both constant: the norm, with its gradient."""

    re = jnp.sum(a * y_re[None], axis=1)
    im = jnp.zeros_like(re)
    if b is not None and y_im is not None:
        re = re - jnp.sum(b * y_im[None], axis=1)
        im = jnp.sum(a * y_im[None] + b * y_re[None], axis=1)
    x_re, x_im = jax.lax.stop_gradient((re, im))
    norm_x = jnp.sqrt(jnp.sum(x_re**2 + x_im**2, axis=0))
    norm_y = jnp.sqrt(jnp.sum(y_re**2 + (0 if y_im is None else y_im**2), axis=0))
    weight = norm_x * norm_y
    weight = jnp.where(weight > 0, weight, 1)
    return jnp.sum(x_re * re + x_im * im, axis=0) / weight
