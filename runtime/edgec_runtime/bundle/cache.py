"""The user's private cache of libraries, programs, weights and the plugin."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from pathlib import Path
from typing import Optional

from ..errors import EdgecError
from .atomic_write import atomic_write

CODE = ("bin/", "lib/")  # folders of a bundle that hold what is executed


def cache_dir(*parts: str) -> Path:
    """Return a folder of the cache, which is made if necessary, private to this user.

    The cache is `$EDGEC_CACHE`, `$XDG_CACHE_HOME/edgec` or `~/.cache/edgec`. If that
    folder exists it keeps its permissions; the folders in it are private.

    Raises EdgecError if other users can change its content, or if it cannot be made.
    """
    base = os.environ.get("EDGEC_CACHE")
    if not base:
        base = os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "edgec"
        )
    # The path is absolute, since programs are started in other folders.
    folder = Path(os.path.abspath(base))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for part in ("", *parts):
            folder = folder / part
            folder.mkdir(mode=0o700, exist_ok=True)
            # Links are followed, since one of this user's may lead elsewhere.
            info = folder.stat()
            is_readable = info.st_mode & 0o077 and not info.st_mode & 0o022
            if part and info.st_uid == os.getuid() and is_readable:
                # Others can read the folder, which was not made by this version.
                folder.chmod(0o700)
            only_ours(folder.resolve())
    except OSError as e:
        raise EdgecError(
            f"cannot make the cache folder {folder}: {e.strerror}",
            hint="set EDGEC_CACHE to a folder you can write to",
        ) from e
    return folder


def kept(name: str, sha256: str) -> Optional[Path]:
    """Return a file in the cache: <cache>/files/<sha256>/<its last name>.

    None if there is none, or if it is another user's or has another hash.
    """
    folder = cache_dir("files") / sha256
    # A look into the cache leaves no empty folder behind.
    if not folder.exists():
        return None
    only_ours(folder)
    path = folder / name.rsplit("/", 1)[-1]
    return path if _intact(path, sha256) else None


def keep(name: str, data: bytes) -> Path:
    """Write a file into the cache, executable if it is a bundle's code; return its path.

    Raises OSError, e.g. for a full disk; no part of the file is left then.
    """
    folder = cache_dir("files", hashlib.sha256(data).hexdigest())
    only_ours(folder)
    path = folder / name.rsplit("/", 1)[-1]

    # Read-only, since a running program must not change; a process that has the old
    # library open still has its inode.
    with atomic_write(path, 0o500 if name.startswith(CODE) else 0o400) as aside:
        aside.write_bytes(data)
    return path


def only_ours(folder: Path) -> None:
    """Raise EdgecError for a folder in which another user could replace programs.

    The hint does not remove anything, since EDGEC_CACHE may be any folder.
    """
    info = folder.lstat()
    is_own = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
    if not is_own or info.st_mode & 0o022:
        hint = "set EDGEC_CACHE to a folder of your own"
        # A folder with the sticky bit, as /tmp has it, is meant for everybody.
        if is_own and not info.st_mode & stat.S_ISVTX:
            # Its files are used only while they have the hash of their bundle.
            hint = f"chmod go-w {shlex.quote(str(folder))}"
        raise EdgecError(
            f"the cache folder {folder} can be changed by others", hint=hint
        )


def _intact(path: Path, sha256: str) -> bool:
    try:
        # A link could be changed to lead to another file after the check.
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return False
