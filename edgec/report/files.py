"""Writes report files: bad paths are refused early, and no file is ever partial."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgec_runtime.bundle.atomic_write import atomic_write
from edgec_runtime.device_end.printable import printable

from edgec.errors import InputError, check_folder


def check_place(path: Path, option: str) -> None:
    """Raise InputError if no file can be written at `path`.

    `option` is the command-line option that named the path, for the message.
    """
    check_folder(path.parent, option)
    # Replacing a folder fails only at the end, after minutes of work.
    if path.is_dir():
        raise InputError(f"{path} is a folder", option, "give the name of a file")


def check_places(places: Mapping[str, Path | None]) -> None:
    """Raise InputError where a file cannot be written, before minutes of work.

    places: the files by the names of their options; None: not wanted.
    """
    files = {name: path for name, path in places.items() if path is not None}
    for name, path in files.items():
        check_place(path, f"--{name}")

    # The second file would replace the first.
    paths = [*files.values()]
    repeated = [name for name, path in files.items() if paths.count(path) > 1]
    if repeated:
        options = " and ".join(f"--{name}" for name in repeated)
        raise InputError(
            f"{options} name one file",
            at=str(files[repeated[0]]),
            hint="give each its own",
        )


def write_whole(path: Path, text: str) -> None:
    """Write the printable part of `text` to a temporary file and rename it to `path`.

    Raises InputError if the operating system refuses.
    """
    # Names in a report come from files, and may have any characters.
    write_bytes(path, printable(text).encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write data to a temporary file and rename it to `path`.

    Raises InputError if the operating system refuses.
    """
    try:
        with atomic_write(path) as temporary:
            temporary.write_bytes(data)
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", at=str(path), hint="check the folder"
        ) from e
