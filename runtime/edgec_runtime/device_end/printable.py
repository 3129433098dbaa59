"""Text from outside, for people: names out of files, what programs and devices say.

This is part of the device end, see wire.py.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with a space for every character without a glyph but line ends.

    So no text steers a terminal: these are control characters, but also changes of the
    direction of writing, and halves of a pair of UTF-16.
    """
    return "\n".join(
        line if line.isprintable() else _spaced(line) for line in text.split("\n")
    )


def _spaced(line: str) -> str:
    return "".join(c if c.isprintable() else " " for c in line)
