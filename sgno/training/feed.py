"""Where the loop's data come from: trajectories on the device, or blocks of a source larger than memory.

Either way the loop asks for the data of an update and is given trajectories and the windows into them of
that update and of those that follow, so that many updates still go in one dispatch.
"""

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sgno.devices import replicate
from sgno.io.source import Source
from sgno.training.batches import batch_plan, num_windows
from sgno.training.config import TrainConfig

# What is read for one block, and the shortest run of states that is worth going to another place for.
_BLOCK_BYTES = 64 * 2**20
_RUN_BYTES = 256 * 2**10


class Block(NamedTuple):
    """Trajectories on the device, and the windows into them of each update from the asked one on."""

    data: Float[Array, "samples times channels *points"]
    order: Int[np.ndarray, "updates ..."]


class Resident:
    """All trajectories on the device: one block serves every update."""

    def __init__(self, trajectories: Array | np.ndarray, config: TrainConfig, keys: Sequence[PRNGKeyArray]):
        self._data = replicate(jnp.asarray(trajectories, config.precision))
        windows = self._data.shape[0] * num_windows(self._data.shape[1], config.unroll)
        plans = [batch_plan(windows, config.updates, config.batch_size, key=key) for key in keys]
        self._order = np.stack(plans, axis=1)

    def at(self, update: int) -> Block:
        return Block(self._data, self._order[update:])

    def __enter__(self) -> "Resident":
        return self

    def __exit__(self, *_) -> None:
        pass


class Streamed:
    """Block after block of a source, the next one read while the device works on this one.

    A block is a number of runs of consecutive states, drawn without repetition from all over the source
    until every window has been in one (an epoch); its windows are shuffled and served once. What a block
    holds depends on its number and the key alone, so a resumed run meets the same batches.
    """

    def __init__(
        self,
        source: Source,
        config: TrainConfig,
        keys: Sequence[PRNGKeyArray],
        *,
        block_bytes: int | None = None,
    ):
        self._source, self._config, self._keys = source, config, keys
        samples, times = source.shape[:2]
        state_bytes = 4 * math.prod(source.shape[2:])
        windows = num_windows(times, config.unroll)
        states = max((block_bytes or _BLOCK_BYTES) // state_bytes, 1)
        batch = min(config.batch_size, samples * windows)
        # Long runs read fast; many runs shuffle well. A block has at least as many runs as a batch windows,
        # unless the source itself has not.
        longest = max(states // batch - config.unroll, 1)
        self._length = int(np.clip(_RUN_BYTES // state_bytes, 1, min(windows, longest)))
        self._starts = np.minimum(np.arange(0, windows, self._length), windows - self._length)
        every_run = samples * len(self._starts)
        enough = max(states // (self._length + config.unroll), -(-batch // self._length))
        self._runs = min(enough, every_run)
        self._blocks_per_epoch = every_run // self._runs
        self._batch = min(batch, self._runs * self._length)
        self.updates_per_block = self._runs * self._length // self._batch
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sgno-read")
        self._ahead: dict[int, Future[np.ndarray]] = {}
        self._held: tuple[int, Array, np.ndarray] | None = None

    def at(self, update: int) -> Block:
        number, offset = divmod(update, self.updates_per_block)
        if self._held is None or self._held[0] != number:
            self._held = None
            states = (self._ahead.pop(number, None) or self._reader.submit(self._read, number)).result()
            self._ahead = {}
            if (number + 1) * self.updates_per_block < self._config.updates:
                self._ahead[number + 1] = self._reader.submit(self._read, number + 1)
            data = replicate(jnp.asarray(states, self._config.precision))
            self._held = number, data, self._order(number)
        _, data, order = self._held
        return Block(data, order[offset : offset + self._config.updates - update])

    def __enter__(self) -> "Streamed":
        return self

    def __exit__(self, *_) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)
        self._held = None

    def _read(self, number: int) -> np.ndarray:
        """The runs of a block, `(runs, length + unroll, channels, *points)`."""
        epoch, place = divmod(number, self._blocks_per_epoch)
        shuffled = self._rng(self._keys[0], epoch).permutation(self._source.shape[0] * len(self._starts))
        # In the order of the file: the shuffle that matters is that of the windows.
        chosen = np.sort(shuffled[place * self._runs : (place + 1) * self._runs])
        length = self._length + self._config.unroll
        out = np.empty((self._runs, length, *self._source.shape[2:]), np.float32)
        for i, run in enumerate(chosen):
            sample, start = divmod(int(run), len(self._starts))
            first = int(self._starts[start])
            out[i] = self._source.read([sample], slice(first, first + length))[0]
        return out

    def _order(self, number: int) -> np.ndarray:
        count = self.updates_per_block * self._batch
        shuffled = [
            self._rng(key, number).permutation(self._runs * self._length)[:count].reshape(-1, self._batch)
            for key in self._keys
        ]
        return np.stack(shuffled, axis=1).astype(np.int32)

    @staticmethod
    def _rng(key: PRNGKeyArray, number: int) -> np.random.Generator:
        return np.random.default_rng(np.asarray(jax.random.bits(jax.random.fold_in(key, number), (4,))))


def feed(
    trajectories: Array | np.ndarray | Source, config: TrainConfig, keys: Sequence[PRNGKeyArray]
) -> Resident | Streamed:
    """The feed for trajectories in memory or in a source, with one order of windows per key."""
    if isinstance(trajectories, Source):
        return Streamed(trajectories, config, keys)
    return Resident(trajectories, config, keys)
