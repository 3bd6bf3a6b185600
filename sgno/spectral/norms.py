"""Spectral norms that are upper bounds, for many small complex matrices at once.

Power iteration approaches the norm from below, which cannot prove a cap. Repeated squaring
of `G = A^H A` approaches it from above: with `q = 2^p`,

    ||A||_2^2 = lambda_max(G) <= tr(G^q)^(1/q) <= C^(1/q) lambda_max(G).

The gap closes doubly exponentially in `p` wherever the top eigenvalue is separated.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SQUARINGS = 8
# Of many small matrices the sum over the inner index is unrolled: one fused pass over all of them took a
# fifth to two thirds of the time of batched products. Of few it is not: it takes longer to compile.
_UNROLL_BELOW, _UNROLL_FROM = 32, 64
# Matrices side by side: 16 took two thirds of the time that all of them took, 8 and 64 took longer.
_LANES = 16
# Of the log of a squared norm: nearer than this the bound need not come.
_TOLERANCE = 1e-6
# Relative rounding of the squarings in float32 (measured below 4e-6 for C <= 64): the bound is raised by it.
ROUNDING_MARGIN = 1e-5

# A power of A^H A, real and imaginary part, divided by its trace, and the log of the bound that its trace is.
_Powers = tuple[Array, Array | None, Array]


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
    - `cap`: if only `max(cap, bound)` matters, say so: norms that a few products prove to be below `cap` do
        not ask for more.

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
    y_re, y_im, log_bound = _top_right_vector(*jax.lax.stop_gradient((a, b, enough)))
    bound = jnp.where(nonzero, _raised(jnp.exp(0.5 * log_bound)), 0)
    estimate = _gain(a, b, y_re, y_im)
    # The value of the bound with the gradient of the norm.
    return scale * (bound + estimate - jax.lax.stop_gradient(estimate))


def _raised(bound: Array) -> Array:
    """The bound with the margin for its rounding."""
    return bound * (1 + ROUNDING_MARGIN)


def _top_right_vector(a: Array, b: Array | None, enough: Array) -> tuple[Array, Array | None, Array]:
    """The dominant right singular vector (unnormalised) and the log of the bound of ||A||^2.

    Squared until every bound is at most `enough` or within `_TOLERANCE` of the norm, `SQUARINGS` times at
    most. With G divided by its trace, its largest eigenvalue lies between tr(G^2) and its root. Where the
    Frobenius norms are low enough, nothing is squared and the vector is any.
    """
    batch = a.shape[2:]
    blocks = lambda x: jax.tree.map(lambda part: _in_blocks(part, len(batch)), x)
    enough = blocks(enough)

    def unsettled(state: tuple[Array, _Powers, Array]) -> Array:
        count, (_, _, log_bound), excess = state
        close = (excess <= _TOLERANCE) & (count > 0)
        return (count < SQUARINGS) & ~jnp.all(close | (log_bound - excess <= enough))

    def square(state: tuple[Array, _Powers, Array]) -> tuple[Array, _Powers, Array]:
        count, powers, _ = state
        powers = _squared(count, powers)
        return count + 1, powers, _excess(count + 1, powers)

    powers, begun = (blocks(a), blocks(b), jnp.zeros_like(enough)), 0
    if a.shape[0] != a.shape[1]:
        # Outside the loop, which keeps one shape.
        powers, begun = _squared(0, powers), 1
    # A loop, not an unrolled graph: it compiles eight times faster and runs as fast.
    state = jnp.asarray(begun, jnp.int32), powers, _excess(begun, powers)
    _, (g, h, log_bound), excess = jax.lax.while_loop(unsettled, square, state)
    # Every column of G^q is close to the dominant vector; the one with the largest diagonal is surest.
    diagonal = jnp.einsum("mii...->mi...", g)
    pick = jax.nn.one_hot(jnp.argmax(diagonal, axis=1), g.shape[1], axis=1, dtype=g.dtype)[:, None]
    y_re = jnp.sum(g * pick, axis=2)
    y_im = None if h is None else jnp.sum(h * pick, axis=2)
    return jax.tree.map(lambda x: _out_of_blocks(x, batch), (y_re, y_im, log_bound - excess))


def _in_blocks(x: Array, num_batch_axes: int) -> Array:
    """`(..., *batch)` as `(blocks, ..., lanes)`, filled up with zeros: a block of matrices stays in the first
    cache while it is squared, and its lanes fill the registers."""
    leading = x.shape[: x.ndim - num_batch_axes]
    x = x.reshape(*leading, -1)
    blocks = -(-x.shape[-1] // _LANES)
    x = jnp.pad(x, [(0, 0)] * len(leading) + [(0, blocks * _LANES - x.shape[-1])])
    return jnp.moveaxis(x.reshape(*leading, blocks, _LANES), -2, 0)


def _out_of_blocks(x: Array, batch: tuple[int, ...]) -> Array:
    x = jnp.moveaxis(x, 0, -2)
    return x.reshape(*x.shape[:-2], -1)[..., : math.prod(batch)].reshape(*x.shape[:-2], *batch)


def _product(a: Array, b: Array) -> Array:
    """sum_k a[k, i] b[k, j] for matrices along the middle axes."""
    if a.shape[1] >= _UNROLL_BELOW or a.shape[0] * a.shape[3] < _UNROLL_FROM:
        return jnp.einsum("mkin,mkjn->mijn", a, b)
    total = a[:, 0, :, None] * b[:, 0, None]
    for k in range(1, a.shape[1]):
        total = total + a[:, k, :, None] * b[:, k, None]
    return total


def _squared(p: Array | int, powers: _Powers) -> _Powers:
    """G^H G divided by its trace, real and imaginary part, and the log of the bound so far.

    With G Hermitian, G^2 = G^H G: the same product as the first one, A^H A. (Two real products would do, from
    (g + h)'(g + h) and g'h, but took half as long again: the two sums of g'g + h'h share one pass.)
    """
    g, h, log_bound = powers
    if h is None:
        g = _product(g, g)
    else:
        mixed = _product(g, h)
        g, h = _product(g, g) + _product(h, h), mixed - mixed.swapaxes(1, 2)
    trace = sum((g[:, i, i] for i in range(1, g.shape[1])), g[:, 0, 0])
    trace = jnp.where(trace > 0, trace, 1)
    over = trace[:, None, None]
    return g / over, None if h is None else h / over, log_bound + jnp.log(trace) / 2.0**p


def _excess(squarings: Array | int, powers: _Powers) -> Array:
    """What one more squaring would take from the log of the bound; tr(G^2) = ||G||_F^2 spares its product.

    The bound less this exceeds the log of ||A||^2 by this much at most.
    """
    g, h, _ = powers
    square_of_g = jnp.sum(g * g, axis=(1, 2)) + (0 if h is None else jnp.sum(h * h, axis=(1, 2)))
    return -jnp.log(jnp.where(square_of_g > 0, square_of_g, 1)) / 2.0**squarings


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
