"""Where the time of SGNO's coefficients goes in 1D: `python -m benchmarks.coefficients [--out FILE]`.

Processor time of one update of the coefficients with its gradient, on one thread, least of some repeats: the
part that `sgno bench` measures as a whole. Norms are squared until all are within their tolerance, so that
allowing fewer squarings shows what each of them takes.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from sgno.models.mixer import excesses
from sgno.models.registry import get_model
from sgno.models.step import Grid
from sgno.spectral import norms
from sgno.study.machine import machine, versions

_UPDATES, _REPEATS = 300, 5


def milliseconds(change: Callable[[PyTree], PyTree], weights: PyTree) -> float:
    """Processor time of `change(weights)`, many in one program, each depending on the one before."""

    @jax.jit
    def many(weights, count):
        nudge = lambda _, w: jax.tree.map(lambda a, b: a - 1e-9 * b, w, change(w))
        return jax.lax.fori_loop(0, count, nudge, weights)

    jax.block_until_ready(many(weights, 3))
    taken = []
    for _ in range(_REPEATS):
        start = time.process_time()
        jax.block_until_ready(many(weights, _UPDATES))
        taken.append(time.process_time() - start)
    return 1e3 * min(taken) / _UPDATES


def coefficients(step: eqx.Module) -> tuple[Callable[[PyTree], PyTree], PyTree]:
    """The gradient of the sum of squares of all coefficients, and the weights that it is taken at."""
    weights, rest = eqx.partition(step, eqx.is_inexact_array)

    def total(weights):
        prepared = eqx.filter(eqx.combine(weights, rest).prepare(), eqx.is_inexact_array)
        return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(prepared))

    return jax.grad(total), weights


def profile() -> dict[str, float]:
    """Milliseconds by what is computed."""
    step = get_model("sgno", 1).build(Grid(1, (160,)), key=jax.random.PRNGKey(0))
    mixers = lambda s: [part for layer in s.layers for part in (layer.mixer.real, layer.mixer.imag)]
    capped = eqx.tree_at(mixers, step, [100 * part for part in mixers(step)])
    found = {
        "all, as training starts": milliseconds(*coefficients(step)),
        "all, every cap binding": milliseconds(*coefficients(capped)),
    }
    parts = mixers(capped)
    matrices = tuple(jnp.stack(half, axis=2) for half in (parts[::2], parts[1::2]))

    def gradient(pair):
        return jax.grad(lambda pair: jnp.sum(jnp.square(excesses(*pair))))(pair)

    found["norms of the mixers with their gradient"] = milliseconds(gradient, matrices)
    allowed = norms.SQUARINGS
    for count in (1, 2, 3, 4, allowed):
        norms.SQUARINGS = count
        found[f"the same, at most {count} squarings"] = milliseconds(lambda pair: gradient(pair), matrices)
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
