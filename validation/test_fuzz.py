"""At least 200,000 damaged files in bounded memory.

How many of each were tried, and what was found, is kept in `results/fuzz.json`.
"""

import resource
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fuzzing import FOUND, TARGETS, run
from keep import RESULTS, keep

from sgno.io.files import read_json

CASES = {
    "containers": 40_000,
    "weight headers": 3_000,
    "npy and npz": 80_000,
    "HDF5 and zarr": 40_000,
    "zarr descriptions": 20_000,
    "version 0.1": 20_000,
    "settings": 15_000,
    "cached data": 5_000,
    "records": 15_000,
    "pages": 300,
}
GROWTH_BYTES = 2**30


def test_there_are_enough_cases():
    assert set(CASES) == set(TARGETS) and sum(CASES.values()) >= 200_000


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_are_refused_in_words_and_in_bounded_memory(target, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tried = run(target, tmp_path, range(CASES[target]), seed=1)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    kept = RESULTS / "fuzz.json"
    targets = read_json(kept)["targets"] if kept.is_file() else {}
    what = (TARGETS[target].__doc__ or "").strip()
    targets[target] = {"what": what, "cases": CASES[target], **tried._asdict(), "grown_bytes": grown}
    content = {"cases": sum(part["cases"] for part in targets.values()), "targets": targets}
    keep("fuzz", {**content, "found_and_mended": [found._asdict() for found in FOUND]})
    assert tried.faults == ()
    assert grown < GROWTH_BYTES
