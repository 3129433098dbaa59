"""How names, counts and sizes are written, the same in every report."""

from __future__ import annotations

from edgec_runtime.device_end.printable import printable


def plain(text: str) -> str:
    """On one line, without what is no character to be seen: names come from files."""
    return " ".join(printable(text).split())


def shortened(text: str, most: int) -> str:
    """Without its middle, where it is long: names of one model begin alike."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"


def count(n: float) -> str:
    """A large number in three or four digits."""
    for unit, one in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= one:
            return f"{n / one:.1f} {unit}"
    return str(n)


def size(n: int) -> str:
    """A number of bytes."""
    if n >= 1e6:
        return f"{n / 1e6:.2f} MB"
    return f"{n / 1e3:.1f} kB" if n >= 1e3 else f"{n} B"


def percent(share: float) -> str:
    """Whole percents, but neither 0 nor 100 for what is only nearly so."""
    if share in (0.0, 1.0) or share > 1:
        return f"{share:.0%}"
    if share >= 0.99:
        return f"{min(share, 0.9999):.2%}"
    return "<1%" if share < 0.01 else f"{share:.0%}"
