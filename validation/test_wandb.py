"""Weights & Biases for real, offline: needs the extra `tracking`."""

from sgno.lab.tracking import tracking


def test_an_offline_run_leaves_its_file(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with tracking(["wandb"], tmp_path, "a run", {"width": 3}) as (tracker,):
        tracker.log(5, {"loss": 0.25})
        tracker.log(6, {"loss": None})
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert written.stat().st_size > 0
