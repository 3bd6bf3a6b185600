"""Files and folders that appear whole or not at all.

What is to become `NAME` is written in a folder beside it, `.NAME.TOKEN.part`, synced and renamed last, so
that a killed process or a full disk leaves the old content or the new, never a part of it. That folder is
locked for as long as its owner lives, and its name shows that it is ours: TOKEN ends in a digest of the rest.
So what a killed process left is told, without a clock, from what is being written and from what is not ours.
"""

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from sgno.errors import InputError, StorageError, storage_error
from sgno.io.locks import held

_PART = re.compile(r"\.(?P<stem>.+)\.(?P<drawn>[0-9a-f]{8})[0-9a-f]{16}\.part", re.DOTALL)
# Names may have 255 bytes in all.
_STEM_LENGTH = 50
_OLD = "replaced"
# Flags of renameat2(2).
_NOREPLACE, _EXCHANGE = 1, 2
_AT_FDCWD = -100


def write_bytes(path: Path, chunks: Iterable[bytes], *, replace: bool = True) -> None:
    """Write `path` whole or not at all.

    **Raises:** `StorageError` if the disk takes no more, `InputError` if there is such a file and
    `replace` is false.
    """
    path = Path(path)
    with part(path) as beside:
        with open(beside / "content", "xb") as file:
            for chunk in chunks:
                file.write(chunk)
        commit(beside / "content", path, replace=replace)


@contextlib.contextmanager
def new_folder(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill, which becomes `target` when the block ends without an error.

    If another process finished the same folder first, theirs stays and ours is dropped, unless `replace` says
    otherwise.
    """
    target = Path(target)
    with part(target) as beside:
        (beside / "content").mkdir()
        yield beside / "content"
        # What a failing disk did not let go of is not part of the result.
        sweep(beside / "content")
        try:
            commit(beside / "content", target, replace=replace)
        except _Appeared:
            if not target.is_dir():
                raise


@contextlib.contextmanager
def part(target: Path) -> Iterator[Path]:
    """A new folder beside `target` to write it in, locked during the block and removed at its end.

    What killed processes left there is removed first.
    """
    target = Path(target)
    make_folder(target.parent)
    sweep(target.parent)
    with explained(target), contextlib.ExitStack() as stack:
        while True:
            beside = target.with_name(_name(target.name[:_STEM_LENGTH], secrets.token_hex(4)))
            beside.mkdir(mode=0o700)
            if stack.enter_context(held(beside)) is not False:
                break
            # Swept away before it was locked.
        try:
            yield beside
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def commit(source: Path, target: Path, *, replace: bool) -> None:
    """Give a finished file or folder, written in a `part` of the target, its name.

    **Raises:** `InputError` if there is something under that name, unless it may be replaced.
    """
    _sync(source)
    if not replace:
        _place(source, target)
    elif source.is_dir() and os.path.lexists(target):
        _exchange(source, target)
    else:
        os.replace(source, target)
    # The content is safe and in its place, so a folder that cannot be synced is no reason to fail.
    with contextlib.suppress(OSError):
        _sync_one(target.parent)


def sweep(folder: Path) -> None:
    """Remove the parts that killed processes of ours left in a folder; those being written are locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for path in [Path(entry.path) for entry in entries if _is_ours(entry)]:
            with contextlib.suppress(OSError), held(path) as abandoned:
                if abandoned:
                    _restore(path)
                    shutil.rmtree(path)


def is_being_written(target: Path) -> bool:
    """Whether another process is at work on `target`."""
    stem = target.name[:_STEM_LENGTH]
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        named = [(_PART.fullmatch(entry.name), Path(entry.path)) for entry in entries]
        return any(_is_locked(path) for found, path in named if found and found["stem"] == stem)
    return False


def make_folder(path: Path) -> Path:
    """Create a folder, or say why it cannot be written to."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot create the folder {path} ({error.strerror}). Choose another with write access."
        ) from error
    if not os.access(path, os.W_OK):
        raise StorageError(f"The folder {path} is not writable. Choose another or change its permissions.")
    return Path(path)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a disk's refusal to take more into an error that says what to do."""
    try:
        yield
    except OSError as error:
        said = storage_error(error, path)
        if said is None:
            raise
        raise said from error


class _Appeared(InputError):
    """The target came into being while its content was written."""


def _name(stem: str, drawn: str) -> str:
    digest = hashlib.sha256(os.fsencode(f"sgno {stem} {drawn}")).hexdigest()[:16]
    return f".{stem}.{drawn}{digest}.part"


def _is_ours(entry: os.DirEntry) -> bool:
    """Whether this user's sgno made it: a folder, no link, of this user, under a name that only we give."""
    found = _PART.fullmatch(entry.name)
    if found is None or entry.name != _name(found["stem"], found["drawn"]):
        return False
    told = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(told.st_mode) and (not hasattr(os, "geteuid") or told.st_uid == os.geteuid())


def _is_locked(path: Path) -> bool:
    # Who sweeps it away holds it for a moment too.
    for _ in range(3):
        with held(path) as free:
            if free is not False or not path.exists():
                return False
        time.sleep(0.05)
    return True


def _sync(path: Path) -> None:
    """Have a file, or a folder and all in it, on the disk."""
    if path.is_dir():
        for place, _, files in os.walk(path):
            for name in files:
                _sync_one(Path(place) / name)
            # Not every file system syncs folders.
            with contextlib.suppress(OSError):
                _sync_one(Path(place))
    else:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _place(source: Path, target: Path) -> None:
    """Rename to a name that nothing has."""
    try:
        if _rename(source, target, _NOREPLACE):
            return
        if source.is_dir():
            # Replaces an empty folder at most.
            os.rename(source, target)
            return
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError:
            # No links here, so there is a moment in which another's file would be lost.
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
            os.rename(source, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        raise _Appeared(
            f"{target} exists already: it appeared in the meantime. Choose another name, or add --force to "
            "replace it."
        ) from error


def _exchange(source: Path, target: Path) -> None:
    """Put a folder in the place of what is there, which stays in the part until that is removed."""
    if _rename(source, target, _EXCHANGE):
        return
    old = source.parent / _OLD
    old.mkdir()
    # Between these two there is nothing under the name; `sweep` brings it back after a kill.
    os.rename(target, old / target.name)
    try:
        os.rename(source, target)
    except BaseException:
        os.rename(old / target.name, target)
        raise


def _restore(beside: Path) -> None:
    """Bring back what was about to be replaced when its owner was killed."""
    for old in (beside / _OLD).glob("*"):
        if not os.path.lexists(beside.parent / old.name):
            os.rename(old, beside.parent / old.name)


def _rename(source: Path, target: Path, flags: int) -> bool:
    """Rename by renameat2(2); gives False where a platform or file system does not have it."""
    call = _renameat2()
    if call is None:
        return False
    while call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) != 0:
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            return False
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code), str(target))
    return True


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None
