"""Keep compiled programs on disk, so that the second run starts at once."""

from pathlib import Path

import jax


def use_compilation_cache(cache: Path) -> None:
    """Let JAX reuse programs that any earlier process compiled on this machine.

    Called by the command line and by workers, never on import.
    """
    jax.config.update("jax_compilation_cache_dir", str(cache / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
