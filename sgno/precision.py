"""Double precision for the length of a block, in every version of JAX that we support."""

try:
    from jax import enable_x64 as enable_x64
except ImportError:
    # JAX up to 0.7, the last for Python 3.10 among them.
    from jax.experimental import enable_x64 as enable_x64  # pyright: ignore[reportAttributeAccessIssue]
