"""A folder of runs that others can write to: nothing in it leads out, and only our own is deleted."""

import shutil

import pytest

from sgno.errors import InputError
from sgno.io.commit import part
from sgno.io.files import seal, write_json
from sgno.lab.report.runs import read_store
from sgno.lab.store import Store

ID = "0123456789abcdef"


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store").create()


def finish(store: Store, job_id: str = ID) -> None:
    store.job(job_id).mkdir()
    write_json(store.job(job_id) / "record.json", seal({"id": job_id}))


def test_no_link_in_a_store_is_followed(store, tmp_path):
    finish(store)
    outside = tmp_path / "outside"
    shutil.copytree(store.job(ID), outside / "job")
    (store.root / "jobs" / "linked").symlink_to(outside / "job")
    for folder in ("claims", "failed", "checkpoints"):
        (store.root / folder).symlink_to(outside)
    with pytest.raises(InputError, match="is a link, and links inside a folder of runs are not followed"):
        store.record("linked")
    for act in (lambda: store.fail("x", {}), lambda: store.claim("x"), lambda: store.checkpoint("x")):
        with pytest.raises(InputError, match="are not followed"):
            act()
    (store.job(ID) / "record.json").rename(outside / "record.json")
    (store.root / "jobs" / ID / "record.json").symlink_to(outside / "record.json")
    with pytest.raises(InputError, match="are not followed"):
        store.record(ID)
    with pytest.raises(InputError, match="no name of a job"):
        store.job("../outside")
    assert len(read_store(store.root).unreadable) == 2


def test_a_sweep_deletes_what_is_ours_and_nothing_else(store, tmp_path):
    finish(store)
    outside = tmp_path / "outside"
    (outside / ID).mkdir(parents=True)
    for folder in (store.root / "notes", store.root / "checkpoints", outside):
        folder.mkdir(exist_ok=True)
        (folder / ".draft.part").write_text("precious")
    (store.root / "checkpoints" / f"{ID}.safetensors").write_text("of a finished job")
    (store.root / "checkpoints" / f"{ID}.txt").write_text("precious")
    (store.root / "claims").symlink_to(outside)
    (outside / f"{ID}.jsonl").write_text("precious")
    with part(store.root / "notes" / "x") as beside:
        name = beside.name
        shutil.copytree(beside, tmp_path / "kept")
    for folder in (store.root / "notes", outside, store.root / "checkpoints"):
        shutil.copytree(tmp_path / "kept", folder / name)
    store.sweep()
    # Of a folder that is not of a store nothing is known.
    assert (store.root / "notes" / name).is_dir() and (outside / name).is_dir()
    assert sorted(p.name for p in (store.root / "checkpoints").iterdir()) == [".draft.part", f"{ID}.txt"]
    assert (outside / f"{ID}.jsonl").is_file() and (outside / ID).is_dir()


def test_a_record_without_its_checksum_is_none(store):
    finish(store)
    write_json(store.job(ID) / "record.json", {"id": ID})
    with pytest.raises(InputError, match="has no checksum"):
        store.record(ID)


def test_a_damaged_failure_does_not_hide_the_others(store):
    for job_id in ("a", "c", "d"):
        store.fail(job_id, {"id": job_id, "error": "x"})
    (store.root / "failed" / "b.json").write_text("{")
    (store.root / "failed" / "c.json").write_text("[]")
    found = {failure["id"]: failure["error"] for failure in store.failures()}
    assert list(found) == ["a", "b", "c", "d"] and found["d"] == "x"
    assert "is not valid JSON" in found["b"] and "is not the report" in found["c"]
