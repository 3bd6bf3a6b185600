"""What is written appears whole, replaces only what it may, and is cleared away after a kill."""

import os
import shutil
import sys
from pathlib import Path

import injection
import numpy as np
import pytest
from disks import close_disk, open_disk, orphan

from sgno.errors import InputError, StorageError
from sgno.io import commit
from sgno.io.commit import new_folder, sweep, write_bytes
from sgno.io.locks import claim
from sgno.solve.writer import SUFFIXES, Spec, writer

STATES = np.arange(12, dtype=np.float32).reshape(2, 3, 1, 2)


def write(path: Path, *, replace: bool = False, number: float = 1.0, between=lambda: None) -> None:
    with writer(path, {"u": Spec(STATES.shape)}, replace=replace) as sink:
        sink.put("u", 0, number * STATES)
        between()


def bytes_of(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.fixture(params=["renameat2", "without"])
def renames(request, monkeypatch):
    """With the system call that does both atomically, and as where there is none."""
    if request.param == "without":
        monkeypatch.setattr(commit, "_renameat2", lambda: None)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_appears_meanwhile_is_not_replaced(tmp_path, suffix, renames):
    path, other = tmp_path / f"u{suffix}", tmp_path / f"other{suffix}"
    write(other, number=2.0)
    with pytest.raises(InputError, match="appeared in the meantime"):
        write(path, between=lambda: other.rename(path))
    write(other, number=2.0)
    assert bytes_of(path) == bytes_of(other)
    assert sorted(os.listdir(tmp_path)) == [f"other{suffix}", f"u{suffix}"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_replaced_stays_until_the_new_is_whole(tmp_path, suffix, renames):
    path = tmp_path / f"u{suffix}"
    write(path)
    old = bytes_of(path)

    def fail():
        assert bytes_of(path) == old
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(path, replace=True, number=2.0, between=fail)
    assert bytes_of(path) == old
    write(path, replace=True, number=2.0)
    assert bytes_of(path) != old and os.listdir(tmp_path) == [path.name]


def test_a_kill_between_two_renames_is_made_good(tmp_path, monkeypatch):
    """Where no system call exchanges folders there is a moment in which nothing has the name."""
    monkeypatch.setattr(commit, "_renameat2", lambda: None)
    target, rename = tmp_path / "u.zarr", os.rename
    (tmp_path / "u.zarr").mkdir()
    (target / "old").write_text("old")
    killed = []

    def die(source, to):
        if Path(to) == target and not killed:
            # As a kill leaves it: what follows, and the cleaning up, never happens.
            killed.append(shutil.copytree(Path(source).parent, tmp_path / "left"))
        rename(source, to)

    monkeypatch.setattr(os, "rename", die)
    with new_folder(target, replace=True) as beside:
        name = beside.parent.name
        (beside / "new").write_text("new")
    shutil.rmtree(target)
    rename(tmp_path / "left", tmp_path / name)
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["u.zarr"] and os.listdir(target) == ["old"]


def test_two_do_not_write_to_one_path(tmp_path):
    path = tmp_path / "u.npy"
    with pytest.raises(InputError, match="is being written by another process"):
        write(path, between=lambda: write(path))
    assert os.listdir(tmp_path) == []


def test_a_new_file_does_not_replace_unless_it_may(tmp_path, renames):
    path = tmp_path / "x"
    write_bytes(path, [b"old"])
    with pytest.raises(InputError, match="exists already"):
        write_bytes(path, [b"new"], replace=False)
    assert path.read_bytes() == b"old"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="exists already"):
        write_bytes(path, [b"new"], replace=False)
    write_bytes(path, [b"new"])
    assert path.read_bytes() == b"new" and not path.is_symlink() and os.listdir(tmp_path) == ["x"]


def test_only_what_was_provably_made_here_is_swept_away(tmp_path):
    mine, linked = orphan(tmp_path / "x"), tmp_path / "linked"
    kept = [tmp_path / ".download.part", tmp_path / ".x.0123abcd.part", tmp_path / f"{mine.name[:-6]}0.part"]
    for path in kept:
        path.mkdir()
        (path / "precious").write_text("precious")
    file = mine.with_name(commit._name("y", "01234567"))
    file.write_text("a file, and we make folders")
    linked.mkdir()
    (linked / "precious").write_text("precious")
    link = mine.with_name(commit._name("z", "01234567"))
    link.symlink_to(linked, target_is_directory=True)
    sweep(tmp_path)
    assert not mine.exists() and file.is_file() and link.is_symlink()
    assert all((path / "precious").is_file() for path in (*kept, linked))


def test_a_part_of_another_user_is_left_alone(tmp_path, monkeypatch):
    left = orphan(tmp_path / "x")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sweep(tmp_path)
    assert left.is_dir()


def test_a_claim_does_not_write_where_a_link_leads(tmp_path):
    (tmp_path / "claims").mkdir()
    path, precious = tmp_path / "claims" / "job", tmp_path / "precious"
    precious.write_text("precious")
    for make in (path.symlink_to, path.hardlink_to):
        make(precious)
        with pytest.raises(InputError, match="is a link, or no file"), claim(path):
            pass
        assert precious.read_text() == "precious"
        path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="no file"), claim(path):
        pass


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc")
def test_some_system_calls_fail_or_kill(tmp_path):
    """`validation/test_injection.py` tries every one."""
    found = injection.start(tmp_path, ["write .npz", "replace .h5", "record"], 5)
    for name, each in found.items():
        assert each["faults"] == [] and sum(each["points"].values()) >= 16, name


def test_a_full_disk_ends_hdf5_output_in_words():
    disk, states = open_disk(), np.ones((2, 64, 1, 4096), np.float32)
    try:
        path = disk.folder / "u.h5"
        write(path)
        old = path.read_bytes()
        specs = {"u": Spec(states.shape)}
        with (
            pytest.raises(StorageError, match=r"Cannot write .*u\.h5"),
            writer(path, specs, replace=True) as sink,
        ):
            disk.fill()
            sink.put("u", 0, states)
        disk.free()
        assert path.read_bytes() == old and os.listdir(disk.folder) == ["u.h5"]
    finally:
        close_disk(disk)
