"""Makes text from outside safe for a terminal: names in files, output of programs and
devices.

This is part of the device end, see wire.py.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text with a space for every character without a glyph, except line ends.

    Such characters could steer a terminal: control characters, changes of the direction
    of writing, and lone surrogates of UTF-16.
    """
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)
