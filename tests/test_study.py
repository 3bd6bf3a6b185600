"""Plans, presets, claims and the study loop; real worker processes; kills."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from kills import check, finish, kill_often, study
from rich.console import Console
from tiny_study import tiny_job

from sgno.errors import InputError
from sgno.grid import Grid
from sgno.io.files import load_arrays
from sgno.io.locks import claim
from sgno.lab.data.trajectories import Trajectories
from sgno.lab.estimate import Timing, estimate, timing_id
from sgno.lab.executor import Event, News, run_study
from sgno.lab.job import Job, run_job
from sgno.lab.live import Board, Watcher, duration
from sgno.lab.local import LocalProcesses
from sgno.lab.presets import (
    ABLATION_TASKS,
    ABLATIONS,
    BEYOND_TASKS,
    MAIN_MODELS,
    PRESETS,
    SGNO_X_ABLATIONS,
    TaskPlan,
    get_preset,
    make_jobs,
    preset_plans,
)
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.lab.tasks import TASKS, get_task
from sgno.registry import MODELS, get_model


def jobs_of(preset: str, **choice) -> tuple[Job, ...]:
    return make_jobs(preset_plans(get_preset(preset), **choice))


@pytest.mark.parametrize("preset", PRESETS)
def test_ids_are_unique_and_survive_json(preset):
    jobs = jobs_of(preset)
    assert len({job.id for job in jobs}) == len(jobs)
    # Jobs of one id are made one, so a setting that ids forget would make jobs vanish.
    assert {job.seed for job in jobs} == set(range(max(b.seeds for b in get_preset(preset).efforts.values())))
    for job in jobs[:: max(1, len(jobs) // 50)]:
        travelled = Job.from_json(json.loads(json.dumps(job.to_json())))
        assert travelled == job and travelled.id == job.id


def test_ids_do_not_change_from_one_process_to_the_next():
    code = "from tiny_study import tiny_job; print(tiny_job(3).id)"
    where = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parent)}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=where, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == tiny_job(3).id


def test_desk_runs_the_plain_protocol_in_1d():
    planned = {job.id for job in jobs_of("desk")}
    for task in (name for name, task in TASKS.items() if task.num_spatial_dims == 1):
        for name in MAIN_MODELS:
            model = get_model(name, 1)
            train = TrainConfig.for_model(model)
            for seed in range(3 if train.updates else 1):
                assert Job(get_task(task), name, model, train, seed).id in planned


def test_presets_have_the_sizes_they_promise():
    desk, paper = jobs_of("desk"), jobs_of("paper")
    for job in desk:
        dims, trained = job.task.num_spatial_dims, job.train.updates > 0
        assert job.task.num_points == {1: 160, 2: 64, 3: 16}[dims]
        assert not trained or job.train.updates == {1: 10_000, 2: 2_000, 3: 1_000}[dims]
    for task in TASKS.values():
        seeds = {job.seed for job in paper if job.task == task and job.model_name == "sgno"}
        assert len(seeds) == (50 if task.num_spatial_dims == 1 else 20)
    assert {job.train.updates for job in paper} == {0, 10_000}
    moved = {job.transfer_points for job in paper if job.transfer_points}
    assert moved == {(128, 256)}
    transferred = {(j.task.name, j.model_name) for j in paper if j.transfer_points}
    assert transferred == {("kolm2d", "sgno"), ("kolm2d", "sgno-x")}


@pytest.mark.parametrize("preset", ["smoke", "desk", "paper"])
def test_every_preset_of_the_paper_has_all_tasks_rows_and_ablations(preset):
    found = {(job.task.name, job.model_name) for job in jobs_of(preset)}
    wanted = {(task, model) for task in TASKS for model in MAIN_MODELS}
    wanted |= {(task, model) for task in ABLATION_TASKS for model in ABLATIONS}
    assert wanted <= found
    assert found == wanted or (preset == "smoke" and {model for _, model in found} == set(MODELS))
    assert {"sgno", "sgno-matched", "conv", "res", "unet", "dil", "fno"} <= set(MAIN_MODELS)
    assert {"linear", "persistence"} <= set(MAIN_MODELS)
    assert set(MAIN_MODELS) | set(ABLATIONS) <= set(MODELS)


def test_beyond_gives_sgno_x_the_papers_budget_and_more_seeds():
    jobs = jobs_of("beyond")
    papers = [j for j in jobs if j.model_name == "sgno-x" and j.train.updates == 10_000]
    for task in TASKS.values():
        seeds = [j.seed for j in papers if j.task.name == task.name]
        assert sorted(seeds) == list(range(5 if task.num_spatial_dims == 1 else 3))
    # Every ablation has the whole model beside it: the same data, the same budget.
    rows = {(j.task, j.train.updates): set() for j in jobs if j.model_name in SGNO_X_ABLATIONS}
    for j in jobs:
        rows.get((j.task, j.train.updates), set()).add(j.model_name)
    assert rows and all("sgno-x" in models for models in rows.values())
    assert {j.train.updates for j in jobs if j.model_name == "sgno-x-start"} == {0}
    assert {j.model_name for j in jobs} >= set(SGNO_X_ABLATIONS)
    further = {j.task.name: j for j in jobs if j.task.name not in TASKS}
    assert set(further) == set(BEYOND_TASKS)
    for name in further:
        assert {j.model_name for j in jobs if j.task.name == name} >= {"sgno-x", "fno", "unet", "linear"}


def test_paper64_has_the_jobs_that_other_presets_have_by_the_papers_budget():
    jobs = jobs_of("paper64")
    assert {job.train.updates for job in jobs if job.model_name != "persistence"} == {10_000}
    assert {job.task.num_points for job in jobs if job.task.num_spatial_dims == 2} == {64}
    ids = {job.id for job in jobs}
    for tasks, models, seeds in (
        (["kolm2d", "mixdisp2d"], ["sgno"], 3),
        (["diagdiff3d", "unbaladv3d", "advdiff3d"], ["sgno", "fno"], 1),
        (["ks1d", "adv1d"], ["sgno"], 20),
        (["kolm2d"], ["fno", "cno", "dil", "unet"], 1),
    ):
        same = jobs_of("beyond", tasks=tasks, models=models, seeds=seeds)
        assert {job.id for job in same} <= ids and len(same) == len(tasks) * len(models) * seeds


@pytest.mark.parametrize("preset", PRESETS)
def test_every_model_fits_its_grid(preset):
    settings = {(job.model, job.task.num_points, job.task.num_spatial_dims): job for job in jobs_of(preset)}
    for model, points, dims in settings:
        grid = Grid(1, (points,) * dims)
        step = eqx.filter_eval_shape(lambda m=model, g=grid: m.build(g, key=jax.random.PRNGKey(0)))
        assert jax.tree.leaves(step) or model.kind == "persistence"


def test_a_choice_is_a_part_of_the_whole():
    chosen = jobs_of("desk", tasks=["ks1d"], models=["sgno", "fno"], seeds=2)
    assert [(job.model_name, job.seed) for job in chosen] == [
        ("sgno", 0),
        ("fno", 0),
        ("sgno", 1),
        ("fno", 1),
    ]
    assert {job.id for job in chosen} <= {job.id for job in jobs_of("desk")}
    # A model keeps the budget that the preset gives it on a task, and one that it does not name gets the
    # first of that task.
    beyond, shock = jobs_of("beyond"), BEYOND_TASKS[2]
    chosen = jobs_of("beyond", tasks=["kolm2d", shock], models=["sgno-x", "sgno-x-cold", "conv"])
    planned = {job.id for job in beyond if job.model_name in ("sgno-x", "sgno-x-cold")}
    assert {job.id for job in chosen if job.model_name == "sgno-x"} <= planned
    budgets = {(job.task.name, job.model_name, job.train.updates) for job in chosen}
    assert {b for b in budgets if b[1] == "conv"} == {("kolm2d", "conv", 10_000), (shock, "conv", 2_000)}
    assert {b for b in budgets if b[1] == "sgno-x-cold"} == {
        ("kolm2d", "sgno-x-cold", 2_000),
        (shock, "sgno-x-cold", 2_000),
    }
    with pytest.raises(InputError, match="Did you mean 'ks1d'"):
        jobs_of("desk", tasks=["ks1"])
    with pytest.raises(InputError, match="Unknown model"):
        jobs_of("desk", models=["nothing"])
    with pytest.raises(InputError, match="Did you mean 'desk'"):
        get_preset("dusk")
    with pytest.raises(InputError, match="seeds=0"):
        jobs_of("desk", seeds=0)
    with pytest.raises(InputError, match="no job"):
        make_jobs([TaskPlan(get_task("ks1d"), (), 1)])


class Scripted:
    """An executor that answers from a script: for each job, what happens at each try."""

    slots = 2

    def __init__(self, store: Store, script: dict[str, list[str]]):
        self.store, self.script, self.submitted = store, script, []
        self._events: deque[Event] = deque()

    def submit(self, call):
        self.submitted.append(call["id"])
        what = self.script[call["id"]].pop(0)
        if what == "lost":
            self._events.append(Event("lost", call["id"], {"error": "It died.", "log": "last words"}))
            return
        content = {"outcome": what, "gmean100": 0.5, "seconds": 1.0, "error": "It failed."}
        self._events.append(Event("started", call["id"], {}))
        if what == "finished":
            folder = self.store.job(call["id"])
            folder.mkdir(parents=True)
            (folder / "record.json").write_text("{}")
        self._events.append(Event("done", call["id"], content))

    def events(self, timeout):
        while self._events:
            yield self._events.popleft()
        time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        pass


def test_the_study_retries_lost_jobs_waits_for_busy_ones_and_goes_on_after_failures(tmp_path):
    store = Store(tmp_path)
    fine, failing, unlucky, doomed, busy, found = jobs = [tiny_job(seed) for seed in range(6)]
    done = store.job(found.id)
    done.mkdir(parents=True)
    (done / "record.json").write_text("{}")
    script = {
        fine.id: ["finished"],
        failing.id: ["failed"],
        unlucky.id: ["lost", "lost", "finished"],
        doomed.id: ["lost", "lost", "lost"],
        busy.id: ["busy", "finished"],
        found.id: [],
    }
    executor, board = Scripted(store, script), Board(jobs)
    outcome = run_study(jobs, store, executor, cache=tmp_path / "cache", watch=board.hear)
    assert set(outcome.finished) == {fine.id, unlucky.id, busy.id, found.id}
    assert set(outcome.failed) == {failing.id, doomed.id}
    assert all(not left for left in script.values())
    assert (board.done, board.left, len(board.failures), len(board.running)) == (4, 0, 2, 0)
    (recorded,) = store.failures()
    assert recorded["id"] == doomed.id and "died 3 times" in recorded["error"]
    assert recorded["traceback"] == "last words"


def test_the_board_expects_the_end_from_the_pace_so_far(monkeypatch):
    jobs = [tiny_job(seed) for seed in range(4)]
    now = [0.0]
    monkeypatch.setattr("sgno.lab.live.time.monotonic", lambda: now[0])
    board = Board(jobs, {jobs[0].id: 10.0, jobs[1].id: 10.0, jobs[2].id: 20.0, jobs[3].id: 40.0})
    assert board.seconds_left() is None
    board.hear(News("finished", jobs[3], {"outcome": "finished", "found": True}))
    assert board.seconds_left() is None, "a job found finished says nothing of the pace"
    now[0] = 30.0
    board.hear(News("finished", jobs[0], {"outcome": "finished"}))
    board.hear(
        News("progress", jobs[1], {"update": 5, "updates": 10, "loss": 0.1, "updates_per_second": 3.0})
    )
    # 15 of 40 in 30 seconds.
    assert board.seconds_left() == pytest.approx(30 * 25 / 15)
    assert (board.done, len(board.running), board.left) == (2, 1, 1)


def test_the_watcher_prints_lines_where_there_is_no_terminal_and_a_table_where_there_is(tmp_path):
    job = tiny_job()
    progress = News("progress", job, {"update": 5, "updates": 20, "loss": 0.25, "updates_per_second": 3.0})
    end = News("finished", job, {"outcome": "finished", "gmean100": 0.125, "seconds": 3.0})
    failure = News("failed", job, {"outcome": "failed", "error": "ValueError: [no] such"})
    for terminal in (False, True):
        path = tmp_path / f"{terminal}.txt"
        with open(path, "w") as file:
            console = Console(
                file=file, force_terminal=terminal, width=100, color_system=None, highlight=False
            )
            with Watcher(Board([job]), console) as watcher:
                for news in (progress, end, failure):
                    watcher(news)
                    if terminal:
                        watcher._live.refresh()
        text = path.read_text()
        assert "GMean100 0.125 in 3 s" in text and "[no] such" in text
        assert ("2.500e-01" in text) is terminal
        assert ("ends in about" in text) is terminal
    assert [duration(s) for s in (45.0, 720.0, 12_000.0, 356_400.0)] == [
        "45 s",
        "12 min",
        "3 h 20 min",
        "4 d 3 h",
    ]


_HOLD = """
import sys, time
from pathlib import Path
from sgno.io.locks import claim
with claim(Path(sys.argv[1])) as granted:
    print(granted, flush=True)
    time.sleep(60)
"""


def test_a_claim_is_exclusive_and_ends_with_its_process(tmp_path):
    path = tmp_path / "job"
    other = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        with claim(path) as granted:
            assert not granted
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert path.exists(), "a killed process cannot clean up"
        with claim(path) as granted:
            assert granted
            with claim(path) as again:
                assert not again
    assert not path.exists()


class Stopwatch(Scripted):
    """An executor that measures: one second to prepare, a millisecond per update."""

    def submit(self, call):
        self.submitted.append(call["id"])
        timing = Timing(1.0, 1e-3, self.script["processor"][0]).to_json()
        self._events.append(Event("done", call["id"], {"outcome": "finished", "timing": timing}))


def test_the_estimate_measures_each_setting_once_and_scales(tmp_path):
    jobs = [tiny_job(seed, updates) for seed in range(3) for updates in (1000, 2000)]
    jobs += [tiny_job(0, 1000, model="Conv;5;1;relu")]
    executor, store = Stopwatch(Store(tmp_path), {"processor": ["any"]}), Store(tmp_path)
    found = estimate(jobs, store, executor, cache=tmp_path, seconds=5.0)
    assert len(executor.submitted) == len({timing_id(job) for job in jobs}) == 2
    assert (found.measured, found.settings) == (2, 2)
    # 8 test steps of 2 samples cost a third of an update of 4 samples each.
    rollout = 8 * 2 * 1e-3 / 4 / 3
    assert found.seconds[jobs[0].id] == pytest.approx(1 + 1.0 + rollout)
    assert found.seconds[jobs[1].id] == pytest.approx(1 + 2.0 + rollout)
    assert found.total(2) == pytest.approx(sum(found.seconds.values()) / 2)
    assert found.total(100) == pytest.approx(3 + rollout), "no study ends before its longest job"
    # Without time to measure, nothing is asked of the workers.
    assert estimate(jobs, store, executor, cache=tmp_path, seconds=0.0).measured == 0
    assert len(executor.submitted) == 2


def test_training_never_looks_at_the_test_part(tmp_path):
    trajectories = np.random.default_rng(0).normal(size=(2, 4, 5, 1, 64)).astype(np.float32)
    job = tiny_job(model="linear")
    weights = []
    for i, test in enumerate(trajectories):
        data = Trajectories("x", trajectories[0], test)
        run_job(job, Store(tmp_path / str(i)), data=data)
        weights.append(load_arrays(Store(tmp_path / str(i)).weights(job.id)).arrays)
    assert weights[0].keys() == weights[1].keys()
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])


@pytest.mark.slow
def test_local_processes_record_a_failure_replace_a_dead_worker_and_finish_the_rest(tmp_path, cache):
    store = Store(tmp_path)
    # 26 modes need 52 points, and a job that was killed is tried again.
    bad = Job(
        get_task("adv1d").with_options(num_points=32, num_train_samples=2),
        "sgno",
        get_model("sgno", 1),
        TrainConfig(),
    )
    good = [tiny_job(seed, updates=3000) for seed in range(2)]
    heard = []
    with LocalProcesses(2) as executor:

        def watch(news: News) -> None:
            heard.append((news.kind, news.job.id))
            if news.kind == "progress" and "lost" not in {kind for kind, _ in heard} and executor.pids:
                os.kill(executor.pids[0], signal.SIGKILL)

        outcome = run_study([bad, *good], store, executor, cache=cache, watch=watch, checkpoint_seconds=0.0)
        pids = executor.pids
    assert outcome.failed == (bad.id,)
    assert set(outcome.finished) == {job.id for job in good}
    (failure,) = store.failures()
    assert "modes" in failure["error"] and "Traceback" in failure["traceback"]
    assert "lost" in {kind for kind, _ in heard}
    assert [kind for kind, _ in heard].count("finished") == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    record = store.record(good[0].id)
    assert record["machine"]["cores"] == 1
    assert 0 < record["peak_memory_bytes"] < 4e9
    assert not list((tmp_path / "claims").iterdir())


@pytest.mark.slow
def test_a_killed_study_goes_on_to_the_same_results(tmp_path, cache):
    """Three kills here; two hundred, of studies and of runs, in validation."""
    seeds, updates = 3, 3000
    whole, store = Store(tmp_path / "whole"), Store(tmp_path / "killed")
    seconds = finish(study(whole.root, cache, seeds, updates))
    command = study(store.root, cache, seeds, updates)
    killed = kill_often(command, store.root, kills=3, longest=seconds, rng=np.random.default_rng(0))
    finish(command)
    check(killed, store, whole, {tiny_job(seed, updates).id for seed in range(seeds)})


def test_names_are_separated_by_commas_outside_brackets(tmp_path):
    scenarios = ["apebench:phy_diag_diff;diffusion_coef_vector=(0.001, 0.002)", "apebench:diff_burgers"]
    command = [
        sys.executable,
        "-m",
        "sgno",
        "reproduce",
        "--dry-run",
        "--json",
        "--out",
        str(tmp_path / "none"),
    ]
    command += ["--tasks", ",".join([*(f"{s};num_spatial_dims=2" for s in scenarios), "ks1d"])]
    command += ["--models", "linear,Conv;4;1;relu"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout.splitlines()[-1])["jobs"] == 6


@pytest.mark.slow
def test_reproduce_runs_reports_and_has_nothing_left_the_second_time(tmp_path, cache):
    out = tmp_path / "results"
    arguments = ["reproduce", "--preset", "smoke", "--tasks", "adv1d", "--models", "linear,conv"]
    command = [sys.executable, "-c", "from sgno.cli import main; main()", *arguments, "--json"]
    command += ["--out", str(out), "--cache", str(cache), "--workers", "1"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2))
    ran, answered = (json.loads(run.stdout.splitlines()[-1]) for run in (first, second))
    assert (ran["jobs"], ran["left"], ran["finished"], ran["failed"]) == (2, 2, 2, [])
    assert answered["left"] == 0 and answered["report"] == ran["report"]
    assert Path(ran["report"]).stat().st_size > 10_000
    assert "About" in first.stderr and "[2/2]" in first.stderr
