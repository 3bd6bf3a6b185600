"""This process and its machine: versions, processor, memory, and the programs that JAX keeps compiled."""

import ctypes
import gc
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax

from sgno.devices import cores
from sgno.errors import installed_version
from sgno.io.files import content_id

_PACKAGES = ("sgno", "jax", "jaxlib", "equinox", "optax", "apebench", "exponax", "pdequinox", "numpy")
# A process that holds more than this when a job begins drops what earlier jobs compiled.
_MOST_KEPT_BYTES = 10**9
# Compiled programs on disk: a job leaves 1 to 10 MB.
_COMPILED, _MOST_COMPILED_BYTES = "compiled", 2 * 10**9


def versions() -> dict[str, str]:
    """Versions of Python and of every package that can change a number."""
    return {"python": platform.python_version(), **{name: installed_version(name) for name in _PACKAGES}}


def machine() -> dict[str, Any]:
    """The processor, its cores available to this process, and the devices JAX computes on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _from_proc("cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": len(cores()),
        "devices": [device.device_kind for device in jax.local_devices()],
    }


def peak_bytes() -> int | None:
    """The most memory this process had: since `forget_peak` on Linux, ever elsewhere, or None."""
    found = _memory("VmHWM")
    if found is not None or sys.platform == "win32":
        return found
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kilobytes, macOS in bytes.
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak() -> None:
    """Measure the peak from here on, so that each job of a long-lived process is charged its own."""
    try:
        # proc(5): writing 5 resets the peak resident set to the present one.
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        # Not Linux, or not allowed: the peak is then that of the process, an upper bound.
        return


def give_back() -> None:
    """Return freed memory to the system; a compiler leaves hundreds of megabytes to the allocator."""
    gc.collect()
    if sys.platform == "linux":
        # Other C libraries than GNU's have no such function.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def use_compilation_cache(cache: Path) -> None:
    """Let JAX reuse programs that any earlier process compiled on a machine like this one.

    Called by the command line, by workers and by `sgno.fit`, never on import. A folder that the user has
    chosen (`JAX_COMPILATION_CACHE_DIR`) stays chosen. Ours has a part for each kind of processor, since
    programs on a shared disk use the instructions of the one that compiled them.
    """
    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is not None and Path(chosen).parent.name != _COMPILED:
        return
    kind = [platform.machine(), *(_from_proc("cpuinfo", name) for name in ("model name", "flags"))]
    folder = cache / _COMPILED / content_id([*kind, installed_version("jaxlib")])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _drop_oldest(folder, _MOST_COMPILED_BYTES)
    except OSError:
        return
    # JAX would warn of every program that it cannot write.
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _drop_oldest(folder: Path, most: int) -> None:
    """Remove the files of a folder that were not used for longest until `most` bytes are left.

    JAX could bound its cache itself, by a lock at every access, for which shared disks are slow or unfit.
    """
    files = [(entry.path, entry.stat()) for entry in os.scandir(folder) if entry.is_file()]
    total = sum(found.st_size for _, found in files)
    for path, found in sorted(files, key=lambda file: max(file[1].st_atime, file[1].st_mtime)):
        if total <= most:
            return
        # Another process may tidy up too.
        Path(path).unlink(missing_ok=True)
        total -= found.st_size


def forget_programs() -> None:
    """Drop the programs of earlier jobs if this process holds too much memory.

    JAX keeps whatever it compiled, some hundred megabytes for a job, and a worker may run hundreds of jobs.
    What a later job needs again it finds on disk. Called by the command line and by workers between two jobs:
    in a user's own process, the programs are the user's.
    """
    too_much = lambda: (_memory("VmRSS") or 0) > _MOST_KEPT_BYTES
    if too_much():
        give_back()
    if too_much():
        jax.clear_caches()
        give_back()


def _memory(name: str) -> int | None:
    """Bytes that Linux reports of this process under a name, or None elsewhere."""
    found = _from_proc("self/status", name)
    return None if found is None else 1024 * int(found.split()[0])


def _from_proc(file: str, name: str) -> str | None:
    try:
        lines = Path("/proc", file).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)
