"""No certificate is violated: 10,000 steps of gradient ascent for each model of the zoo, and its rollouts.

Pairs of states, near and far, climb log(|f(u) - f(v)| / |u - v|). Those that have come to rest, or so close
that rounding would speak, start again from fresh states of the data or from noise. An SGNO in 2D or 3D is
searched on the coarsest grid that carries its modes, where its certificate is the same; every other model on
its own grid. What was found is kept in `results/certificates.json`; a model that is there with the same
weights is not searched again.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from keep import RESULTS, keep

from sgno.io.files import content_id, finite, read_json
from sgno.lab.data import load_trajectories
from sgno.lab.tasks import Task
from sgno.lab.zoo import find
from sgno.lab.zoo.shelf import names
from sgno.sgno_x import SGNOX
from sgno.solve.certificates import certify, gather_evidence
from sgno.solve.certificates.certificate import inside
from sgno.solve.certificates.evidence import ROUNDINGS, l2
from sgno.step import batch, prepare
from sgno.weights import flatten, load, read_provenance

STEPS, ROUND = 10_000, 250
# Pairs that climb side by side, by the number of axes.
PAIRS = {1: 4, 2: 1, 3: 1}
# Rollouts and one-step errors are measured on this many trajectories.
SAMPLES = 5
# Norms are taken in float32; their own rounding stays below this.
MARGIN = 1 + 1e-5
UNIT = 2.0**-24


def per_state(norms, u):
    """Norms shaped to multiply states."""
    return norms.reshape(-1, *(1,) * (u.ndim - 1))


@eqx.filter_jit
def climb(ready, u, v):
    """`ROUND` steps of ascent, each in proportion to the distance of its pair.

    **Returns:** the pairs, and of each pair the largest ratio met while it was further apart than a hundredth
    of its states, so that rounding has no part in it.
    """

    def ratio(pair):
        apart, near = l2(batch(ready, pair[0]) - batch(ready, pair[1])), l2(pair[0] - pair[1])
        value = jnp.log(apart + 1e-30) - jnp.log(near + 1e-30)
        return jnp.sum(value), (value, near)

    def one(carry, _):
        pair, best = carry
        (_, (value, near)), slopes = jax.value_and_grad(ratio, has_aux=True)(pair)
        far = near > 0.01 * (l2(pair[0]) + l2(pair[1]))
        moved = jax.tree.map(
            lambda x, g: x + g * per_state(0.1 * near / (l2(g) + 1e-30), x),
            pair,
            slopes,
        )
        return (moved, jnp.where(far, jnp.maximum(best, value), best)), None

    start = ((u, v), jnp.full(len(u), -jnp.inf))
    (pair, best), _ = jax.lax.scan(one, start, None, length=ROUND)
    return pair, jnp.exp(best)


def fresh(states: np.ndarray, rng: np.random.Generator):
    """States of the data and fields of noise of every size, with partners from next to them to far away."""
    count = PAIRS[states.ndim - 2]
    u = states[rng.integers(len(states), size=count)]
    sizes = lambda low, high: per_state(10.0 ** rng.uniform(low, high, count), u)
    noise = rng.normal(size=u.shape) * sizes(-3, 2)
    u = np.where(per_state(rng.random(count), u) < 0.5, u, noise)
    v = u + rng.normal(size=u.shape) * sizes(-2, 1)
    return jnp.asarray(u, jnp.float32), jnp.asarray(v, jnp.float32)


def search(model, points: tuple[int, ...], states: np.ndarray) -> tuple[float, float]:
    """The largest ratio of `STEPS` steps, and how far float32 was from float64 in units of rounding."""
    make_ready = lambda step: step.on_grid(points) if isinstance(step, SGNOX) else prepare(step)
    ready = eqx.filter_jit(make_ready)(model)
    rng, found = np.random.default_rng(0), 0.0
    u, v = fresh(states, rng)
    for done in range(0, STEPS, ROUND):
        (u, v), best = climb(ready, u, v)
        found = max(found, float(jnp.max(jnp.where(jnp.isfinite(best), best, 0.0))))
        # Half of the pairs go on climbing for another round, unless they left the numbers or came together.
        new_u, new_v = fresh(states, rng)
        near, size = l2(u - v), l2(u) + l2(v)
        stays = jnp.isfinite(size) & (near > 0.01 * size) & (size < 1e6)
        stays &= (jnp.arange(len(u)) + done // ROUND) % 2 == 0
        u, v = (jnp.where(per_state(stays, x), x, y) for x, y in ((u, new_u), (v, new_v)))
    some = states[rng.integers(len(states), size=4)]
    size = float(np.sqrt(np.sum(states**2, axis=tuple(range(1, states.ndim))).max() / np.prod(points)))
    return found, rounding(ready, jnp.asarray(some, jnp.float32), size)


def rounding(ready, u, size: float) -> float:
    """max |fl(f)(u) - f(u)| / (2^-24 U) over a few states of the data, U the largest norm of all."""
    rounded = np.asarray(eqx.filter_jit(batch)(ready, u), np.float64)

    def widened(leaf):
        if not eqx.is_inexact_array(leaf):
            return leaf
        return jnp.asarray(np.asarray(leaf), jnp.complex128 if jnp.iscomplexobj(leaf) else jnp.float64)

    with jax.enable_x64(True):
        exact = eqx.filter_jit(batch)(jax.tree.map(widened, ready), jnp.asarray(np.asarray(u, np.float64)))
        exact = np.asarray(exact)
    axes = tuple(range(1, exact.ndim))
    off = np.sqrt(np.mean((rounded - exact) ** 2, axis=axes) * exact.shape[1])
    return float(off.max() / (UNIT * size))


def coarsest(model) -> tuple[int, ...]:
    """The grid to search on: see above."""
    points = model.grid.points
    if len(points) == 1 or model.config.kind != "sgno":
        return points
    return (2 * model.config.num_modes,) * len(points)


def examine(name: str) -> dict[str, Any]:
    """Everything measured of a shipped model, beside its certificate; fails where one exceeds the other."""
    step = load(find(name))
    certificate = certify(step, step.grid.points)
    test = load_trajectories(Task.from_json(read_provenance(find(name))["job"]["task"])).test[:SAMPLES]
    evidence = gather_evidence(step, certificate, test)
    assert evidence.holds
    assert evidence.local <= certificate.step * MARGIN

    model, *_ = inside(step)
    points = coarsest(model)
    states = np.asarray(test).reshape(-1, *test.shape[2:])
    pairs = zip(test.shape[3:], points, strict=True)
    every = [slice(None, new * (old // new), old // new) for old, new in pairs]
    states = states[(slice(None), slice(None), *every)]
    largest, roundings = search(model, points, states)
    assert largest <= certify(step, points).step * MARGIN
    # The search is no formality: it finds what the local estimate finds at least in part.
    assert largest > 0.2 * min(evidence.local, 1.0)
    assert roundings <= ROUNDINGS
    with np.errstate(divide="ignore"):
        room = evidence.certified - np.log10(evidence.error)
    return finite(
        {
            "weights": identity(step),
            "ascent_steps": STEPS,
            "pairs_at_once": PAIRS[len(points)],
            "points": list(points),
            "certified": certificate.step,
            "largest_ratio": largest,
            "violations": 0,
            "rounding_in_units": roundings,
            "local_lipschitz_at_least": evidence.local,
            "radius": certificate.radius,
            "horizons": evidence.horizons,
            "steps": len(evidence.error),
            "trajectories": len(test),
            "delta": evidence.delta,
            "largest_error": float(evidence.error.max()),
            # At every step the bound lies at least this many decades above the error.
            "least_decades_between_bound_and_error": float(room.min()),
        }
    )


def identity(step) -> str:
    """A hash of the weights."""
    return content_id({name: array.tolist() for name, array in flatten(step).items()})


@pytest.mark.parametrize("name", names())
def test_no_certificate_of_the_zoo_is_violated(name):
    kept = RESULTS / "certificates.json"
    before = read_json(kept)["models"] if kept.is_file() else {}
    known = before.get(name, {})
    if known.get("ascent_steps") == STEPS and known.get("weights") == identity(load(find(name))):
        assert known["violations"] == 0
        return
    keep("certificates", {"models": {**before, name: examine(name)}})
