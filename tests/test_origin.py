"""What is written of the dependencies fits what is declared, and names no registry."""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "validation"))

import matrix  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[=><\[ ]", name)[0]).lower()


def test_every_pinned_dependency_has_a_hash_and_a_licence():
    hashes = dict(re.findall(r"^([a-z0-9-]+)==\S+ --hash=sha256:([0-9a-f]{64})$", _read("hashes.txt"), re.M))
    bill = json.loads(_read("results/sbom.json"))
    components = {plain(one["name"]): one for one in bill["components"]}
    extras = ("paper", "report", "data", "cluster", "onnx")
    direct = [*PROJECT["dependencies"], *(x for e in extras for x in PROJECT["optional-dependencies"][e])]
    assert hashes.keys() == components.keys()
    for name in map(plain, direct):
        component = components[name]
        assert component["hashes"][0]["content"] == hashes[name]
        assert component["licenses"][0]["license"]["name"] != "not stated", name
    pinned = dict(line.split("==") for line in _read("constraints.txt").splitlines() if "==" in line)
    pinned = {plain(name): version for name, version in pinned.items()}
    versions = {name: one["version"] for name, one in components.items()}
    assert all(pinned[name] == version for name, version in versions.items() if name in pinned)


def test_nothing_names_a_registry():
    for name in ("hashes.txt", "results/sbom.json", "constraints.txt"):
        assert "://" not in _read(name) and "index" not in _read(name).replace("indexing", "")


def test_the_workflow_runs_the_rows_of_the_matrix():
    workflow = _read(".github/workflows/tests.yml")
    rows = {(version, "newest") for version in re.findall(r'"(3\.\d+)"', workflow)}
    rows |= set(re.findall(r'python: "(3\.\d+)", set: ([\w-]+)', workflow))
    assert rows == set(matrix.ROWS)


def test_the_oldest_set_is_the_lower_bounds():
    oldest = matrix.requirements("oldest")
    assert all("==" in one for one in oldest if one not in matrix.TOOLS)
    assert "zarr==3.1.6" in matrix.requirements("oldest-zarr") and "jax>=0.8" in matrix.requirements("newest")


def _read(name: str) -> str:
    return (ROOT / name).read_text()
