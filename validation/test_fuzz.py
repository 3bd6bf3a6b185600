"""At least 100,000 damaged files in bounded memory. Prints how many of each were tried."""

import resource
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fuzzing import TARGETS, run

CASES = {
    "containers": 40_000,
    "weight headers": 3_000,
    "npy and npz": 30_000,
    "HDF5 and zarr": 6_000,
    "settings": 15_000,
    "records": 15_000,
    "pages": 300,
}
GROWTH_BYTES = 2**30


def test_there_are_enough_cases():
    assert set(CASES) == set(TARGETS) and sum(CASES.values()) >= 100_000


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_are_refused_in_words_and_in_bounded_memory(target, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert run(target, tmp_path, CASES[target], seed=1) == []
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    print(f"{target}: {CASES[target]:,} cases, {grown / 1e6:.0f} MB more")
    assert grown < GROWTH_BYTES
