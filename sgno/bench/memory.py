"""Peak memory of this process."""

import resource
import sys


def peak_megabytes() -> float:
    """The most memory this process ever had resident, in MB. It never falls."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kilobytes, macOS in bytes.
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
