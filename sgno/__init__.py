"""sgno: surrogates of time-dependent PDEs that stay accurate and finite.

The public names are those of `__init__.pyi`. Each is loaded when first used, so that importing the package is
instant.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_HOME = {
    name.name: line.module
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(line, ast.ImportFrom) and line.module
    for name in line.names
}

__all__: list[str] = sorted(name for name, home in _HOME.items() if home != __name__)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sgno' has no attribute '{name}'")
    if _HOME[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
