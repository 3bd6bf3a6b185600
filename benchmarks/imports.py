"""How long starting takes, as ratios within one run: `python -m benchmarks.imports`.

Medians of five processes each, taking turns, so that a drift of the machine touches all alike.
"""

import statistics
import subprocess
import sys
import time

BASES = {"jax": "import jax", "equinox, optax": "import equinox, optax", "typer, rich": "import typer, rich"}
# What is measured, the import it is compared with, and the ratio it must not exceed.
LIMITS = {
    "sgno.load": (["-c", "import sgno; sgno.load('ks1d/sgno-x')"], "equinox, optax", 1.5),
    "sgno zoo": (["-m", "sgno", "zoo"], "jax", 1.5),
    "sgno tasks": (["-m", "sgno", "tasks"], "jax", 1.5),
    "sgno fit nosuch.npy": (["-m", "sgno", "fit", "nosuch.npy"], "jax", 1.5),
    "sgno models": (["-m", "sgno", "models"], "jax", 3.0),
    "sgno --help": (["-m", "sgno", "--help"], "typer, rich", 2.0),
}


def main(repeats: int = 5) -> None:
    commands = {name: ["-c", code] for name, code in BASES.items()}
    commands |= {name: arguments for name, (arguments, _, _) in LIMITS.items()}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, arguments in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
            times[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name in BASES:
        print(f"import {name}: {medians[name]:.2f} s")
    for name, (_, base, limit) in LIMITS.items():
        found = medians[name] / medians[base]
        print(f"{name}: {medians[name]:.2f} s, {found:.2f} times import {base} (at most {limit:g})")


if __name__ == "__main__":
    main()
