"""Disks that refuse, for real: the kernel says no. They start with space and open to writing."""

import abc
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

from sgno.io.commit import part

_NOBODY = 65534


class Disk(abc.ABC):
    """A folder whose disk can be filled, freed, and switched between read-only and writable."""

    def __init__(self, folder: Path):
        self.folder = folder

    @abc.abstractmethod
    def fill(self) -> None: ...

    @abc.abstractmethod
    def free(self) -> None: ...

    @abc.abstractmethod
    def forbid(self) -> None:
        """Make it read-only."""

    @abc.abstractmethod
    def allow(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


class Mounted(Disk):
    """A small file system in memory of its own. Needs the right to mount."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        _mount("-t", "tmpfs", "-o", "size=64m", "sgno-test", str(folder))
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with open(self._ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                return

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def forbid(self) -> None:
        _mount("-o", "remount,ro", str(self.folder))

    def allow(self) -> None:
        _mount("-o", "remount,rw", str(self.folder))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True)


class Limited(Disk):
    """Where mounting is not allowed: a limit on the size of files, and permissions that bind even root."""

    _size = resource.RLIM_INFINITY
    _is_root = os.getuid() == 0

    def fill(self) -> None:
        self._size, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        # Python ignores the signal that comes with it, so writes fail with EFBIG.
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    def forbid(self) -> None:
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        if self._is_root:
            os.setresuid(_NOBODY, _NOBODY, 0)

    def allow(self) -> None:
        if self._is_root:
            os.setresuid(0, 0, 0)
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def close(self) -> None:
        self.free()
        self.allow()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def may_mount() -> bool:
    folder = Path(tempfile.mkdtemp())
    try:
        Mounted(folder).close()
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        folder.rmdir()
    return True


def open_disk(kind: type[Disk] | None = None) -> Disk:
    """A disk of the kind that this machine allows, in a folder that anybody may reach."""
    folder = Path(tempfile.mkdtemp(prefix="sgno-disk-"))
    folder.chmod(0o755)
    return (kind or (Mounted if may_mount() else Limited))(folder)


def close_disk(disk: Disk) -> None:
    disk.close()
    shutil.rmtree(disk.folder)


def orphan(target: Path) -> Path:
    """What a killed process leaves of something that it was writing."""
    target.parent.mkdir(exist_ok=True)
    with part(target) as beside:
        (beside / "content").write_text("half")
        shutil.copytree(beside, target.parent / "kept")
    return (target.parent / "kept").rename(beside)
