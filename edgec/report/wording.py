"""Formats names, counts and sizes, the same in every report."""

from __future__ import annotations

from edgec_runtime.device_end.printable import printable


def plain(text: str) -> str:
    """Return text on one line without control characters: names come from files."""
    return " ".join(printable(text).split())


def shortened(text: str, most: int) -> str:
    """Return text of at most `most` characters, without its middle if it is longer.

    The middle goes because the names of one model begin alike.
    """
    if len(text) <= most:
        return text
    # Half minus one in front leaves room for the ellipsis.
    half = most // 2
    return f"{text[: half - 1]}…{text[-half:]}"


def count(n: float) -> str:
    """Return a large number in three or four digits."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= factor:
            return f"{n / factor:.1f} {unit}"
    return str(n)


def size(n: int) -> str:
    """Return a number of bytes with a decimal unit."""
    if n >= 1e6:
        return f"{n / 1e6:.2f} MB"
    if n >= 1e3:
        return f"{n / 1e3:.1f} kB"
    return f"{n} B"


def percent(share: float) -> str:
    """Return whole percents, but never 0 % or 100 % for a share that is not exact."""
    # "100 %" in a report must mean all of it: one op on the CPU changes everything.
    if share in (0.0, 1.0) or share > 1:
        return f"{share:.0%}"
    if share >= 0.99:
        return f"{min(share, 0.9999):.2%}"
    if share < 0.01:
        return "<1%"
    return f"{share:.0%}"
