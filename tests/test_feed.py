"""Training from a source larger than memory: every window is served, resume is exact, errors come through."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.source import array_source
from sgno.nn.apebench import ApebenchConfig
from sgno.training import feed as feed_module
from sgno.training import train
from sgno.training.feed import Batching, Resident, Streamed

KEY = jax.random.PRNGKey(3)
GRID = Grid(1, (16,))
MODEL = ApebenchConfig("Pure;3;identity")
CONFIG = Batching(updates=60, batch_size=4)
SAMPLES, TIMES = 6, 9


@pytest.fixture(scope="module")
def u() -> np.ndarray:
    """Travelling waves; their numbers also tell which sample and time a state is."""
    x = np.arange(16) / 16
    i, t = np.mgrid[:SAMPLES, :TIMES][..., None, None]
    return (np.sin(2 * np.pi * (x + 0.05 * t)) + i + 0.01 * t).astype(np.float32)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 20 states in runs of 3 windows."""
    monkeypatch.setattr(feed_module, "_BLOCK_BYTES", 20 * 64)
    monkeypatch.setattr(feed_module, "_RUN_BYTES", 3 * 64)


@pytest.mark.parametrize("unroll", [1, 3])
def test_an_epoch_serves_every_window_and_none_that_is_not_there(u, small_blocks, unroll):
    config = Batching(updates=400, batch_size=2, unroll=unroll)
    windows = TIMES - unroll
    with Streamed(array_source(u), config, KEY) as stream:
        seen, update = set(), 0
        while update < config.updates:
            data, order = stream.at(update)
            data = np.asarray(data)
            per_run = data.shape[1] - unroll
            for window in order.reshape(-1):
                run, start = divmod(int(window), per_run)
                states = data[run, start : start + unroll + 1, 0, :]
                sample = round(float(states[0].mean()) // 1)
                time = round(100 * (float(states[0].mean()) - sample))
                np.testing.assert_array_equal(states, u[sample, time : time + unroll + 1, 0])
                seen.add((sample, time))
            update += len(order)
    assert seen == {(i, t) for i in range(SAMPLES) for t in range(windows)}


def test_blocks_have_one_shape_and_serve_each_window_once(u, small_blocks):
    with Streamed(array_source(u), CONFIG, KEY) as stream:
        blocks = [stream.at(k * stream.updates_per_block) for k in range(3)]
    assert len({block.data.shape for block in blocks}) == 1
    assert all(len(np.unique(block.order)) == block.order.size for block in blocks)
    assert not np.array_equal(blocks[0].data, blocks[1].data)


def test_streamed_training_goes_on_bit_for_bit_and_learns(u, small_blocks):
    step, source, kept = MODEL.build(GRID, key=KEY), array_source(u), []
    options: Any = {"optimizer": optax.adam(0.02), "updates": 60, "batch_size": 4, "key": KEY}
    whole = train(step, source, **options, on_progress=kept.append)
    middle = kept[len(kept) // 2]
    assert 0 < middle.update < CONFIG.updates
    resumed = train(step, source, **options, state=middle.state, losses=middle.losses)
    np.testing.assert_array_equal(whole.losses, resumed.losses)
    for one, two in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(one, two)
    assert whole.losses[-5:].mean() < 0.5 * whole.losses[:5].mean()


def test_a_source_smaller_than_a_block_is_one_block(u):
    with Streamed(array_source(u), CONFIG, KEY) as stream, Resident(u, CONFIG, KEY) as whole:
        np.testing.assert_array_equal(stream.at(0).data, whole.at(0).data)


def test_a_bad_value_met_while_streaming_is_an_error_that_says_where(u, small_blocks):
    u = u.copy()
    u[4, 7, 0, 0] = np.nan
    with pytest.raises(InputError, match="NaN in sample 4, step 7"):
        train(MODEL.build(GRID, key=KEY), array_source(u), updates=60, batch_size=4, key=KEY)
