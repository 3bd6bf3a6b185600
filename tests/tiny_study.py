"""A study of tiny jobs as a process of its own, to be killed: tiny_study.py OUT CACHE SEEDS UPDATES."""

import sys
from pathlib import Path

from sgno.lab.job import Job
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.lab.tasks import get_task
from sgno.registry import get_model

TINY = {
    "num_points": 64,
    "num_train_samples": 2,
    "train_steps": 10,
    "num_test_samples": 2,
    "test_steps": 8,
}
# What may differ between two runs of one job: clocks and memory, and the checksum over them.
MEASURED = ("seconds_per_update", "train_seconds", "seconds", "peak_memory_bytes", "finished", "checksum")


def tiny_job(seed: int = 0, updates: int = 20, model: str = "Conv;4;1;relu", task: str = "adv1d") -> Job:
    config = get_model(model, 1)
    train = TrainConfig.for_model(config, updates=updates, batch_size=4)
    return Job(get_task(task).with_options(**TINY), model, config, train, seed)


def result(store: Store, job_id: str) -> dict:
    """All that a job left, but for what is measured. Equal for equal runs, bit for bit."""
    from sgno.io.files import load_arrays

    record = {key: value for key, value in store.record(job_id).items() if key not in MEASURED}
    folder = store.job(job_id)
    arrays = {
        f"{name}/{key}": (array.dtype.name, array.shape, array.tobytes())
        for name in ("curves", "sample", "weights")
        for key, array in load_arrays(folder / f"{name}.safetensors").arrays.items()
    }
    return {"record": record, **arrays}


def main(out: str, cache: str, seeds: str, updates: str) -> None:
    from sgno.lab.executor import run_study
    from sgno.lab.local import LocalProcesses

    jobs = [tiny_job(seed, int(updates)) for seed in range(int(seeds))]
    # A checkpoint after every dispatch, so that a kill meets them in every state.
    with LocalProcesses() as executor:
        run_study(jobs, Store(out), executor, cache=Path(cache), checkpoint_seconds=0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
