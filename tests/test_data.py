"""Tasks and their cached data."""

import os
import subprocess
import sys

import apebench
import numpy as np
import pytest

from sgno.errors import InputError
from sgno.lab.data.trajectories import check_finite, data_id, load_trajectories
from sgno.lab.tasks import CARDS, TASKS, Task, get_task

TINY = Task(
    "tiny", "diff_adv", 1, num_points=32, num_train_samples=2, train_steps=3, num_test_samples=2, test_steps=4
)


def test_the_ten_tasks_are_the_papers():
    assert list(TASKS) == list(CARDS)
    dims = [task.num_spatial_dims for task in TASKS.values()]
    assert dims == [1, 1, 1, 1, 1, 2, 2, 3, 3, 3]
    assert [TASKS[t].num_points for t in ("adv1d", "mixdisp2d", "kolm2d", "advdiff3d")] == [160, 160, 64, 32]
    for task in TASKS.values():
        assert (task.num_train_samples, task.train_steps, task.train_seed) == (50, 50, 0)
        assert (task.test_steps, task.test_seed) == (200, 773)
        assert task.num_test_samples == (10 if task.num_spatial_dims == 3 else 30)


def test_tasks_survive_json():
    for task in TASKS.values():
        assert Task.from_json(task.to_json()) == task


def test_data_is_apebenchs_own(tmp_path):
    data = load_trajectories(TINY, tmp_path)
    scenario = apebench.scenarios.difficulty.Advection(
        num_points=32,
        num_train_samples=2,
        train_temporal_horizon=3,
        num_test_samples=2,
        test_temporal_horizon=4,
    )
    np.testing.assert_array_equal(data.train, scenario.get_train_data())
    np.testing.assert_array_equal(data.test, scenario.get_test_data())
    assert data.grid.shape == (1, 32)


def test_the_cache_answers_and_heals(tmp_path):
    first = np.array(load_trajectories(TINY, tmp_path).train)
    folder = tmp_path / "data" / data_id(TINY)
    before = (folder / "train.npy").stat().st_mtime_ns
    load_trajectories(TINY, tmp_path)
    assert (folder / "train.npy").stat().st_mtime_ns == before
    for damage in (lambda b: b[:-7], lambda b: b[:-4] + b"\0\1\2\3", lambda b: b""):
        path = folder / "train.npy"
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(damage(content))
        np.testing.assert_array_equal(load_trajectories(TINY, tmp_path).train, first)
    (folder / "meta.json").write_text("{")
    np.testing.assert_array_equal(load_trajectories(TINY, tmp_path).train, first)
    assert os.listdir(tmp_path / "data") == [data_id(TINY)]


def test_two_processes_asking_at_once_agree(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from sgno.lab.data import load_trajectories; from sgno.lab.tasks import Task\n"
        "t = Task('tiny', 'diff_adv', 1, num_points=32, num_train_samples=2, train_steps=3, "
        "num_test_samples=2, test_steps=4)\n"
        "print(float(load_trajectories(t, Path(sys.argv[1])).train.sum()))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = {process.communicate()[0] for process in running}
    assert len(answers) == 1 and all(process.returncode == 0 for process in running)
    assert os.listdir(tmp_path / "data") == [data_id(TINY)]


def test_ids_depend_on_settings_and_solver_but_not_on_the_name(monkeypatch):
    from dataclasses import replace

    assert data_id(TINY) == data_id(replace(TINY, name="other"))
    assert data_id(TINY) != data_id(replace(TINY, num_points=33))
    here = data_id(TINY)
    monkeypatch.setattr("sgno.lab.data.trajectories.solver_versions", lambda: {"exponax": "0.2.0"})
    assert data_id(TINY) != here


def test_nonfinite_data_names_sample_and_step():
    data = np.zeros((3, 5, 1, 4))
    data[2, 3, 0, 1] = np.nan
    with pytest.raises(InputError, match="sample 2, step 3"):
        check_finite(data, "test data")


def test_any_apebench_scenario_by_name(tmp_path):
    name = "apebench:phy_gs;num_spatial_dims=2;num_points=16;num_train_samples=1;train_temporal_horizon=2"
    task = get_task(f"{name};num_test_samples=1;test_temporal_horizon=2;feed_rate=0.03;dt=1.0")
    assert dict(task.settings) == {"feed_rate": 0.03, "dt": 1.0}
    assert load_trajectories(task, tmp_path).train.shape == (1, 3, 2, 16, 16)
    vector = get_task("apebench:phy_diag_diff;num_spatial_dims=2;diffusion_coef_vector=(0.001,0.002)")
    assert dict(vector.settings) == {"diffusion_coef_vector": (0.001, 0.002)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ks2d", "Unknown task 'ks2d'. Did you mean 'ks1d'"),
        ("apebench:nope", "Unknown APEBench scenario 'nope'"),
        ("apebench:diff_adv;gama=1", "Unknown setting of APEBench scenario diff_adv 'gama'"),
        ("apebench:diff_adv;num_points", "is not key=value"),
        ("apebench:diff_adv;num_points=-1", "num_points=-1 must be at least 1"),
        ("apebench:diff_adv;num_points=__import__('os')", "takes a whole number"),
        ("apebench:diff_adv;num_points=32;num_points=64", "sets num_points twice"),
        ("apebench:diff_adv;num_spatial_dims=1,apebench:diff_fisher", "takes a whole number"),
    ],
)
def test_unknown_names_list_the_known_ones(name, message):
    with pytest.raises(InputError, match=message):
        get_task(name)


def test_a_scenario_that_blows_up_is_refused(tmp_path):
    task = get_task("apebench:phy_burgers_sc;num_points=32;num_train_samples=1;num_test_samples=1;dt=1000.0")
    with pytest.raises(InputError, match="non-finite"):
        load_trajectories(task, tmp_path)
    assert not (tmp_path / "data").exists() or os.listdir(tmp_path / "data") == []
