"""The disk of a device: every change of it, what is read of it, and what to tell when it refuses.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from typing import Iterator

_BLOCK = 1 << 20


class Refused(Exception):
    """What the host is told.  kind: "input", "bundle" or "device", whose errors they are (edgec_runtime/errors.py)."""

    def __init__(self, kind: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.kind, self.what, self.hint = kind, what, hint


class Disk:
    """Every change of the file system, one method each, so that a test can fail or undo any of them.

    Nothing that is made here can be written by others, whatever the umask is.
    """

    def mkdir(self, path: str) -> None:
        """One folder; nothing happens where it is there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        """Cuts the file at `offset` and adds `data` there.  The file is made if it is missing."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            os.ftruncate(fd, offset)
            os.lseek(fd, offset, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def sync(self, path: str) -> None:
        """Waits until a file's bytes, or a folder's entries, are on the disk."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            with contextlib.suppress(OSError, AttributeError):  # so that reading back reads the disk, not the memory
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Atomic.  A file or link at `new` is replaced."""
        os.rename(old, new)

    def link(self, target: str, path: str) -> None:
        """A symbolic link."""
        os.symlink(target, path)

    def remove(self, path: str) -> None:
        """A file, link or folder; nothing happens where there is none."""
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def make_folder(disk: Disk, path: str, durable: bool = True) -> None:
    """A folder and its parents.  durable: they are on the disk when it returns; else sync_all() sees to it."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        disk.mkdir(folder)
        if durable:
            disk.sync(os.path.dirname(folder))


def replace(disk: Disk, path: str, data: bytes) -> None:
    """A file, whole or as it was: written aside, renamed, and its folder synced."""
    aside = f"{path}.new"
    disk.remove(aside)
    disk.write(aside, 0, data)
    disk.sync(aside)
    disk.rename(aside, path)
    disk.sync(os.path.dirname(path))


def sync_all(disk: Disk, folder: str) -> None:
    """Every file and folder below, and the folder itself."""
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            disk.sync(os.path.join(below, name))
        disk.sync(below)


def read(path: str, offset: int = 0, length: int = 1 << 62) -> Iterator[bytes]:
    """A range of a file in blocks."""
    with open(path, "rb") as f:
        f.seek(offset)
        while length > 0:
            block = f.read(min(length, _BLOCK))
            if not block:
                return
            length -= len(block)
            yield block


def digest(path: str, offset: int = 0, length: int = 1 << 62) -> str:
    """sha256 of a range of a file; of nothing where it cannot be read."""
    found = hashlib.sha256()
    with contextlib.suppress(OSError):
        for block in read(path, offset, length):
            found.update(block)
    return found.hexdigest()


def plain(path: str, folder: bool = False) -> bool:
    """Whether there is a file, or a folder, and not a link to one."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)


_TROUBLE = {
    errno.ENOSPC: "free some space on the device: df -h ~",
    errno.EDQUOT: "free some space on the device: quota",
    errno.EROFS: "sudo mount -o remount,rw / on the device; an SD card that failed goes read-only by itself",
    errno.EACCES: "check who owns the folder on the device: ls -ld ~/.edgec",
    errno.EIO: "the disk of the device has errors: dmesg",
}


def refusal(error: OSError) -> Refused:
    """What to tell about a disk that refuses."""
    where = f" ({error.filename})" if error.filename else ""
    hint = _TROUBLE.get(error.errno or 0, "look at the device's log: dmesg")
    return Refused("device", f"{error.strerror or error}{where}", hint)
