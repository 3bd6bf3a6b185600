"""A few hundred damaged files for everything that reads files; `make validate` tries 200,000 and more."""

import pytest
from fuzzing import FOUND, TARGETS, run

CASES = {"pages": 12, "weight headers": 60, "HDF5 and zarr": 120, "zarr descriptions": 200}


@pytest.mark.parametrize("target", TARGETS)
def test_a_damaged_file_is_refused_in_words(target, tmp_path):
    assert run(target, tmp_path, range(CASES.get(target, 400)), seed=0).faults == ()


def test_what_was_found_once_stays_mended(tmp_path):
    for found in FOUND:
        assert run(found.target, tmp_path / found.target, [found.case], found.seed).faults == ()
