"""Where the loop's data come from: trajectories on the device, or blocks of a source larger than memory.

Either way the loop asks for the data of an update and gets trajectories, with the windows into them for that
update and the ones that follow, so that many updates still go in one dispatch.
"""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sgno.devices import replicate
from sgno.errors import InputError
from sgno.io.source import Source

# What is read for one block, and the shortest run of states that is worth going to another place for.
_BLOCK_BYTES = 64 * 2**20
_RUN_BYTES = 256 * 2**10


def num_windows(num_times: int, unroll: int) -> int:
    """How many windows of `unroll + 1` consecutive states a trajectory holds."""
    windows = num_times - unroll
    if windows < 1:
        raise InputError(
            f"Trajectories of {num_times} states are too short for unroll={unroll}: it needs {unroll + 1}. "
            "Use longer trajectories or a smaller unroll."
        )
    return windows


def batch_plan(
    num_samples: int, updates: int, batch_size: int, *, key: PRNGKeyArray
) -> Int[np.ndarray, "updates batch"]:
    """The window numbers of every mini-batch: a fresh permutation per epoch.

    The keys are split as APEBench's mixer splits them, so that the same seed sees the same
    batches there and here. A last incomplete batch of an epoch is left out.
    """
    batch_size = min(batch_size, num_samples)
    per_epoch = num_samples // batch_size
    epochs = -(-updates // per_epoch)

    def one_epoch(key, _):
        return jax.random.split(key)[0], jax.random.permutation(key, num_samples)

    _, order = jax.lax.scan(one_epoch, key, None, length=epochs)
    batches = np.asarray(order[:, : per_epoch * batch_size]).reshape(-1, batch_size)
    return batches[:updates].astype(np.int32)


def take_windows(
    trajectories: Float[Array, "samples times *state"], windows: Int[Array, " batch"], unroll: int
) -> Float[Array, "window batch *state"]:
    """The states of each window, time first."""
    per_trajectory = num_windows(trajectories.shape[1], unroll)
    sample, start = windows // per_trajectory, windows % per_trajectory
    return jnp.stack([trajectories[sample, start + t] for t in range(unroll + 1)])


class Batching(NamedTuple):
    """How many updates, of how many windows, of how many steps, in which precision."""

    updates: int
    batch_size: int = 20
    unroll: int = 1
    precision: str = "float32"


class Block(NamedTuple):
    """Trajectories on the device, and the windows into them for each update from the requested one on."""

    data: Float[Array, "samples times channels *points"]
    order: Int[np.ndarray, "updates batch"]


class Resident:
    """All trajectories on the device: one block serves every update."""

    def __init__(self, trajectories: Array | np.ndarray, config: Batching, key: PRNGKeyArray):
        self._data = replicate(jnp.asarray(trajectories, config.precision))
        windows = self._data.shape[0] * num_windows(self._data.shape[1], config.unroll)
        self._order = batch_plan(windows, config.updates, config.batch_size, key=key)

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
        config: Batching,
        key: PRNGKeyArray,
    ):
        self._source, self._config, self._key = source, config, key
        samples, times = source.shape[:2]
        state_bytes = 4 * math.prod(source.shape[2:])
        windows = num_windows(times, config.unroll)
        states = max(_BLOCK_BYTES // state_bytes, 1)
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
        shuffled = self._rng(epoch).permutation(self._source.shape[0] * len(self._starts))
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
        shuffled = self._rng(number).permutation(self._runs * self._length)[:count]
        return shuffled.reshape(-1, self._batch).astype(np.int32)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng(np.asarray(jax.random.bits(jax.random.fold_in(self._key, number), (4,))))


def feed(
    trajectories: Array | np.ndarray | Source, config: Batching, key: PRNGKeyArray
) -> Resident | Streamed:
    """The feed for trajectories in memory or in a source; `key` orders their windows."""
    if isinstance(trajectories, Source):
        return Streamed(trajectories, config, key)
    return Resident(trajectories, config, key)
