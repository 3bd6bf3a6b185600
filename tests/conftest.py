"""Annotations are enforced in tests, and compiled programs are shared between test processes."""

import importlib.metadata
import os
from pathlib import Path

# Nearly all of the suite's time is compiling, and this takes a quarter of it. Before anything starts JAX, and
# for the processes that tests start too; `make validate` compiles as users do.
_FAST_COMPILING = "--xla_backend_optimization_level=0"
# XLA ends the process over a flag that it does not know, and newer ones do not know this one.
if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 11):
    _FAST_COMPILING += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FAST_COMPILING}".strip()

import jaxtyping  # noqa: E402
import pytest  # noqa: E402

hook = jaxtyping.install_import_hook("sgno", "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory) -> None:
    """One compilation cache for all workers and for the processes that tests start."""
    import jax

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """Forget a module's compiled programs after it: each maps memory, and a process may map only so often."""
    import jax

    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """A data cache shared by the tests of one worker."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["SGNO_CACHE"] = str(folder)
    return folder
