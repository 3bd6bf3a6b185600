"""What a process holds: a job's own peak, the limit of the kept jobs, programs that workers let go of."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sgno.lab import machine
from sgno.lab.machine import forget_peak, peak_bytes


def test_the_peak_of_a_job_is_its_own():
    large = np.ones(30_000_000)
    with_it = peak_bytes()
    del large
    forget_peak()
    without = peak_bytes()
    assert with_it is not None and without is not None
    assert with_it - without > 200_000_000


def test_no_kept_job_held_more_than_four_gigabytes():
    kept = Path(__file__).parent.parent / "results" / "desk" / "jobs"
    records = [json.loads(path.read_text()) for path in kept.glob("*/record.json")]
    assert len(records) > 300
    # The first ones were made before memory was recorded.
    assert max(record.get("peak_memory_bytes") or 0 for record in records) < 4e9


def test_compiled_programs_are_kept_by_machine_and_bounded(tmp_path, monkeypatch):
    """And where nothing can be written, or the user has chosen a folder, nothing changes."""
    config: Any = jax.config
    before = config.jax_compilation_cache_dir
    machine.use_compilation_cache(tmp_path)
    assert config.jax_compilation_cache_dir == before and not (tmp_path / "compiled").exists()
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        (tmp_path / "file").touch()
        machine.use_compilation_cache(tmp_path / "file")
        assert config.jax_compilation_cache_dir is None
        machine.use_compilation_cache(tmp_path)
        folder = Path(str(config.jax_compilation_cache_dir))
        assert folder.parent == tmp_path / "compiled"
        for age in range(4):
            (folder / f"{age}").write_bytes(bytes(100))
            os.utime(folder / f"{age}", times=(10**9 - age, 10**9 - age))
        monkeypatch.setattr(machine, "_MOST_COMPILED_BYTES", 250)
        machine.use_compilation_cache(tmp_path)
        assert sorted(path.name for path in folder.iterdir()) == ["0", "1"]
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_process_that_holds_much_lets_go_of_compiled_programs(monkeypatch):
    traced = []

    @jax.jit
    def program(x):
        traced.append(x)
        return x + 1

    def traces(most_kept: int) -> int:
        monkeypatch.setattr(machine, "_MOST_KEPT_BYTES", most_kept)
        machine.forget_programs()
        program(1.0)
        return len(traced)

    assert [traces(10**15), traces(10**15), traces(0), traces(10**15)] == [1, 1, 2, 2]
