"""Peak memory of this process, while it works and not while it compiles."""

import ctypes
import gc
import resource
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """The most memory this process had resident, in MB: since `forget_peak` on Linux, ever elsewhere."""
    if _STATUS.exists():
        found = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        if found:
            return int(found[0].split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kilobytes, macOS in bytes.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def forget_peak() -> None:
    """Give freed memory back to the system and count the peak from here on, where the system can.

    What a compiler took and freed would otherwise count as the memory of the work that follows.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        try:
            _CLEAR.write_text("5")
        except OSError:
            # A sandbox may forbid it; the peak then includes what compiling took.
            return
