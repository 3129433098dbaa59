"""Writes files atomically: after an interruption the old file is unchanged."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Iterator, Optional


@contextlib.contextmanager
def atomic_write(path: Path, mode: Optional[int] = None) -> Iterator[Path]:
    """Return the path of a temporary file, which replaces `path` when the block ends.

    If the block fails the file is removed. Its name is random, so that no other user can
    have put a link there, and has the same suffix, by which some libraries choose the
    format. If `path` is not a plain file, for example /dev/null, /dev/stdout or a pipe,
    it is not replaced: the content is written into it.

    Args:
        path: the file
        mode: its permissions; None: those of a new file
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
            aside = Path(folder, path.name)
            yield aside
            _pour(aside, path)
        return
    handle, name = tempfile.mkstemp(
        prefix=f".{path.stem}.", suffix=path.suffix, dir=str(path.parent)
    )
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        # mkstemp makes private files.
        aside.chmod(0o644 & ~umask() if mode is None else mode)
        aside.replace(path)
    except BaseException as e:
        with contextlib.suppress(OSError):
            aside.unlink()
        # A full disk is noticed by an open file, of which nobody knows the name.
        if isinstance(e, OSError) and e.errno == errno.ENOSPC and not e.filename:
            raise OSError(e.errno, e.strerror, str(path)) from e
        raise


def _pour(source: Path, path: Path) -> None:
    """Raise OSError for a disk, and for a pipe without a reader, which would block."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0)), "wb"
    ) as into:
        mode = os.fstat(into.fileno()).st_mode
        if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)):
            raise OSError(errno.EINVAL, "it is neither a file nor a pipe", str(path))
        os.set_blocking(into.fileno(), True)
        with source.open("rb") as found:
            shutil.copyfileobj(found, into)


def umask() -> int:
    """Return the permissions that this process takes from new files and folders."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
