"""Compiled programs: kept on disk, so that the second run starts at once, and not for ever in memory."""

from pathlib import Path

import jax

from sgno.lab.memory import give_back, resident_bytes

# A process that holds more than this when a job begins lets go of what earlier jobs compiled.
_MOST_KEPT_BYTES = 10**9


def use_compilation_cache(cache: Path) -> None:
    """Let JAX reuse programs that any earlier process compiled on this machine.

    Called by the command line and by workers, never on import.
    """
    jax.config.update("jax_compilation_cache_dir", str(cache / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def forget_programs() -> None:
    """Drop the programs of earlier jobs if this process holds too much.

    JAX keeps whatever it compiled, some hundred megabytes for a job, and a worker may run hundreds of jobs.
    What a later job needs again it finds on disk. Called by the command line and by workers between two jobs:
    in a process of the user's, the programs are the user's.
    """
    if _holds_too_much():
        give_back()
    if _holds_too_much():
        jax.clear_caches()
        give_back()


def _holds_too_much() -> bool:
    return (resident_bytes() or 0) > _MOST_KEPT_BYTES
