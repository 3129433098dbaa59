"""Files that a report is written to: refused before the work is done, and written as a
whole or not at all.
"""

from __future__ import annotations

from pathlib import Path

from edgec_runtime.bundle.whole import whole
from edgec_runtime.device_end.printable import printable

from edgec.errors import InputError


def check_place(path: Path, option: str) -> None:
    """Raises InputError where no file can be written. option: that named it, for
    messages.
    """
    if not path.parent.is_dir():
        raise InputError(
            f"the folder {path.parent} does not exist",
            option,
            f"mkdir -p {path.parent}",
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder", option, "give the name of a file")


def write_whole(path: Path, text: str) -> None:
    """Printable text; aside, and renamed when whole.

    Raises InputError when that fails.
    """
    try:
        with whole(path) as aside:
            aside.write_text(printable(text), encoding="utf-8")
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", at=str(path), hint="check the folder"
        ) from e
