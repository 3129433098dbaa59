"""Writes folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgec_runtime.bundle.whole import umask

from edgec.errors import InputError


def check_free(folder: Path, option: str) -> None:
    """Raise InputError unless a folder can be made at `folder`, or an empty one is there.

    option: named the folder, for the message.
    """
    if not folder.parent.is_dir():
        raise InputError(
            f"the folder {folder.parent} does not exist",
            option,
            f"mkdir -p {folder.parent}",
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"the folder {folder} is not empty", option, "give the name of a new folder"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder", option, "give the name of a new folder"
        )


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write to, which becomes `path` when the block ends.

    If the block fails the folder is removed with all that is in it. Raises InputError
    where the operating system refuses.
    """
    aside: Path | None = None
    try:
        # Beside its place, so that the rename stays within one file system.
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        yield aside
        # mkdtemp makes a private folder; the result shall be as mkdir makes it.
        aside.chmod(0o777 & ~umask())
        # An empty folder is replaced; one that was filled meanwhile is not.
        aside.replace(path)
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", at=str(path), hint="check the folder"
        ) from e
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
