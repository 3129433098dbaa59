"""The errors a person can meet: what is wrong, where, and one thing to do about it.

The compiler and the device tools raise this family too (`edgec.errors` re-exports it),
so every front door prints the same three lines and ends with `exit_code`.
"""

from __future__ import annotations

import difflib
from typing import Iterable, Optional

from .device_end.printable import printable


class EdgecError(Exception):
    """Base of all errors that are meant to be read.

    what: the fact, with the value that was seen.  at: node, file or segment.  hint: one
    action.
    """

    exit_code = 1

    def __init__(
        self, what: str, at: Optional[str] = None, hint: Optional[str] = None
    ) -> None:
        super().__init__(what, at, hint)
        self.what = what
        self.at = at
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"error: {self.what}"]
        if self.at:
            lines.append(f"  at: {self.at}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return printable("\n".join(lines))  # names come from files


class InputError(EdgecError):
    """Input or usage must change."""

    exit_code = 2


class UnsupportedError(EdgecError):
    """The input is valid, but edgec cannot do this with it."""

    exit_code = 2


class BundleError(EdgecError):
    """A bundle that is damaged, hostile, or of another version."""

    exit_code = 2


class DeviceError(EdgecError):
    """A device, delegate or link did not do its part."""


class ToolError(EdgecError):
    """A compiler, emulator or other program failed or is missing."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean "x"?` or nothing.  known: any iterable of strings."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
