"""Training: any step, optimiser and loss; the protocol; resuming bit for bit; divergence as data."""

import dataclasses
import json
import logging
import math
import os
import subprocess
import sys
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest
from jax import enable_x64

from sgno.devices import mean_over_chunks
from sgno.errors import InputError
from sgno.grid import Grid
from sgno.lab.recipe import TrainConfig
from sgno.nn.linear import LinearConfig
from sgno.nn.sgno import SGNOConfig
from sgno.sgno_x import SGNOXConfig
from sgno.step import chunk_size, prepare
from sgno.training import (
    TrainResult,
    default_optimizer,
    initial_state,
    load_checkpoint,
    save_checkpoint,
    train,
)
from sgno.training.feed import batch_plan, take_windows

KEY = jax.random.PRNGKey(0)
GRID = Grid(1, (16,))
MODEL = SGNOConfig(3, 4, 2)
CONFIG = TrainConfig(updates=30, warmup=5, batch_size=4, peak_rate=1e-2)
OPTIMIZER = default_optimizer(30, peak_rate=1e-2, warmup=5)


@pytest.fixture(scope="module")
def trajectories() -> np.ndarray:
    """Travelling, decaying waves: 3 samples of 9 states."""
    rng = np.random.default_rng(0)
    t, x = np.arange(9)[:, None], 2 * np.pi * np.arange(16) / 16
    waves = [0.95**t * np.sin(x - 0.3 * t + phase) for phase in rng.uniform(0, 6, 3)]
    return np.stack(waves)[:, :, None].astype(np.float32)


@pytest.mark.parametrize("weakly_typed", [False, True])
def test_every_update_runs_the_program_of_the_first(trajectories, weakly_typed):
    """A loss is called while its program is made, and never again."""
    calls, seen = [], []

    def loss(u, target):
        calls.append(u)
        return jnp.mean((u - target) ** 2)

    step = Scale(jnp.full((), 0.9)) if weakly_typed else MODEL.build(GRID, key=KEY)
    note = lambda progress: seen.append(len(calls))
    train(step, trajectories, loss=loss, updates=4, batch_size=2, key=KEY, on_progress=note)
    assert len(seen) > 1 and seen[0] == seen[-1]


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
    assert [rate(10_000, update) for update in (0, 1000, 2000, 6000, 10_000)] == pytest.approx(
        [0, 5e-4, 1e-3, 5e-4, 0], abs=1e-7
    )


def rate(updates: int, update: int) -> float:
    """The rate of the default optimiser: the size of its change for gradients of constant sign."""
    optimizer, one = default_optimizer(updates), jnp.ones(())
    moments, schedule = cast(Any, optimizer.init(one))
    state = (moments, schedule._replace(count=jnp.asarray(update)))
    return -float(np.asarray(optimizer.update(one, state)[0]))


def test_the_warm_up_scales_with_the_number_of_updates(caplog, trajectories):
    assert [rate(20, update) for update in (0, 4, 12, 20)] == pytest.approx([0, 1e-3, 5e-4, 0], abs=1e-7)
    assert TrainConfig(updates=20).warmup == 4 and TrainConfig(updates=20, warmup=30).warmup == 30
    TrainConfig(updates=20, warmup=30).train(Scale(jnp.asarray(0.5)), trajectories, key=KEY)
    assert "never reaches its peak" in caplog.text


def test_the_settings_of_a_job_are_written_as_ever():
    """Ids of stored jobs are made of them."""
    content = TrainConfig().to_json()
    assert content["optimizer"] == "adam" and TrainConfig.from_json(content) == TrainConfig()
    with pytest.raises(InputError, match="Unknown optimizer 'sgd'"):
        TrainConfig.from_json({**content, "optimizer": "sgd"})


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
    result = config.train(Scale(jnp.asarray(0.5)), trajectories, key=KEY)
    states = take_windows(jnp.asarray(trajectories), jnp.asarray(batch_plan(24, 1, 4, key=KEY)[0]), 1)
    loss = lambda a: jnp.mean((a * states[0] - states[1]) ** 2)
    assert result.losses[0] == pytest.approx(float(loss(0.5)), rel=1e-6)
    optimizer = optax.adam(1e-2)
    change, _ = optimizer.update(jax.grad(loss)(0.5), optimizer.init(0.5))
    assert scale_of(result) == pytest.approx(0.5 + np.asarray(change), rel=1e-6)


def test_increment_loss_only_rescales_the_gradient(trajectories):
    plain = CONFIG.train(Scale(jnp.asarray(0.5)), trajectories, key=KEY)
    increment = dataclasses.replace(CONFIG, loss="increment")
    scaled = increment.train(Scale(jnp.asarray(0.5)), trajectories, key=KEY)
    np.testing.assert_allclose(plain.losses, scaled.losses, rtol=1e-3)


def test_an_own_optimiser_and_an_own_loss(trajectories):
    """One update of plain gradient descent on the mean absolute error, by hand."""
    absolute = lambda prediction, target: jnp.mean(jnp.abs(prediction - target))
    options: Any = {"optimizer": optax.sgd(0.1), "loss": absolute, "updates": 1, "batch_size": 4}
    result = train(Scale(jnp.asarray(0.5)), trajectories, key=KEY, **options)
    states = take_windows(jnp.asarray(trajectories), jnp.asarray(batch_plan(24, 1, 4, key=KEY)[0]), 1)
    loss = lambda a: jnp.mean(jnp.abs(a * states[0] - states[1]))
    assert result.losses[0] == pytest.approx(float(loss(0.5)), rel=1e-6)
    assert scale_of(result) == pytest.approx(0.5 - 0.1 * float(jax.grad(loss)(0.5)), rel=1e-6)


def test_an_optimiser_that_searches_along_a_line_is_given_the_loss(trajectories):
    options: Any = {"optimizer": optax.lbfgs(), "updates": 4, "batch_size": 24}
    result = train(Scale(jnp.asarray(0.5)), trajectories, key=KEY, **options)
    u, v = trajectories[:, :-1], trajectories[:, 1:]
    assert scale_of(result) == pytest.approx((u * v).sum() / (u * u).sum(), rel=1e-4)


class Mixed(eqx.Module):
    """A user's own module: two convolutions, a static field and an array that is no weight."""

    layers: list[eqx.nn.Conv1d]
    order: jax.Array
    name: str

    def __call__(self, u):
        first, second = self.layers
        return u + second(jax.nn.tanh(first(u)))[self.order]


def test_an_own_module_is_trained(trajectories):
    convolution = lambda inputs, outputs, key: eqx.nn.Conv1d(
        inputs, outputs, 3, padding=1, padding_mode="CIRCULAR", key=key
    )
    one, two = jax.random.split(KEY)
    step = Mixed([convolution(1, 8, one), convolution(8, 1, two)], jnp.zeros(1, jnp.int32), "mine")
    result = train(step, trajectories, updates=200, optimizer=optax.adam(1e-2), batch_size=4, key=KEY)
    assert result.losses[-20:].mean() < 0.1 * result.losses[:3].mean()
    assert result.step.name == "mine" and result.step.order.dtype == jnp.int32


def test_sgno_x_starts_from_least_squares(trajectories):
    """Travelling, decaying waves are one multiplier per mode."""
    step = SGNOXConfig(degree=2, max_terms=1).build(GRID, key=KEY)
    started = train(step, trajectories, updates=2, batch_size=4, key=KEY)
    cold = train(step, trajectories, updates=2, batch_size=4, warm_start=False, key=KEY)
    assert started.losses[0] < 1e-9 < 1e-4 < cold.losses[0]


def test_resuming_with_an_own_optimiser_equals_never_having_stopped(trajectories, tmp_path):
    """Train 2k updates, or train k, save, load and train k more; with a key of the new kind."""
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9))
    step, key = MODEL.build(GRID, key=KEY), jax.random.key(3)
    options: Any = {"optimizer": optimizer, "batch_size": 4, "noise": 0.01, "key": key}
    whole = train(step, trajectories, updates=12, **options)
    half = train(step, trajectories, updates=6, **options)
    save_checkpoint(tmp_path / "c.st", half.state, half.losses, {})
    state, losses = load_checkpoint(tmp_path / "c.st", initial_state(step, optimizer, key=key), {})
    resumed = train(step, trajectories, updates=12, state=state, losses=losses, **options)
    np.testing.assert_array_equal(whole.losses, resumed.losses)
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        assert (a == b).all()
    with pytest.raises(InputError, match="another step or optimiser"):
        train(step, trajectories, updates=12, state=state, **{**options, "optimizer": optax.adam(1e-3)})


def test_settings_that_cannot_work_are_said(trajectories, caplog):
    caplog.set_level(logging.INFO, logger="sgno")
    solved = train(LinearConfig().build(GRID, key=KEY), trajectories, updates=5, key=KEY)
    assert "nothing left to train" in caplog.text and len(solved.losses) == 0
    np.testing.assert_allclose(solved.step(jnp.asarray(trajectories[0, 0])), trajectories[0, 1], atol=1e-4)
    train(Scale(jnp.asarray(0.5)), trajectories, updates=1, batch_size=100, key=KEY)
    assert "batch_size=100 is more than there are windows" in caplog.text
    train(Scale(jnp.asarray(0.5)), trajectories, updates=0, key=KEY)
    assert "updates=0" in caplog.text


@pytest.mark.parametrize(
    ("step", "changes", "message"),
    [
        (lambda u: 0.9 * u, {}, "<lambda> has no arrays to train"),
        (None, {"loss": lambda prediction, target: prediction}, r"shape \(1, 16\) for one state"),
        (None, {"batch_size": 0}, "batch_size=0"),
        (None, {"noise": -1.0}, "noise=-1.0"),
        (None, {"unroll": 9}, "too short for unroll=9"),
        (None, {"precision": "float64"}, "x64 mode"),
        (None, {"trajectories": np.ones((3, 9, 16), np.float32)}, r"shape \(3, 9, 16\)"),
        (None, {"trajectories": np.full((3, 9, 1, 16), np.nan)}, "not finite"),
    ],
)
def test_what_cannot_be_trained_is_refused(step, changes, message, trajectories):
    options: Any = {"trajectories": trajectories, "updates": 1, **changes}
    with pytest.raises(InputError, match=message):
        train(step or Scale(jnp.asarray(0.5)), key=KEY, **options)


def test_a_step_that_changes_the_shape_is_refused(trajectories, monkeypatch):
    # Users have no annotations enforced.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(InputError, match=r"\(1, 16\) to \(2, 16\)"):
        train(Scale(jnp.ones((2, 1))), trajectories, updates=1, key=KEY)


def test_training_reduces_the_loss(trajectories):
    longer = dataclasses.replace(CONFIG, updates=150)
    result = longer.train(MODEL.build(GRID, key=KEY), trajectories, key=KEY)
    assert result.diverged_at is None and len(result.losses) == 150
    assert result.losses[-20:].mean() < 0.2 * result.losses[:20].mean()


def test_resuming_equals_never_having_stopped(trajectories, tmp_path):
    step = MODEL.build(GRID, key=KEY)
    whole = CONFIG.train(step, trajectories, key=KEY)

    class Stop(Exception):
        pass

    seen = []

    def stop_midway(progress):
        seen.append(progress)
        if progress.update >= 12:
            raise Stop

    with pytest.raises(Stop):
        CONFIG.train(step, trajectories, key=KEY, on_progress=stop_midway)
    assert 12 <= seen[-1].update < 30 or len(seen) > 1
    stopped = next(p for p in seen if p.update >= 3)
    save_checkpoint(tmp_path / "c.st", stopped.state, stopped.losses, {"run": 1})
    state, losses = load_checkpoint(tmp_path / "c.st", initial_state(step, OPTIMIZER, key=KEY), {"run": 1})
    resumed = CONFIG.train(step, trajectories, key=KEY, state=state, losses=losses)
    np.testing.assert_array_equal(whole.losses, resumed.losses)
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    state = initial_state(MODEL.build(GRID, key=KEY), OPTIMIZER, key=KEY)
    save_checkpoint(tmp_path / "c.st", state, np.zeros(0), {"run": 1})
    with pytest.raises(InputError, match="another run"):
        load_checkpoint(tmp_path / "c.st", state, {"run": 2})
    other = initial_state(SGNOConfig(2, 4, 2).build(GRID, key=KEY), OPTIMIZER, key=KEY)
    with pytest.raises(InputError, match="but this model has"):
        load_checkpoint(tmp_path / "c.st", other, {"run": 1})
    content = (tmp_path / "c.st").read_bytes()
    (tmp_path / "c.st").write_bytes(content[:-40])
    with pytest.raises(InputError, match="truncated"):
        load_checkpoint(tmp_path / "c.st", state, {"run": 1})


def test_a_diverging_loss_is_recorded_not_raised(trajectories):
    result = CONFIG.train(Scale(jnp.asarray(1e30)), trajectories, key=KEY)
    assert result.diverged_at == 0
    assert not np.isfinite(result.losses[0])


def test_float64_trains_in_float64(trajectories):
    with enable_x64(True):
        config = dataclasses.replace(CONFIG, precision="float64", updates=3, warmup=1)
        result = config.train(MODEL.build(GRID, key=KEY), trajectories, key=KEY)
        assert {leaf.dtype for leaf in jax.tree.leaves(result.step)} == {np.dtype("float64")}


def test_unrolled_training_sees_its_own_predictions(trajectories):
    """With u+ = a u, two steps and data b^t u0, the loss is ((a-b)^2 + (a^2-b^2)^2) |u|^2 / 2."""
    t = np.arange(9)[:, None, None]
    data = np.broadcast_to(0.9**t, (3, 9, 1, 16)).astype(np.float32)[:, :3]
    config = dataclasses.replace(CONFIG, updates=1, warmup=0, unroll=2)
    result = config.train(Scale(jnp.asarray(0.5)), data, key=KEY)
    assert result.losses[0] == pytest.approx(((0.5 - 0.9) ** 2 + (0.25 - 0.81) ** 2) / 2, rel=1e-5)
    with pytest.raises(InputError, match="too short for unroll=5"):
        dataclasses.replace(config, unroll=5).train(Scale(jnp.asarray(0.5)), data, key=KEY)


def test_pushforward_cuts_the_gradient_between_steps(trajectories):
    """d/da of (a u1 - u2)^2 with u1 held constant differs from the gradient through u1."""
    data = np.broadcast_to(0.9 ** np.arange(3)[:, None, None], (3, 3, 1, 16)).astype(np.float32)
    ends = {}
    for cut in (False, True):
        config = dataclasses.replace(CONFIG, updates=40, warmup=0, unroll=2, pushforward=cut)
        ends[cut] = scale_of(config.train(Scale(jnp.asarray(0.5)), data, key=KEY))
    assert ends[True] != ends[False]


def test_noise_is_reproducible_and_changes_the_loss(trajectories):
    noisy = dataclasses.replace(CONFIG, updates=3, warmup=1, noise=0.1)
    step = MODEL.build(GRID, key=KEY)
    first, second = (noisy.train(step, trajectories, key=KEY).losses for _ in range(2))
    np.testing.assert_array_equal(first, second)
    quiet = dataclasses.replace(noisy, noise=0.0)
    assert (first != quiet.train(step, trajectories, key=KEY).losses).all()


SHARDED = """
import json, jax, sgno, numpy as np
from sgno.nn.sgno import SGNOConfig
from sgno.devices import mean_over_chunks, mean_over_devices
from sgno.grid import Grid
rng = np.random.default_rng(0)
t, x = np.arange(9)[:, None], 2 * np.pi * np.arange(16) / 16
data = np.stack([np.sin(x - 0.3 * t + p) for p in rng.uniform(0, 6, 3)])[:, :, None].astype(np.float32)
key = jax.random.PRNGKey(0)
step = SGNOConfig(3, 4, 2).build(Grid(1, (16,)), key=key)
one = sgno.train(step, data, updates=10, batch_size=4, key=key)
loss = lambda w, s: jax.numpy.mean((jax.numpy.sin(w * s[0]) - s[1]) ** 2)
chunked = lambda w, s: mean_over_chunks(loss, w, s, 1)
pairs = jax.numpy.moveaxis(data[:2, :8].reshape(2, 2, 4, 16), 1, 2).reshape(2, 8, 16)
gradient = jax.jit(jax.grad(lambda w: mean_over_devices(chunked, w, pairs)))(jax.numpy.ones(16))
states = sgno.rollout(one.step, np.tile(data[:2, 0], (2, 1, 1)), 5, batched=True)
print(json.dumps({"devices": jax.local_device_count(), "one": one.losses.tolist(),
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
