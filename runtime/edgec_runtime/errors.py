"""The errors that a person can meet: a fact, a place, and one thing to do about it.

The compiler and the device tools raise this family, too (`edgec.errors` re-exports it),
so every program prints the same three lines and ends with `exit_code`.
"""

from __future__ import annotations

import difflib
from typing import Iterable, Optional

from .device_end.printable import printable


class EdgecError(Exception):
    """Base of all errors that are meant to be read.

    Attributes:
        what: the fact, with the wrong value
        at: node, file or segment
        hint: one action
    """

    exit_code = 1

    def __init__(
        self, what: str, at: Optional[str] = None, hint: Optional[str] = None
    ) -> None:
        """Hold the three lines."""
        # All arguments, so that the error can be pickled between processes.
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
        # Names come from files, and could hold control characters of a terminal, or a
        # line that reads as a hint of edgec's: further lines stand farther right.
        return "\n".join(printable(line).replace("\n", "\n    ") for line in lines)


class EdgecWarning(RuntimeWarning):
    """Something works in another way than was hoped for; meant to be read, too."""


class InputError(EdgecError):
    """Input or usage must change."""

    exit_code = 2


class UnsupportedError(EdgecError):
    """The input is valid, but edgec cannot do this with it."""

    exit_code = 2


class BundleError(EdgecError):
    """A bundle is damaged, hostile, or of another version."""

    exit_code = 2


class DeviceError(EdgecError):
    """A device, delegate or link did not do its part."""


class ToolError(EdgecError):
    """A compiler, emulator or other program failed or is missing."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean "x"?` for the known word nearest to a word, else "".

    Small and capital letters are the same.
    """
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""
