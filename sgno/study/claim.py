"""Who is working on a job, when several processes or studies share a store."""

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from sgno.files import make_folder

try:
    import fcntl
except ImportError:  # Windows has no flock: see the docstring of `claim`.
    fcntl = None


@contextlib.contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Hold `path` for as long as the block lasts, if nobody else does.

    The claim is a lock of the kernel on an open file, not the file's existence or its date. So it ends with
    the process, however that died, and needs no clock: a killed study leaves nothing to wait for. The text
    in the file (process, host) is for people only.

    Between machines the lock works on file systems that pass it on (NFS 4 and later versions of NFS 3, GPFS,
    Lustre mounted with `flock`). Where a file system or platform has no locks every claim is granted: two
    studies may then compute the same job at once. That costs time, never a result: checkpoints and results
    appear whole, runs of one job are equal, and the first to finish is kept.

    **Yields:** whether the claim was granted.
    """
    make_folder(path.parent)
    descriptor = _lock(path)
    if descriptor is None:
        yield False
        return
    try:
        owner = {"pid": os.getpid(), "host": platform.node()}
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(owner).encode())
        yield True
    finally:
        # Removed while still held, so that whoever opens the path next makes a new file.
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _lock(path: Path) -> int | None:
    """An open file that is locked and still the one at `path`, or None if another holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            # No locks on this file system.
            return descriptor
        if _is_current(descriptor, path):
            return descriptor
        # The owner before us removed the file between our opening and locking it.
        os.close(descriptor)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
