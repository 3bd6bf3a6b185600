"""The core of the suite on several versions of Python and of the packages it stands on: `make matrix`.

Each row is a fresh virtual environment. `newest` takes whatever the index has, `oldest` the lower bounds of
pyproject.toml, `oldest-NAME` the lower bound of one package beside the newest of the others. What cannot be
installed here is named with the reason. Rows are kept one by one in `results/matrix.json`, so a run that was
stopped goes on where it was: `python validation/matrix.py --out FILE`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ALONE = ("jax", "equinox", "zarr", "h5py")
ROWS = [
    *((python, "newest") for python in PYTHONS),
    ("3.11", "oldest"),
    *(("3.11", f"oldest-{name}") for name in ALONE),
]
TOOLS = ("pytest>=8", "hypothesis>=6.100", "beartype>=0.18", "mpmath>=1.3")
TESTS = ("test_core_alone.py", "test_files.py", "test_source.py", "test_spectral.py")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def requirements(which: str) -> list[str]:
    """What pip is asked for: the core, the extra `data`, and the tools of the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["data"]]
    return [*(_pinned(one, which) for one in wanted), *TOOLS]


def _pinned(requirement: str, which: str) -> str:
    name = _NAME.match(requirement)
    assert name is not None
    if which not in ("oldest", f"oldest-{name[0]}"):
        return requirement
    # `==0.8` alone is 0.8.0: the first release that the bound allows.
    return requirement.split(",")[0].replace(">=", "==")


def interpreter(version: str) -> str | None:
    """A Python of this version: the one that runs this, one on the path, or one of pyenv."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in (sys.executable, shutil.which(f"python{version}"), *map(str, of_pyenv)):
        if path is None:
            continue
        ask = "import sys, ssl, ctypes; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", ask], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return path
    return None


def run_row(version: str, which: str) -> dict[str, Any]:
    """Install and test one row."""
    path = interpreter(version)
    if path is None:
        return {"outcome": "not installed", "reason": f"There is no Python {version} on this machine."}
    with tempfile.TemporaryDirectory(prefix="sgno-matrix-") as folder:
        python = f"{folder}/bin/python"
        subprocess.run([path, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements(which)]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return {"outcome": "not installed", "reason": " ".join(said)[-500:]}
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        pytest = [python, "-m", "pytest", "-p", "no:cacheprovider", "-rf", "--tb=short"]
        done = subprocess.run(
            [*pytest, *(f"tests/{name}" for name in TESTS)],
            cwd=ROOT,
            env=surroundings,
            capture_output=True,
            text=True,
        )
        pip_list = [python, "-m", "pip", "list", "--format=json"]
        listed = subprocess.run(pip_list, capture_output=True, text=True)
        versions = {one["name"]: one["version"] for one in json.loads(listed.stdout)}
        exact = subprocess.run([python, "-V"], capture_output=True, text=True).stdout.split()[1]
    said = done.stdout.splitlines()
    # A process that was ended says so in its last lines alone.
    wrong = [line for line in said if line.startswith(("FAILED", "ERROR", "E  "))][-30:]
    if done.returncode and not wrong:
        wrong = [*said, *done.stderr.splitlines()][-5:]
    counted = re.search(r"(\d+) passed", done.stdout)
    return {
        "outcome": "passed" if done.returncode == 0 else "failed",
        "python": exact,
        "passed": int(counted[1]) if counted else 0,
        "failures": wrong,
        "versions": versions,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Test the core on several versions.")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "matrix.json")
    parser.add_argument("--python", help="Only this version.")
    parser.add_argument("--set", dest="which", help="Only this set: newest, oldest or oldest-NAME.")
    parser.add_argument("--again", action="store_true", help="Rows that passed, too.")
    given = parser.parse_args()
    kept = json.loads(given.out.read_text()) if given.out.is_file() else {"tests": list(TESTS), "rows": {}}
    wrong = 0
    for version, which in ROWS:
        if given.python not in (None, version) or given.which not in (None, which):
            continue
        row = f"{version} {which}"
        if given.again or kept["rows"].get(row, {}).get("outcome") != "passed":
            kept["rows"][row] = run_row(version, which)
            beside = given.out.with_suffix(".part")
            beside.write_text(json.dumps(kept, indent=1) + "\n")
            beside.replace(given.out)
        found = kept["rows"][row]
        print(f"{row}: {found['outcome']}", found.get("reason", ""), flush=True)
        for line in found.get("failures", []):
            print("  ", line, flush=True)
        wrong += found["outcome"] == "failed"
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
