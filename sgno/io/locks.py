"""Who is working on what, when several processes share a folder.

A lock here is one of the kernel on an open file, not the file's existence or its date. So it ends with the
process, however that died, and needs no clock: a killed process leaves nothing to wait for.

Between machines such locks work on file systems that pass them on (NFS 4 and later versions of NFS 3, GPFS,
Lustre mounted with `flock`).
"""

import contextlib
import errno
import json
import os
import platform
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from sgno.errors import InputError, storage_error

try:
    import fcntl
except ImportError:  # Windows has no flock: see `lock`.
    fcntl = None

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


@contextlib.contextmanager
def claim(path: Path, *, on_wait: Callable[[str], None] | None = None) -> Iterator[bool]:
    """Hold `path`, a file made for the purpose, for as long as the block lasts, if nobody else does.

    Where a file system or platform has no locks every claim is granted: two processes may then do the same
    work at once. That costs time, never a result: files and folders appear whole, runs of one job are equal,
    and the first to finish is kept.

    **Arguments:**

    - `path`: in a folder that exists. Its text (process, host) is for people only.
    - `on_wait`: if given, wait for whoever holds the claim, after one call that says who that is.

    **Yields:** whether the claim was granted; always so with `on_wait`.
    """
    descriptor = _open_locked(path, on_wait)
    if descriptor is None:
        yield False
        return
    try:
        # For people only, so a full disk is no reason to stop here.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())
        yield True
    finally:
        # Removed while still held, so that whoever opens the path next makes a new file.
        with contextlib.suppress(OSError):
            if is_current(descriptor, path):
                path.unlink()
        os.close(descriptor)


@contextlib.contextmanager
def held(path: Path) -> Iterator[bool | None]:
    """Hold a folder that exists for as long as the block lasts.

    **Yields:** whether it is ours and still there, or None where a file system or platform has no locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _NOFOLLOW)
    except OSError:
        # Gone, or a folder on a platform that does not open those.
        yield None if fcntl is None else False
        return
    try:
        granted = lock(descriptor)
        yield granted and is_current(descriptor, path)
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, wait: bool = False) -> bool | None:
    """Lock an open file until it is closed.

    **Returns:** whether it is ours now, or None where a file system or platform has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_current(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _open_locked(path: Path, on_wait: Callable[[str], None] | None) -> int | None:
    """An open file that is locked and still the one at `path`, or None if another holds it."""
    while True:
        descriptor = _open(path)
        granted = lock(descriptor)
        if granted is False:
            if on_wait is None:
                os.close(descriptor)
                return None
            on_wait(_owner(descriptor))
            granted = lock(descriptor, wait=True)
        if granted is None or is_current(descriptor, path):
            return descriptor
        # The owner before us removed the file between our opening and locking it.
        os.close(descriptor)


def _open(path: Path) -> int:
    """A file made for the purpose, and not one that a link under its name leads to."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _foreign(path) from error
        raise storage_error(error, path) or error from error
    told = os.fstat(descriptor)
    if not stat.S_ISREG(told.st_mode) or told.st_nlink > 1:
        os.close(descriptor)
        raise _foreign(path)
    return descriptor


def _foreign(path: Path) -> InputError:
    return InputError(
        f"{path} is a link, or no file, where a new file was expected. Find out why, and remove it."
    )


def _owner(descriptor: int) -> str:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        # It has only just opened the file.
        return "another process"
