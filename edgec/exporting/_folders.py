"""Writes folders that appear whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgec_runtime.bundle.atomic_write import umask

from edgec.errors import InputError, check_folder


def check_free(folder: Path, option: str) -> None:
    """Raise InputError unless a folder can be made at `folder`, or an empty one is there.

    option: named the folder, for the message.
    """
    check_folder(folder.parent, option)
    # A new folder would take the place of the link, and not of the folder behind it.
    if folder.is_symlink():
        raise InputError(f"{folder} is a link", option, "give the name of a new folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"the folder {folder} is not empty", option, "give the name of a new folder"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder", option, "give the name of a new folder"
        )


@contextmanager
def whole_folders(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield folders to write to, which become `paths` when the block ends, all or none.

    If the block or one of them fails, all are removed with all that is in them. Raises
    InputError where the operating system refuses.
    """
    asides: list[Path] = []
    written: list[Path] = []
    empty = [path for path in paths if path.is_dir()]
    path = paths[0]
    try:
        for path in paths:
            # Beside its place, so that the rename stays within one file system.
            aside = tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent)
            asides.append(Path(aside))
        yield asides
        for path, made in zip(paths, asides, strict=True):
            # mkdtemp makes a private folder; the result shall be as mkdir makes it.
            made.chmod(0o777 & ~umask())
            # An empty folder is replaced; one that was filled meanwhile is not.
            made.replace(path)
            written.append(path)
        written.clear()
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", at=str(path), hint="check the folder"
        ) from e
    finally:
        for folder in (*asides, *written):
            shutil.rmtree(folder, ignore_errors=True)
            # A person's own empty folder is there again.
            if folder in empty:
                folder.mkdir(exist_ok=True)
