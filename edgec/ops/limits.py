"""What support rules share: sizes between the largest that was seen mapped and the
smallest that was refused.
"""

from __future__ import annotations

from edgec.ir import TensorType, Uncertain

ONE_ROW_MAPPED = 185_094
"""Elements of the largest tensor of one row that was seen mapped: [1,2034,91], the head
of a detector of 320 pixels.
"""


def within(size: int, mapped: int, refused: int | None, seen: str) -> str | None:
    """What a rule on a size answers: None up to the largest mapped, `seen` from the
    smallest refused on (None: none is known), and in the gap that nobody can tell.
    """
    if size <= mapped:
        return None
    return seen if refused is not None and size >= refused else Uncertain(seen)


def one_row(t: TensorType) -> bool:
    """Whether the compiler sees an image of one row and several pixels: [1, pixels,
    channels].
    """
    rows = t.shape[-3] if t.rank > 2 else 1
    return rows == 1 and t.rank > 1 and min(t.shape[-2:]) > 1
