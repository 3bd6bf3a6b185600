"""Twenty kills at random moments leave the same results as none."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kills import finish, kill_often
from tiny_study import result, tiny_job

from sgno.study.store import Store

SEEDS, UPDATES, KILLS = 6, 20_000, 20


def test_a_study_killed_twenty_times_has_every_result_once_and_unchanged(tmp_path):
    cache, whole, killed = tmp_path / "cache", tmp_path / "whole", tmp_path / "killed"
    seconds = finish(whole, cache, SEEDS, UPDATES)
    seen = kill_often(
        killed,
        cache,
        seeds=SEEDS,
        updates=UPDATES,
        kills=KILLS,
        # Short enough that the study lives to see all of its kills.
        longest=0.6 * seconds,
        rng=np.random.default_rng(0),
    )
    finish(killed, cache, SEEDS, UPDATES)

    ids = {tiny_job(seed, UPDATES).id for seed in range(SEEDS)}
    present = {path.name for path in (killed / "jobs").iterdir() if not path.name.startswith(".")}
    assert present == ids
    for job_id in ids:
        assert result(Store(killed), job_id) == result(Store(whole), job_id)
    # A finished job is never run again: its record is still the first one.
    for job_id, record in seen.items():
        assert (killed / "jobs" / job_id / "record.json").read_bytes() == record
    assert not list(Store(killed).failures())
    assert not list((killed / "checkpoints").glob("*.sgno"))
