"""Where a number comes from: versions and machine."""

import importlib.metadata
import platform
from typing import Any

import jax

from sgno.devices import cores

_PACKAGES = ("sgno", "jax", "jaxlib", "equinox", "optax", "apebench", "exponax", "pdequinox", "numpy")


def versions() -> dict[str, str]:
    """Versions of Python and of every package that can change a number."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine() -> dict[str, Any]:
    """The processor, its cores available to this process, and the devices JAX computes on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(cores()),
        "devices": [device.device_kind for device in jax.local_devices()],
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
