"""Data flows one way, importing does nothing, and the public names exist."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sgno

ROOT = Path(sgno.__file__).parent
# Each layer may import itself and what stands before it.
ORDER = [
    "errors",
    "progress",
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


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(path: Path):
    """What a module imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else node.module for name in inner)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("name", MODULES)
def test_imports_only_go_down(name):
    path = MODULES[name]
    layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if layer in ("__init__", "__main__"):
        return
    assert layer in ORDER, f"{layer} has no place in the order of layers"
    for imported in imports(path):
        parts = imported.split(".")
        if parts[0] == "sgno" and len(parts) > 1:
            assert ORDER.index(parts[1]) <= ORDER.index(layer), f"{layer} imports {imported}"
        if name.startswith("sgno.lab.report"):
            assert parts[0] not in ("jax", "equinox", "optax"), f"the report imports {imported}"


def test_no_two_modules_need_each_other():
    needs = {name: {m for m in imports(path) if m in MODULES} - {name} for name, path in MODULES.items()}
    # Raises CycleError with the modules of a circle.
    assert len(tuple(graphlib.TopologicalSorter(needs).static_order())) == len(MODULES)


def test_the_design_page_lists_the_layers_in_their_order():
    page = (ROOT.parent / "docs" / "design.md").read_text()
    listed = page.split("```")[1].strip().splitlines()
    names = [name for line in listed for name in re.split(r"  +", line)[0].replace("/", "").split(", ")]
    assert names == ORDER


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
