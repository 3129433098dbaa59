"""The errors for people: one family for the compiler, devices and the runtime."""

import shlex
from pathlib import Path

from edgec_runtime.errors import (
    BundleError,
    DeviceError,
    EdgecError,
    EdgecWarning,
    InputError,
    ToolError,
    UnsupportedError,
    did_you_mean,
)


class InternalError(AssertionError):
    """A bug of edgec: exit code 70 and a request to report it."""

    # Not an EdgecError: a caller that catches those must not hide a bug.


def shell_word(path: Path | str) -> str:
    """Return a path as one word of a command, which no program takes for an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def check_folder(folder: Path, at: str) -> None:
    """Raise InputError unless a folder is there, with the command that makes it.

    at: the option or the file that named it
    """
    if folder.is_dir():
        return
    # `mkdir -p` would fail where a part of the path is a file, or a link to nothing.
    for part in (folder, *folder.parents):
        if part.is_symlink() or part.exists():
            if not part.is_dir():
                raise InputError(f"{part} is not a folder", at, "give another path")
            break
    raise InputError(
        f"the folder {folder} does not exist",
        at,
        f"mkdir -p {shell_word(folder)}",
    )


__all__ = [
    "BundleError",
    "DeviceError",
    "EdgecError",
    "EdgecWarning",
    "InputError",
    "InternalError",
    "ToolError",
    "UnsupportedError",
    "check_folder",
    "did_you_mean",
    "shell_word",
]
