"""Changes and reads files on a device, and explains errors of its disk.

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
    """A refusal, which is sent to the host as an error.

    Attributes:
        kind: "input", "bundle" or "device", the class of the error
            (edgec_runtime/errors.py)
        what: the reason
        hint: one action for the person at the host
    """

    def __init__(self, kind: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.hint = hint


class Disk:
    """Every change of the file system, one method each.

    Tests replace it by a disk that fails.  Nobody else can write to its new files and
    folders, whatever the umask is.
    """

    def mkdir(self, path: str) -> None:
        """Make a folder, unless it exists."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)

    def write(self, path: str, offset: int, data: bytes, mode: int = 0o644) -> None:
        """Cut a file off at `offset`, and append `data`; make the file if necessary."""
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
        """Wait until a file's bytes, or a folder's entries, are on the disk."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            # Later reads then read the disk, not the page cache.
            with contextlib.suppress(OSError, AttributeError):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Rename a path atomically; replace a file or link at `new`."""
        os.rename(old, new)

    def link(self, target: str, path: str) -> None:
        """Make a symbolic link to `target`."""
        os.symlink(target, path)

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder and its content, if it exists."""
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)


def make_folder(disk: Disk, path: str, durable: bool = True) -> None:
    """Make a folder and its parents.

    Args:
        disk: changes the file system
        path: the folder
        durable: whether to wait until they are on the disk, if the caller does not use
            sync_all() later
    """
    # The path has to be absolute, since the parent of a relative path may be "".
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
    """Replace a file atomically: after an interruption it has the old or the new bytes."""
    aside = f"{path}.new"
    disk.remove(aside)
    disk.write(aside, 0, data)
    disk.sync(aside)

    disk.rename(aside, path)
    disk.sync(os.path.dirname(path))


def sync_all(disk: Disk, folder: str) -> None:
    """Wait until a folder and every file and folder in it are on the disk."""

    # Bottom up, so that a folder names only files that are on the disk.
    for below, _, names in os.walk(folder, topdown=False):
        for name in names:
            disk.sync(os.path.join(below, name))
        disk.sync(below)


def opened(path: str, most: int = 1 << 62) -> BinaryIO:
    """Open a plain file for reading.

    Args:
        path: the file
        most: its largest allowed size in bytes

    Raises:
        OSError: it is not a plain file, or is larger
    """
    return _opened(path, most, os.O_NOFOLLOW)


def _opened(path: _Path, most: int, flags: int) -> BinaryIO:
    """Open a plain file for reading, with more flags of os.open.

    Others are refused: a pipe without a writer would hang, a device may have no end.
    """
    # The host reads files with this, too, and its system may lack a flag.
    for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        # The open file is checked, since the path could be another file by now.
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        if status.st_size > most:
            raise OSError(
                errno.EFBIG,
                f"it has {status.st_size} bytes, more than {most}",
                str(path),
            )
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def given(path: _Path, most: int) -> bytes:
    """Return the content of a file that a user has named, which may be a link.

    Args:
        path: the file
        most: its largest allowed size in bytes

    Raises:
        OSError: it cannot be read, or is larger
    """
    with _opened(path, most, 0) as f:
        data = f.read(most + 1)
    if len(data) > most:  # the file grows, or is in /proc, where sizes are 0
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def read(path: str, offset: int = 0, length: int = 1 << 62) -> Iterator[bytes]:
    """Read a range of a file in blocks."""
    with opened(path) as f:
        f.seek(offset)
        while length > 0:
            block = f.read(min(length, _BLOCK))
            if not block:
                return
            length -= len(block)
            yield block


def digest(path: str, offset: int = 0, length: int = 1 << 62) -> str:
    """Return the sha256 of a range of a file, up to a read error or its end."""
    sha256 = hashlib.sha256()
    with contextlib.suppress(OSError):
        for block in read(path, offset, length):
            sha256.update(block)
    return sha256.hexdigest()


def plain(path: str, folder: bool = False) -> bool:
    """Return whether a path is a plain file, or a folder, and not a link to one."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)


def keep_to_ourselves(*paths: str) -> None:
    """Remove the right of group and others to write to files and folders.

    Files of an earlier version may have it, since that relied on the umask.
    """
    for path in paths:
        # A missing file, or one of another user, is left alone.
        with contextlib.suppress(OSError):
            mode = os.lstat(path).st_mode

            # A sticky folder such as /tmp is for all users on purpose.
            is_private = stat.S_ISREG(mode) or (
                stat.S_ISDIR(mode) and not mode & stat.S_ISVTX
            )
            if is_private and mode & 0o022:
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
