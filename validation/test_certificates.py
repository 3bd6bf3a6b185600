"""No certificate is ever violated: 10,000 random and adversarial pairs, and every step of every rollout.

The models are those of the zoo. Of the adversarial pairs half lie along the direction that power iteration
finds to be stretched most, half climb the ratio by gradient ascent. What was found is kept in
`results/certificates.json`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from keep import RESULTS, keep

from sgno.io.files import finite, read_json
from sgno.lab.data import load_trajectories
from sgno.lab.tasks import Task
from sgno.lab.zoo import find
from sgno.lab.zoo.shelf import names
from sgno.solve.certificates import certify, gather_evidence
from sgno.solve.certificates.local import l2
from sgno.step import batch, prepare
from sgno.weights import load, read_provenance

BATCH = 250
BATCHES = {"random": 28, "along the most stretched direction": 6, "climbed": 6}
ITERATIONS = 8
# Norms are taken in float32; their own rounding stays below this.
MARGIN = 1 + 1e-5


def per_state(norms, u):
    """Norms shaped to multiply states."""
    return norms.reshape(-1, *(1,) * (u.ndim - 1))


@eqx.filter_jit
def stretched(ready, u, v):
    """|f(u) - f(v)|, |u - v| and |u| + |v|."""
    return l2(batch(ready, u) - batch(ready, v)), l2(u - v), l2(u) + l2(v)


@eqx.filter_jit
def most_stretched(ready, u, x):
    """Unit directions after power iteration on J^T J, J the Jacobian of the step at each u."""
    _, forward = jax.linearize(ready.batch, u)
    transpose = jax.linear_transpose(forward, u)
    unit = lambda x: x / per_state(l2(x) + 1e-30, x)
    return jax.lax.fori_loop(0, ITERATIONS, lambda _, x: unit(transpose(unit(forward(x)))[0]), unit(x))


@eqx.filter_jit
def climbed(ready, u, v):
    """Pairs after gradient ascent on log(|f(u) - f(v)| / |u - v|), moved in proportion to their distance."""

    def ratio(pair):
        apart, near, _ = stretched(ready, *pair)
        return jnp.sum(jnp.log(apart + 1e-30) - jnp.log(near + 1e-30))

    def climb(_, pair):
        slopes = jax.grad(ratio)(pair)
        reach = 0.15 * l2(pair[0] - pair[1])
        return jax.tree.map(lambda x, g: x + g * per_state(reach / (l2(g) + 1e-30), x), pair, slopes)

    return jax.lax.fori_loop(0, ITERATIONS, climb, (u, v))


def pairs(kind: str, ready, test: np.ndarray, rng: np.random.Generator):
    """States of the data, and fields of noise of every size; partners from next to them to far away."""
    states = test[rng.integers(len(test), size=BATCH), rng.integers(test.shape[1], size=BATCH)]
    sizes = lambda low, high: per_state(10.0 ** rng.uniform(low, high, BATCH), states)
    noise = rng.normal(size=states.shape) * sizes(-3, 2)
    u = jnp.asarray(np.where(per_state(rng.random(BATCH), states) < 0.5, states, noise), jnp.float32)
    direction = jnp.asarray(rng.normal(size=states.shape), jnp.float32)
    if kind == "along the most stretched direction":
        direction = most_stretched(ready, u, direction)
    v = u + direction * jnp.asarray(sizes(-4, 1), jnp.float32)
    return climbed(ready, u, v) if kind == "climbed" else (u, v)


def examine(name: str) -> dict[str, Any]:
    """Everything measured of a shipped model, beside its certificate; fails where one exceeds the other."""
    step = load(find(name))
    (certificate,) = certify([step], step.grid.points)
    test = load_trajectories(Task.from_json(read_provenance(find(name))["job"]["task"])).test
    (evidence,) = gather_evidence([step], [certificate], test)
    assert evidence.holds
    assert evidence.local <= certificate.step

    ready = eqx.filter_jit(lambda step: prepare(step))(step)
    rng = np.random.default_rng(0)
    a, b = certificate.rounding
    largest = dict.fromkeys(BATCHES, 0.0)
    for kind, count in BATCHES.items():
        for _ in range(count):
            u, v = pairs(kind, ready, test, rng)
            apart, near, sizes = (np.asarray(x, np.float64) for x in stretched(ready, u, v))
            assert np.isfinite(apart).all() and np.isfinite(near).all()
            assert np.all(apart <= (certificate.step * near + a * sizes + 2 * b) * MARGIN)
            # Rounding is no excuse: pairs that are far apart obey the constant alone.
            far = near > 0.1 * sizes
            assert np.all(apart[far] <= certificate.step * near[far] * MARGIN)
            largest[kind] = max(largest[kind], float((apart[far] / near[far]).max(initial=0)))
    # The search is no formality: it finds what the local estimate finds at least in part.
    assert max(largest.values()) > 0.2 * min(evidence.local, 1.0)
    with np.errstate(divide="ignore"):
        room = evidence.certified - np.log10(evidence.error)
    found = {
        "pairs": BATCH * sum(BATCHES.values()),
        "certified": certificate.step,
        "largest_ratio": largest,
        "local_lipschitz_at_least": evidence.local,
        "steps": len(evidence.error),
        "trajectories": len(test),
        "delta": evidence.delta,
        "largest_error": float(evidence.error.max()),
        "trapping_radius": certificate.ball,
        # At every step the bound lies at least this many decades above the error.
        "least_decades_between_bound_and_error": float(room.min()),
        "violations": 0,
    }
    return finite(found)


def test_there_are_enough_pairs():
    assert BATCH * sum(BATCHES.values()) >= 10_000


@pytest.mark.parametrize("name", names())
def test_no_certificate_of_the_zoo_is_violated(name):
    found = examine(name)
    kept = RESULTS / "certificates.json"
    before = read_json(kept)["models"] if kept.is_file() else {}
    keep("certificates", {"models": {**before, name: found}})
