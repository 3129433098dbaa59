"""Text from outside, for people: names out of files, what programs and devices say.

This is part of the device end, see wire.py.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """With a space for every character but a line's end that is none to be seen:
    nothing of it steers a terminal.

    Those are control characters, but also what turns the direction of writing, and
    halves of a pair of UTF-16.
    """
    return "\n".join(
        line if line.isprintable() else _spaced(line) for line in text.split("\n")
    )


def _spaced(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)
