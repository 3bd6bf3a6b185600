"""No certificate is ever violated: 10,000 random and adversarial pairs, and every step of every rollout.

The models are those of the zoo. Half of the pairs climb the ratio by gradient ascent; some start along the
direction that power iteration finds to be stretched most.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgno.data import load_trajectories
from sgno.evaluation.certificates import certify, gather_evidence
from sgno.evaluation.certificates.local import l2
from sgno.models.weights import load_weights
from sgno.tasks import Task
from sgno.zoo import find
from sgno.zoo.shelf import names

PAIRS, CLIMBS = 10_000, 12
BATCH = 500


@eqx.filter_jit
def stretched(ready, u, v):
    """|f(u) - f(v)|, |u - v| and |u| + |v|."""
    return l2(ready.batch(u) - ready.batch(v)), l2(u - v), l2(u) + l2(v)


@eqx.filter_jit
def climbed(ready, u, v, climbs):
    """Pairs after gradient ascent on log(|f(u) - f(v)| / |u - v|), moved in proportion to their distance."""

    def ratio(pair):
        apart, near, _ = stretched(ready, *pair)
        return jnp.sum(jnp.log(apart + 1e-30) - jnp.log(near + 1e-30))

    def climb(_, pair):
        slopes = jax.grad(ratio)(pair)
        reach = l2(pair[0] - pair[1])[:, None, None]
        return jax.tree.map(lambda x, g: x + 0.1 * reach * g / (l2(g)[:, None, None] + 1e-30), pair, slopes)

    return jax.lax.fori_loop(0, climbs, climb, (u, v))


@pytest.mark.parametrize("name", names())
def test_no_certificate_of_the_zoo_is_violated(name):
    weights = load_weights(find(name))
    (certificate,) = certify([weights.step], weights.grid.points)
    test = load_trajectories(Task.from_json(weights.provenance["job"]["task"])).test
    (evidence,) = gather_evidence([weights.step], [certificate], test)
    assert evidence.holds
    assert evidence.local <= certificate.step

    ready = eqx.filter_jit(lambda step: step.prepare())(weights.step)
    rng = np.random.default_rng(0)
    a, b = certificate.rounding
    worst = 0.0
    for start in range(0, PAIRS, BATCH):
        # States of the data, and fields of noise of every size; partners from next to them to far away.
        states = test[rng.integers(len(test), size=BATCH), rng.integers(test.shape[1], size=BATCH)]
        noise = rng.normal(size=states.shape) * 10.0 ** rng.uniform(-3, 2, (BATCH, 1, 1))
        u = np.where(rng.random((BATCH, 1, 1)) < 0.5, states, noise)
        gap = rng.normal(size=states.shape) * 10.0 ** rng.uniform(-4, 1, (BATCH, 1, 1))
        u, v = jnp.asarray(u, jnp.float32), jnp.asarray(u + gap, jnp.float32)
        if start >= PAIRS // 2:
            u, v = climbed(ready, u, v, CLIMBS)
        apart, near, sizes = (np.asarray(x, np.float64) for x in stretched(ready, u, v))
        finite = np.isfinite(apart) & np.isfinite(near)
        assert finite.all()
        assert np.all(apart <= (certificate.step * near + a * sizes + 2 * b) * (1 + 1e-5))
        # Rounding is no excuse: pairs that are far apart obey the constant alone.
        far = near > 0.1 * sizes
        assert np.all(apart[far] <= certificate.step * near[far] * (1 + 1e-5))
        worst = max(worst, float((apart[far] / near[far]).max(initial=0)))
    print(f"{name}: largest ratio {worst:.4g}, local {evidence.local:.4g}, certified {certificate.step:.4g}")
    # The search is no formality: it finds what the local estimate finds at least in part.
    assert worst > 0.2 * min(evidence.local, 1.0)
