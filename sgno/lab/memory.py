"""Memory of this process, as the system counts it."""

import ctypes
import gc
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# proc(5): writing 5 resets the process's peak resident set to its present one.
_RESET_PEAK = "5"


def resident_bytes() -> int | None:
    """What this process has in memory now, or None where the system does not say."""
    return _from_status("VmRSS")


def peak_bytes() -> int | None:
    """The most it had in memory: since `forget_peak` on Linux, ever elsewhere, or None."""
    found = _from_status("VmHWM")
    if found is not None or sys.platform == "win32":
        return found
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kilobytes, macOS in bytes.
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak() -> None:
    """Count the peak from here on, so that a piece of work in a long-lived process is charged its own."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        # Not Linux, or not allowed: the peak is then that of the process, an upper bound.
        return


def give_back() -> None:
    """Return to the system what was freed; a compiler leaves hundreds of megabytes to the allocator."""
    gc.collect()
    if sys.platform == "linux":
        # Other C libraries than GNU's have no such function.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _from_status(name: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
