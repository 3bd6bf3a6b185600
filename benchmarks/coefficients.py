"""Where the time of SGNO's coefficients goes in 1D: `python -m benchmarks.coefficients [--out FILE]`.

Processor time of one update of the coefficients with its gradient, on one thread, least of some repeats: the
part that `make bench` measures as a whole. Norms are squared until all are within their tolerance, so that
allowing fewer squarings shows what each of them takes.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from benchmarks.speed.coefficients import capped, gradient, many, mixers
from sgno.grid import Grid
from sgno.lab.machine import machine, versions
from sgno.lab.zoo import load
from sgno.nn.layer import excesses
from sgno.registry import get_model
from sgno.spectral import norms

_UPDATES, _REPEATS = 300, 5


def milliseconds(change: Callable[[PyTree], PyTree], weights: PyTree) -> float:
    """Processor time of `change(weights)`."""
    program = many(change)
    jax.block_until_ready(program(weights, 3))
    taken = []
    for _ in range(_REPEATS):
        start = time.process_time()
        jax.block_until_ready(program(weights, _UPDATES))
        taken.append(time.process_time() - start)
    return 1e3 * min(taken) / _UPDATES


def profile() -> dict[str, float]:
    """Milliseconds by what is computed."""
    step = get_model("sgno", 1).build(Grid(1, (160,)), key=jax.random.PRNGKey(0))
    found = {
        "all, as training starts": milliseconds(*gradient(step)),
        "all, every cap binding": milliseconds(*gradient(capped(step))),
    }
    for task in ("adv1d", "diff1d", "disp1d", "kdv1d", "ks1d"):
        found[f"all, trained on {task}"] = milliseconds(*gradient(load(f"{task}/sgno")))
    matrices = tuple(jnp.moveaxis(part, 0, 2) for part in mixers(capped(step)))

    def of_norms(pair):
        return jax.grad(lambda pair: jnp.sum(jnp.square(excesses(*pair))))(pair)

    found["norms of the mixers with their gradient"] = milliseconds(of_norms, matrices)
    allowed = norms.SQUARINGS
    for count in (1, 2, 3, 4, allowed):
        norms.SQUARINGS = count
        found[f"the same, at most {count} squarings"] = milliseconds(lambda pair: of_norms(pair), matrices)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write it there as JSON")
    out = parser.parse_args().out
    found = profile()
    for what, value in found.items():
        print(f"{what:<45} {value:.3f} ms")
    if out is not None:
        content = {"milliseconds": found, "machine": machine(), "versions": versions()}
        out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
