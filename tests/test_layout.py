"""Data flows one way, importing does nothing, and the public names exist."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sgno

ROOT = Path(sgno.__file__).parent
# Each layer may import itself and what stands before it.
ORDER = [
    "errors",
    "grid",
    "spectral",
    "io",
    "step",
    "devices",
    "engine",
    "config",
    "registry",
    "nn",
    "sgno_x",
    "weights",
    "identify",
    "solve",
    "training",
    "export",
    "lab",
    "cli",
]


def imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_only_go_down(path):
    layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if layer not in ORDER:
        assert layer in ("__init__", "__main__", "api"), f"{layer} has no place in the order of layers"
        return
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "sgno" and len(parts) > 1:
            assert ORDER.index(parts[1]) <= ORDER.index(layer), f"{layer} imports {name}"
        if path.relative_to(ROOT).parts[:2] == ("lab", "report"):
            assert parts[0] not in ("jax", "equinox", "optax"), f"the report imports {name}"


def test_importing_does_nothing(tmp_path):
    code = "import os, sys, sgno; print(sorted(os.listdir('.')), 'jax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[] False", done.stderr


def test_every_public_name_exists():
    for name in sgno.__all__:
        assert getattr(sgno, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(sgno, "nothing")  # noqa: B009
    assert {*sgno.__all__, "step", "__version__"} <= set(dir(sgno))
