"""Every task of two and three dimensions, and every kind of model, from data to a stored result."""

import dataclasses
import json

import numpy as np
import pytest

from sgno.io.files import load_arrays
from sgno.lab.job import Job, run_job
from sgno.lab.presets import PRESETS
from sgno.lab.recipe import TrainConfig
from sgno.lab.store import Store
from sgno.lab.tasks import get_task
from sgno.registry import MODELS, get_model, with_settings
from sgno.weights import load

REDUCED = {2: {"num_points": 24}, 3: {"num_points": 12}}
SHORT = {"num_train_samples": 2, "train_steps": 4, "num_test_samples": 2, "test_steps": 4}


@pytest.mark.parametrize("name", ["mixdisp2d", "kolm2d", "diagdiff3d", "unbaladv3d", "advdiff3d"])
def test_sgno_on_every_2d_and_3d_task(name, tmp_path, cache):
    task = get_task(name)
    task = task.with_options(**SHORT, **REDUCED[task.num_spatial_dims])
    if name == "kolm2d":
        task = task.with_options(settings=(("num_substeps", 4), ("num_warmup_steps", 5)))
    # One layer: nearly all of the time is compiling, which grows with depth.
    model = with_settings(get_model("sgno", task.num_spatial_dims), {"num_blocks": "1"})
    job = Job(task, "sgno", model, TrainConfig.for_model(model, updates=3, batch_size=2))
    store = Store(tmp_path)
    record = run_job(job, store, cache=cache)
    assert len(record["mean_nrmse"]) == 4 and record["gmean100"] is not None
    assert record["versions"]["exponax"] == "0.1.0" and record["job"] == json.loads(json.dumps(job.to_json()))
    states = load_arrays(store.job(job.id) / "sample.safetensors").arrays["states"]
    assert states.shape == load_arrays(store.truth(record["data"])).arrays["states"].shape
    assert np.isfinite(states).all()


def tiny_job(model_name: str, seed: int = 0, **train) -> Job:
    task = get_task("adv1d").with_options(**SHORT, num_points=64)
    # The sizes of the preset that tries everything.
    model = dataclasses.replace(get_model(model_name, 1), **PRESETS["smoke"].settings.get(model_name, {}))
    return Job(
        task,
        model_name,
        model,
        TrainConfig.for_model(model, **{"updates": 3, "batch_size": 2, **train}),
        seed,
    )


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_of_the_registry_runs_and_its_weights_load(name, tmp_path, cache):
    job, store = tiny_job(name), Store(tmp_path)
    record = run_job(job, store, cache=cache)
    assert record["gmean100"] is not None and (record["params"] > 0) == (name != "persistence")
    assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job
    loaded = load(store.weights(job.id))
    from sgno.io.split import excerpt
    from sgno.lab.data.own import load_data
    from sgno.solve import evaluate
    from sgno.solve.monitor import reference_statistics

    data = load_data(job.task, cache)
    # Watched, as the job was: another program rounds differently, and the linear fit's score is rounding.
    again = evaluate(loaded, data.test, watch=reference_statistics(excerpt(data.train)))
    assert again.gmean100 == pytest.approx(record["gmean100"], rel=1e-6)


def test_ids_are_made_of_settings(tmp_path):
    assert tiny_job("sgno").id != tiny_job("sgno", seed=1).id
    assert tiny_job("sgno").id != tiny_job("sgno", updates=4).id
    assert tiny_job("sgno").id == tiny_job("sgno").id


def test_a_damaged_checkpoint_is_replaced_by_a_fresh_start(tmp_path, cache):
    job, store = tiny_job("sgno"), Store(tmp_path)
    store.checkpoint(job.id).parent.mkdir(parents=True)
    store.checkpoint(job.id).write_bytes(b"not a checkpoint")
    record = run_job(job, store, cache=cache)
    other = run_job(job, Store(tmp_path / "other"), cache=cache)
    assert record["mean_nrmse"] == other["mean_nrmse"]
    assert not store.checkpoint(job.id).exists()


def test_transfer_scores_the_same_weights_on_finer_grids(tmp_path, cache):
    job = dataclasses.replace(tiny_job("sgno"), transfer_points=(96,))
    record = run_job(job, Store(tmp_path), cache=cache)
    assert record["transfer"]["96"]["gmean100"] > 0


def test_a_diverging_run_is_a_result(tmp_path, cache):
    record = run_job(tiny_job("conv", updates=40, peak_rate=1e25), Store(tmp_path), cache=cache)
    assert record["diverged_at"] is not None
    assert record["gmean100"] is None and record["nonfinite_steps"] == 4


def test_float64(tmp_path, cache):
    record = run_job(tiny_job("sgno", precision="float64"), Store(tmp_path), cache=cache)
    single = run_job(tiny_job("sgno"), Store(tmp_path), cache=cache)
    assert record["id"] != single["id"]
    assert record["gmean100"] == pytest.approx(single["gmean100"], rel=1e-3)
