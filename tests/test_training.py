"""Training: the protocol, resuming bit for bit, several seeds, divergence as data."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import enable_x64

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.nn.linear import LinearConfig
from sgno.nn.sgno import SGNOConfig
from sgno.step import chunk_size, prepare
from sgno.training import TrainConfig, TrainResult, train, train_seeds
from sgno.training.batches import batch_plan, take_windows
from sgno.training.chunks import mean_over_chunks
from sgno.training.loop import initial_state
from sgno.training.state import load_checkpoint, save_checkpoint

KEY = jax.random.PRNGKey(0)
GRID = Grid(1, (16,))
MODEL = SGNOConfig(3, 4, 2)
CONFIG = TrainConfig(updates=30, warmup=5, batch_size=4, peak_rate=1e-2)


@pytest.fixture(scope="module")
def trajectories() -> np.ndarray:
    """Travelling, decaying waves: 3 samples of 9 states."""
    rng = np.random.default_rng(0)
    t, x = np.arange(9)[:, None], 2 * np.pi * np.arange(16) / 16
    waves = [0.95**t * np.sin(x - 0.3 * t + phase) for phase in rng.uniform(0, 6, 3)]
    return np.stack(waves)[:, :, None].astype(np.float32)


class Scale(eqx.Module):
    """u+ = a u: a model whose loss and gradient are known."""

    a: jax.Array

    def __call__(self, u):
        return self.a * u


def scale_of(result: TrainResult) -> float:
    step: Any = result.step
    return float(step.a)


def test_default_protocol_is_the_papers():
    config = TrainConfig()
    assert (config.updates, config.batch_size, config.warmup, config.peak_rate) == (10_000, 20, 2_000, 1e-3)
    schedule = lambda update: np.asarray(config.schedule()(update))
    assert float(schedule(0)) == 0 and float(schedule(1000)) == pytest.approx(5e-4)
    assert float(schedule(2000)) == pytest.approx(1e-3) and float(schedule(6000)) == pytest.approx(5e-4)
    assert float(schedule(10_000)) == pytest.approx(0, abs=1e-9)


def test_short_runs_keep_the_share_of_warm_up():
    assert TrainConfig.for_model(MODEL, updates=100).warmup == 20
    assert TrainConfig.for_model(MODEL).warmup == 2000
    assert TrainConfig.for_model(MODEL, updates=100, warmup=7).warmup == 7
    assert TrainConfig.for_model(LinearConfig(), updates=500).updates == 0


@pytest.mark.parametrize("bad", [{"updates": -1}, {"peak_rate": 0.0}, {"noise": -1.0}, {"unroll": 0}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        TrainConfig(**bad)


def test_batches_are_apebenchs_own():
    from trainax._mixer import PermutationMixer

    mixer = PermutationMixer(num_total_samples=40, num_minibatches=25, batch_size=4, shuffle_key=KEY)
    ours = batch_plan(40, 25, 4, key=KEY)
    np.testing.assert_array_equal(ours, np.stack([np.asarray(mixer(i)) for i in range(25)]))


def test_windows_are_consecutive_states():
    data = jnp.arange(2 * 5, dtype=jnp.float32).reshape(2, 5, 1, 1)
    windows = take_windows(data, jnp.asarray([0, 2, 3, 5]), 2)
    assert windows[:, :, 0, 0].T.tolist() == [[0, 1, 2], [2, 3, 4], [5, 6, 7], [7, 8, 9]]


def test_one_update_is_adam_on_the_one_step_error(trajectories):
    config = dataclasses.replace(CONFIG, updates=1, warmup=0)
    result = train(Scale(jnp.asarray(0.5)), trajectories, config, key=KEY)
    states = take_windows(jnp.asarray(trajectories), jnp.asarray(batch_plan(24, 1, 4, key=KEY)[0]), 1)
    loss = lambda a: jnp.mean((a * states[0] - states[1]) ** 2)
    assert result.losses[0] == pytest.approx(float(loss(0.5)), rel=1e-6)
    optimizer = optax.adam(1e-2)
    change, _ = optimizer.update(jax.grad(loss)(0.5), optimizer.init(0.5))
    assert scale_of(result) == pytest.approx(0.5 + np.asarray(change), rel=1e-6)


def test_increment_loss_only_rescales_the_gradient(trajectories):
    plain = train(Scale(jnp.asarray(0.5)), trajectories, CONFIG, key=KEY)
    scaled = train(
        Scale(jnp.asarray(0.5)), trajectories, dataclasses.replace(CONFIG, loss="increment"), key=KEY
    )
    np.testing.assert_allclose(plain.losses, scaled.losses, rtol=1e-3)


def test_training_reduces_the_loss(trajectories):
    result = train(
        MODEL.build(GRID, key=KEY), trajectories, dataclasses.replace(CONFIG, updates=150), key=KEY
    )
    assert result.diverged_at is None and len(result.losses) == 150
    assert result.losses[-20:].mean() < 0.2 * result.losses[:20].mean()


def test_resuming_equals_never_having_stopped(trajectories, tmp_path):
    step = MODEL.build(GRID, key=KEY)
    whole = train(step, trajectories, CONFIG, key=KEY)

    class Stop(Exception):
        pass

    seen = []

    def stop_midway(progress):
        seen.append(progress)
        if progress.update >= 12:
            raise Stop

    with pytest.raises(Stop):
        train(step, trajectories, CONFIG, key=KEY, on_progress=stop_midway)
    assert 12 <= seen[-1].update < 30 or len(seen) > 1
    stopped = next(p for p in seen if p.update >= 3)
    save_checkpoint(tmp_path / "c.st", stopped.state, stopped.losses, {"run": 1})
    state, losses = load_checkpoint(tmp_path / "c.st", initial_state(step, CONFIG, key=KEY), {"run": 1})
    resumed = train(step, trajectories, CONFIG, key=KEY, state=state, losses=losses)
    np.testing.assert_array_equal(whole.losses, resumed.losses)
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    state = initial_state(MODEL.build(GRID, key=KEY), CONFIG, key=KEY)
    save_checkpoint(tmp_path / "c.st", state, np.zeros(0), {"run": 1})
    with pytest.raises(InputError, match="another run"):
        load_checkpoint(tmp_path / "c.st", state, {"run": 2})
    other = initial_state(SGNOConfig(2, 4, 2).build(GRID, key=KEY), CONFIG, key=KEY)
    with pytest.raises(InputError, match="but this model has"):
        load_checkpoint(tmp_path / "c.st", other, {"run": 1})
    content = (tmp_path / "c.st").read_bytes()
    (tmp_path / "c.st").write_bytes(content[:-40])
    with pytest.raises(InputError, match="truncated"):
        load_checkpoint(tmp_path / "c.st", state, {"run": 1})


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_seeds_trained_together_equal_seeds_trained_apart(trajectories, backend, monkeypatch):
    """In turn, as on a CPU, and at once, as on an accelerator."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    keys = list(jax.random.split(KEY, 3))
    steps = [MODEL.build(GRID, key=key) for key in keys]
    together = train_seeds(steps, trajectories, CONFIG, keys=keys)
    for step, key, result in zip(steps, keys, together, strict=True):
        alone = train(step, trajectories, CONFIG, key=key)
        np.testing.assert_allclose(result.losses, alone.losses, rtol=2e-3)


def test_a_diverging_loss_is_recorded_not_raised(trajectories):
    result = train(Scale(jnp.asarray(1e30)), trajectories, CONFIG, key=KEY)
    assert result.diverged_at == 0
    assert not np.isfinite(result.losses[0])


def test_float64_trains_in_float64(trajectories):
    with enable_x64(True):
        config = dataclasses.replace(CONFIG, precision="float64", updates=3, warmup=1)
        result = train(MODEL.build(GRID, key=KEY), trajectories, config, key=KEY)
        assert {leaf.dtype for leaf in jax.tree.leaves(result.step)} == {np.dtype("float64")}


def test_unrolled_training_sees_its_own_predictions(trajectories):
    """With u+ = a u, two steps and data b^t u0, the loss is ((a-b)^2 + (a^2-b^2)^2) |u|^2 / 2."""
    t = np.arange(9)[:, None, None]
    data = np.broadcast_to(0.9**t, (3, 9, 1, 16)).astype(np.float32)[:, :3]
    config = dataclasses.replace(CONFIG, updates=1, warmup=0, unroll=2)
    result = train(Scale(jnp.asarray(0.5)), data, config, key=KEY)
    assert result.losses[0] == pytest.approx(((0.5 - 0.9) ** 2 + (0.25 - 0.81) ** 2) / 2, rel=1e-5)
    with pytest.raises(InputError, match="too short for unroll=5"):
        train(Scale(jnp.asarray(0.5)), data, dataclasses.replace(config, unroll=5), key=KEY)


def test_pushforward_cuts_the_gradient_between_steps(trajectories):
    """d/da of (a u1 - u2)^2 with u1 held constant differs from the gradient through u1."""
    data = np.broadcast_to(0.9 ** np.arange(3)[:, None, None], (3, 3, 1, 16)).astype(np.float32)
    ends = {}
    for cut in (False, True):
        config = dataclasses.replace(CONFIG, updates=40, warmup=0, unroll=2, pushforward=cut)
        ends[cut] = scale_of(train(Scale(jnp.asarray(0.5)), data, config, key=KEY))
    assert ends[True] != ends[False]


def test_noise_is_reproducible_and_changes_the_loss(trajectories):
    noisy = dataclasses.replace(CONFIG, updates=3, warmup=1, noise=0.1)
    step = MODEL.build(GRID, key=KEY)
    first, second = (train(step, trajectories, noisy, key=KEY).losses for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (first != train(step, trajectories, dataclasses.replace(noisy, noise=0.0), key=KEY).losses).all()


SHARDED = """
import json, jax, sgno, numpy as np
from sgno.nn.sgno import SGNOConfig
from sgno.training import TrainConfig, train, train_seeds
from sgno.training.chunks import mean_over_chunks
from sgno.devices import mean_over_devices
rng = np.random.default_rng(0)
t, x = np.arange(9)[:, None], 2 * np.pi * np.arange(16) / 16
data = np.stack([np.sin(x - 0.3 * t + p) for p in rng.uniform(0, 6, 3)])[:, :, None].astype(np.float32)
config = TrainConfig(updates=10, warmup=2, batch_size=4, peak_rate=1e-2)
keys = list(jax.random.split(jax.random.PRNGKey(0), 4))
build = lambda key: SGNOConfig(3, 4, 2).build(Grid(1, (16,)), key=key)
one = train(build(keys[0]), data, config, key=keys[0])
seeds = lambda count: train_seeds([build(key) for key in keys[:count]], data, config, keys=keys[:count])
many = {"each device its own": seeds(4), "too few for the devices": seeds(3)}
jax.default_backend = lambda: "gpu"
many["at once, as on an accelerator"] = seeds(4)
jax.default_backend = lambda: "cpu"
loss = lambda w, s: jax.numpy.mean((jax.numpy.sin(w * s[0]) - s[1]) ** 2)
chunked = lambda w, s: mean_over_chunks(loss, w, s, 1)
pairs = jax.numpy.moveaxis(data[:2, :8].reshape(2, 2, 4, 16), 1, 2).reshape(2, 8, 16)
gradient = jax.jit(jax.grad(lambda w: mean_over_devices(chunked, w, pairs)))(jax.numpy.ones(16))
states = sgno.rollout(one.step, np.tile(data[:2, 0], (2, 1, 1)), 5, batched=True)
print(json.dumps({"devices": jax.local_device_count(), "one": one.losses.tolist(),
                  "many": {how: [r.losses.tolist() for r in results] for how, results in many.items()},
                  "gradient": gradient.tolist(),
                  "spread": [len(x.devices()) for x in (jax.tree.leaves(one.state)[0], states)],
                  "states": np.asarray(states).tolist()}))
"""


def test_several_devices_give_the_results_of_one():
    results = {}
    for count in (1, 4):
        flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={count}"
        env = {**os.environ, "XLA_FLAGS": flags}
        done = subprocess.run(
            [sys.executable, "-c", SHARDED], env=env, capture_output=True, text=True, check=True
        )
        results[count] = json.loads(done.stdout.splitlines()[-1])
    assert results[4]["devices"] == 4 and results[4]["spread"] == [4, 4]
    # Adam does not feel a wrong factor, so the gradient is compared itself.
    np.testing.assert_allclose(results[4]["gradient"], results[1]["gradient"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(results[4]["states"], results[1]["states"], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(results[4]["one"], results[1]["one"], rtol=2e-3)
    for how, losses in results[4]["many"].items():
        expected = results[1]["many"]["each device its own"][: len(losses)]
        np.testing.assert_allclose(losses, expected, rtol=2e-3, err_msg=how)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_batch_in_chunks_has_the_loss_and_the_gradient_of_the_whole(size):
    states = jax.random.normal(jax.random.PRNGKey(0), (2, 6, 1, 5))
    weights = {"scale": jnp.float32(0.7), "shift": jnp.linspace(0.0, 1.0, 5)}

    def loss(weights, states):
        return jnp.mean(jnp.square(jnp.sin(weights["scale"] * states[0]) + weights["shift"] - states[1]))

    whole = jax.value_and_grad(loss)(weights, states)
    # The factor stands for what a loss is scaled by further on.
    chunked = jax.value_and_grad(lambda w: 3 * mean_over_chunks(loss, w, states, size))(weights)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, 3 * b, rtol=1e-5), chunked, whole)
    np.testing.assert_allclose(mean_over_chunks(loss, weights, states, size), whole[0], rtol=1e-6)


def test_chunks_divide_the_batch_and_keep_to_what_fits():
    step = prepare(SGNOConfig(2, 3, 1).build(Grid(1, (8,)), key=jax.random.PRNGKey(0)))
    for points, batch in (((160,), 20), ((160,), 30), ((64, 64), 20), ((1024,), 20)):
        size = chunk_size(step, batch, points)
        assert batch % size == 0 and size <= max(1, 5120 // math.prod(points))
    assert chunk_size(step, 20, (160,)) == 20
