"""One rollout engine: any step, batches by shape, observers, two drivers that agree, gradients."""

import equinox as eqx
import exponax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from sgno import engine
from sgno.engine import Observer, advance, rollout, stream
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.sgno import SGNOConfig
from sgno.step import states_at_once

N = 16
STATES = np.random.default_rng(0).normal(size=(4, 1, N)).astype(np.float32)


class Sine(eqx.Module):
    """u+ = r sin(2 u) of the shifted state: nonlinear, bounded, and wrong axes show."""

    r: jax.Array

    def __call__(self, u: Float[Array, "channels points"]) -> Float[Array, "channels points"]:
        channels, points = u.shape
        return self.r * jnp.sin(2 * jnp.roll(u, 1, axis=-1)).reshape(channels, points)


def decay(u):
    return 0.5 * jnp.roll(u, 1, axis=-1)


def sgno_step():
    return SGNOConfig(3, 4, 1).build(Grid(1, (N,)), key=jax.random.key(0))


STEPS = {
    "function": lambda: decay,
    "module": lambda: Sine(jnp.asarray(0.5)),
    "exponax": lambda: exponax.stepper.Burgers(1, 1.0, N, 0.01),
    "model": sgno_step,
}


@pytest.fixture(scope="module", params=STEPS)
def step(request):
    return STEPS[request.param]()


def repeated(step, u, n):
    states = [jnp.asarray(u)]
    for _ in range(n):
        states.append(step(states[-1]))
    return np.stack(states)


def test_a_rollout_is_the_step_again_and_again(step):
    by_hand = repeated(step, STATES[0], 7)
    np.testing.assert_allclose(rollout(step, STATES[0], 7), by_hand[1:], atol=1e-5)
    kept = rollout(step, STATES[0], 7, every=3, include_start=True)
    np.testing.assert_allclose(kept, by_hand[[0, 3, 6]], atol=1e-5)


def test_a_batch_is_its_states(step):
    batch = rollout(step, STATES, 5, batched=True)
    for i, u in enumerate(STATES):
        np.testing.assert_allclose(batch[:, i], rollout(step, u, 5), atol=1e-5)
    np.testing.assert_allclose(advance(step, jnp.asarray(STATES), 5), batch[-1], atol=1e-5)


@pytest.mark.parametrize("name", ["module", "exponax", "model"])
def test_a_batch_is_recognised_by_its_shape(name):
    assert rollout(STEPS[name](), STATES, 2).shape == (2, *STATES.shape)
    (*_, last) = stream(STEPS[name](), STATES, 2)
    assert last.states.shape[1:] == STATES.shape


def test_what_the_shape_does_not_say_is_asked():
    with pytest.raises(InputError, match=r"both as one state and as a batch.*batched=True"):
        rollout(decay, STATES, 2)
    # One state in 2D, by the word of the user.
    assert rollout(decay, STATES, 2, batched=False).shape == (2, *STATES.shape)
    with pytest.raises(InputError, match="neither as one state nor as a batch"):
        rollout(exponax.stepper.Burgers(1, 1.0, N + 1, 0.01), STATES, 2)
    with pytest.raises(InputError, match="but the step takes states"):
        rollout(sgno_step(), STATES[None], 2)


@pytest.mark.parametrize(
    ("step", "u0", "options", "message"),
    [
        (decay, STATES[0], {"every": 3}, "every=3"),
        (decay, STATES[0], {"every": 0}, "every=0"),
        (decay, STATES[0, 0], {}, "channels first"),
        (decay, STATES[0], {"batched": True}, "a batch"),
        (lambda u: u[:, ::2], STATES[0], {}, "so it cannot be rolled out"),
        (lambda u: u.astype(jnp.float16), STATES[0], {}, "float16"),
        (lambda u: u @ jnp.ones((3, 3)), STATES[0], {}, "cannot take states of shape"),
    ],
)
def test_what_cannot_be_rolled_out_is_refused(step, u0, options, message):
    with pytest.raises(InputError, match=message):
        rollout(step, u0, 2, **options)


class Sum(Observer):
    """Remembers the sum of all states since the start, and returns it with the time."""

    scale: jax.Array

    def init(self, u0):
        return self.scale * u0

    def __call__(self, memory, t, u):
        memory = memory + self.scale * u
        return memory, (t, memory)

    def stops(self, memory):
        return jnp.sum(memory) > 40


def test_observers_see_every_step_and_answer_at_the_kept_ones(step):
    found = rollout(step, STATES[0], 6, every=2, observe=(Sum(jnp.asarray(2.0)), jnp.max))
    states = rollout(step, STATES[0], 6, include_start=True)
    total = 2 * np.cumsum(states, axis=0)
    (times, sums), largest = found.seen
    np.testing.assert_array_equal(found.states, states[2::2])
    np.testing.assert_array_equal(times, [2, 4, 6])
    np.testing.assert_allclose(sums[:, 0], total[2::2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.memory[0][0], total[-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(largest, states[2::2].max((1, 2)))


@pytest.mark.parametrize("every", [1, 5])
def test_a_stream_is_the_rollout_in_blocks(every, monkeypatch):
    # Room for three states, so that blocks end anywhere.
    monkeypatch.setattr(engine, "_BLOCK_NUMBERS", 3 * STATES.size)
    step, observe = Sine(jnp.asarray(0.9)), (Sum(jnp.asarray(-1.0)),)
    whole = rollout(step, STATES, 23, every=every, observe=observe)
    blocks = list(stream(step, STATES, 23, every=every, observe=observe))
    assert blocks[-1].step == 23 and len(blocks) > 1
    np.testing.assert_allclose(np.concatenate([b.states for b in blocks]), whole.states, rtol=1e-5, atol=1e-6)
    seen = np.concatenate([b.seen[0][1] for b in blocks])
    np.testing.assert_allclose(seen, whole.seen[0][1], rtol=1e-4, atol=1e-5)
    assert [b.start for b in blocks] == np.cumsum([0] + [len(b.states) for b in blocks])[:-1].tolist()


def test_an_observer_may_end_a_stream():
    grow = lambda u: u + 1
    blocks = list(stream(grow, np.zeros((1, 1), np.float32), 100, observe=(Sum(jnp.asarray(1.0)),)))
    # 1 + 2 + ... + 9 = 45 is the first sum above 40.
    assert blocks[-1].stopped and blocks[-1].step == 9 and sum(len(b.states) for b in blocks) == 9
    assert len(rollout(grow, np.zeros((1, 1), np.float32), 12, observe=(Sum(jnp.asarray(1.0)),)).states) == 12


def test_new_lengths_and_strides_are_no_new_programs():
    traced = []

    def step(u):
        traced.append(u.shape)
        return 0.9 * u

    list(stream(step, STATES[0], 3))
    advance(step, jnp.asarray(STATES), 2)
    compiled = len(traced)
    list(stream(step, STATES[0], 250, every=7))
    for n in (1, 10, 77):
        advance(step, jnp.asarray(STATES), n)
    assert len(traced) == compiled


def test_memory_is_flat_over_a_hundred_thousand_steps():
    held = []
    for block in stream(decay, STATES[0], 100_000, observe=(jnp.max,)):
        assert len(block.states) == len(block.seen[0]) <= 4096
        held.append(sum(array.nbytes for array in jax.live_arrays()))
    assert block.step == 100_000 and len(held) > 20
    assert max(held[10:]) <= max(held[:10])


def test_a_batch_in_chunks_rolls_out_like_the_whole():
    class OneAtATime(Sine):
        pass

    states_at_once.register(OneAtATime)(lambda step, points: 1)
    whole = advance(Sine(jnp.asarray(0.5)), jnp.asarray(STATES), 3)
    np.testing.assert_array_equal(advance(OneAtATime(jnp.asarray(0.5)), jnp.asarray(STATES), 3), whole)


@pytest.mark.parametrize(("n", "every"), [(1, 1), (7, 1), (29, 1), (30, 30), (31, 5)])
def test_checkpointed_gradients_are_the_gradients(n, every):
    """Lengths with and without a divisor near their root, one segment, one frame."""
    step = Sine(jnp.asarray(0.95))

    @eqx.filter_jit
    def gradient(step, u, checkpoint):
        def loss(both):
            step, u = both
            found = rollout(step, u, n, every=every, observe=(Sum(jnp.asarray(1.0)),), checkpoint=checkpoint)
            return jnp.sum(found.states**2) + jnp.sum(jnp.sin(found.memory[0]))

        return eqx.filter_grad(loss)((step, u))

    kept, again = (gradient(step, jnp.asarray(STATES[0]), c) for c in (False, True))
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(again), strict=True):
        assert jnp.abs(a).max() > 0
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_gradients_agree_with_finite_differences(step):
    """Of a loss of states and observers, along a direction, in both modes and centred differences."""
    u0, direction = jnp.asarray(STATES[0]), jnp.asarray(STATES[1])

    @jax.jit
    def loss(u):
        found = rollout(step, u, 6, every=3, observe=(Sum(jnp.asarray(0.1)),))
        return jnp.mean(found.states**2) + jnp.mean(found.seen[0][1] ** 2)

    forward = float(jax.jvp(loss, (u0,), (direction,))[1])
    reverse = float(jnp.vdot(jax.grad(loss)(u0), direction))
    assert reverse == pytest.approx(forward, rel=1e-3)
    # Rounding of about 1e-7 / h and a third derivative times h²: both below 1e-3 at this h.
    h = 3e-3
    centred = (loss(u0 + h * direction) - loss(u0 - h * direction)) / (2 * h)
    assert forward == pytest.approx(float(centred), rel=1e-2)


def test_an_ensemble_of_weights_is_mapped():
    r = jnp.asarray([0.5, 0.7, 0.9])
    mapped = eqx.filter_vmap(lambda r: rollout(Sine(r), STATES, 4, batched=True))(r)
    for i in range(3):
        np.testing.assert_allclose(mapped[i], rollout(Sine(r[i]), STATES, 4), rtol=1e-5)


def test_states_that_are_not_finite_are_data():
    assert np.isinf(rollout(lambda u: 10 * u, np.ones((1, 2), np.float32), 50)[-1]).all()
