"""The private folder of files: libraries, programs, weights and the plugin."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import tempfile
from pathlib import Path
from typing import Optional

from ..errors import EdgecError

CODE = ("bin/", "lib/")  # folders of a bundle that hold what is executed


def cache_dir(*parts: str) -> Path:
    """A folder of `$EDGEC_CACHE`, `$XDG_CACHE_HOME/edgec` or `~/.cache/edgec`; made,
    and private to this user.

    Raises EdgecError where others could read or change what is in it, or where it
    cannot be made.
    """
    base = os.environ.get("EDGEC_CACHE")
    if not base:
        base = os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "edgec"
        )
    # Absolute, since programs are started in other folders.
    folder = Path(os.path.abspath(base))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for part in ("", *parts):
            folder = folder / part
            folder.mkdir(mode=0o700, exist_ok=True)
            # Through links: one of ours may lead elsewhere.
            info = folder.stat()
            if (
                info.st_uid == os.getuid()
                and info.st_mode & 0o077
                and not info.st_mode & 0o022
            ):
                # Others could read it: an older version, or a person, made it.
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

    None where the cache has none that is ours and still has its hash.
    """
    folder = cache_dir("files") / sha256
    # A look into the cache leaves no empty folder behind.
    if not folder.exists():
        return None
    only_ours(folder)
    path = folder / name.rsplit("/", 1)[-1]
    return path if _intact(path, sha256) else None


def keep(name: str, data: bytes) -> Path:
    """Writes a file to where `kept` finds it; executable if it is a bundle's code.

    Raises OSError, as for a full disk; nothing of the file is left then.
    """
    folder = cache_dir("files", hashlib.sha256(data).hexdigest())
    only_ours(folder)
    path = folder / name.rsplit("/", 1)[-1]

    # In the same folder, so that the rename is atomic.
    handle, aside = tempfile.mkstemp(dir=str(folder))
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)

        # Read-only: a program that is running must not change.
        os.chmod(aside, 0o500 if name.startswith(CODE) else 0o400)
        # A process that has the old library open keeps its inode.
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    return path


def only_ours(folder: Path) -> None:
    """Raise EdgecError for a folder in which another user could replace our programs.

    The hint removes nothing: EDGEC_CACHE may lead to a folder that is not ours.
    """
    info = folder.lstat()
    is_own = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()
    if not is_own or info.st_mode & 0o022:
        hint = "set EDGEC_CACHE to a folder of your own"
        if is_own:
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
