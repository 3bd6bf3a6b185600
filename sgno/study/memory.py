"""The most memory a job held, measured by the kernel."""

from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# proc(5): writing 5 resets the process's peak resident set to its present one.
_RESET_PEAK = "5"


def reset_peak() -> None:
    """Forget the peak so far, so that a job in a long-lived worker is charged its own."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        # Not Linux, or not allowed: the peak is then that of the process, an upper bound.
        return


def peak_bytes() -> int | None:
    """The largest resident set since the last reset, or None where the kernel does not say."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    except OSError:
        return None
    return None
