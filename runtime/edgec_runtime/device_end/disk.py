"""The disk of a device: its changes, reading from it, and its failures.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from typing import BinaryIO, Iterator, Union

_BLOCK = 1 << 20
_Path = Union[str, "os.PathLike[str]"]


class Refused(Exception):
    """A refusal for the host.

    Attributes:
        kind: "input", "bundle" or "device", the class of the error
            (edgec_runtime/errors.py)
    """

    def __init__(self, kind: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.hint = hint


class Disk:
    """Every change of the file system, one method each, for tests to fail or undo.

    Nobody else can write to the files and folders made here, whatever the umask is.
    """

    def mkdir(self, path: str) -> None:
        """One folder; nothing happens where it is there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        """Cuts the file at `offset` and adds `data` there.

        The file is made if it is missing.
        """
        fd = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, mode
        )
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
            # so that reading back reads the disk, not the memory
            with contextlib.suppress(OSError, AttributeError):
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
    """A folder and its parents.  durable: they are on the disk when it returns; else
    sync_all() sees to it.
    """
    # Absolute, since the parent of a relative path may be "".
    missing = []
    path = os.path.join(os.getcwd(), path)
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

    # Files before the folders that name them.
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            disk.sync(os.path.join(below, name))
        disk.sync(below)


def opened(path: str, most: int = 1 << 62) -> BinaryIO:
    """Return an opened plain file; never wait for another kind of file.

    Args:
        most: the most bytes it may have

    Raises:
        OSError: it is no plain file, or has more
    """
    return _opened(path, most, os.O_NOFOLLOW)


def _opened(path: _Path, most: int, flags: int) -> BinaryIO:
    """Refuse pipes, which would hang without a writer, and files without an end."""
    # which not every system has that a host may be
    for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        # Of the opened file: its name could lead elsewhere by now.
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        if found.st_size > most:
            raise OSError(
                errno.EFBIG,
                f"it has {found.st_size} bytes, more than {most}",
                str(path),
            )
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def given(path: _Path, most: int) -> bytes:
    """Return the content of a file that a person names, which may be a link.

    Raises:
        OSError: it cannot be read, or has more bytes
    """
    with _opened(path, most, 0) as f:
        data = f.read(most + 1)
    if len(data) > most:  # it grows, or is one of /proc, which say no size
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def read(path: str, offset: int = 0, length: int = 1 << 62) -> Iterator[bytes]:
    """A range of a file in blocks."""
    with opened(path) as f:
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


def keep_to_ourselves(*paths: str) -> None:
    """Take the right to write to files and folders from everybody else.

    An earlier version left it to the umask. Devices and folders for everybody, as /tmp,
    stay as they are.
    """
    for path in paths:
        with contextlib.suppress(OSError):  # there is none, or it is another's
            mode = os.lstat(path).st_mode

            # A sticky folder such as /tmp is everybody's on purpose.
            ours = stat.S_ISREG(mode) or (
                stat.S_ISDIR(mode) and not mode & stat.S_ISVTX
            )
            if ours and mode & 0o022:
                os.chmod(path, stat.S_IMODE(mode) & ~0o022)


_ODD = "something else stands in its place on the device: ls -l ~/.edgec"
_TROUBLE = {
    errno.ENOSPC: "free some space on the device: df -h ~",
    errno.EDQUOT: "free some space on the device: quota",
    errno.EROFS: "sudo mount -o remount,rw / on the device; "
    "an SD card that failed goes read-only by itself",
    errno.EACCES: "check who owns the folder on the device: ls -ld ~/.edgec",
    errno.EIO: "the disk of the device has errors: dmesg",
    **dict.fromkeys(
        (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.EINVAL), _ODD
    ),
}


def refusal(error: OSError) -> Refused:
    """Return the refusal for an error of the disk."""
    where = f" ({error.filename})" if error.filename else ""
    hint = _TROUBLE.get(error.errno or 0, "look at the device's log: dmesg")
    return Refused("device", f"{error.strerror or error}{where}", hint)
