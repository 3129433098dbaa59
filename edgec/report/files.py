"""Writes report files: bad paths are refused early, and no file is ever partial."""

from __future__ import annotations

from pathlib import Path

from edgec_runtime.bundle.whole import whole
from edgec_runtime.device_end.printable import printable

from edgec.errors import InputError


def check_place(path: Path, option: str) -> None:
    """Raise InputError if no file can be written at `path`.

    `option` is the command-line option that named the path, for the message.
    """
    if not path.parent.is_dir():
        raise InputError(
            f"the folder {path.parent} does not exist",
            option,
            f"mkdir -p {path.parent}",
        )
    # Replacing a folder fails only at the end, after minutes of work.
    if path.is_dir():
        raise InputError(f"{path} is a folder", option, "give the name of a file")


def write_whole(path: Path, text: str) -> None:
    """Write the printable part of `text` to a temporary file and rename it to `path`.

    Raises InputError if the operating system refuses.
    """
    try:
        # Names in a report come from files, and may have any characters.
        with whole(path) as temporary:
            temporary.write_text(printable(text), encoding="utf-8")
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", at=str(path), hint="check the folder"
        ) from e
