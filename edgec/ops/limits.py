"""Sizes in support rules, between the largest tensor seen mapped by the Edge TPU
compiler and the smallest one seen refused.
"""

from __future__ import annotations

from edgec.ir import TensorType, Uncertain

ONE_ROW_MAPPED = 185_094
"""Elements of the largest tensor of one row seen mapped: [1,2034,91], the head of a
detector of 320 pixels.
"""


def size_evidence(
    size: int, mapped: int, refused: int | None, evidence: str
) -> str | None:
    """Return the answer of a support rule on a size.

    mapped: the largest size seen mapped. refused: the smallest one seen refused, None
    when none is known. evidence: the size in words. Returns None up to `mapped`,
    `evidence` from `refused` on, and an `Uncertain` of it between, where it is unknown
    whether the compiler maps the op.
    """
    if size <= mapped:
        return None

    if refused is not None and size >= refused:
        return evidence

    return Uncertain(evidence)


def one_row(t: TensorType) -> bool:
    """Return whether the compiler sees an image of one row and several pixels.

    Such a tensor is [1, pixels, channels].
    """
    if t.rank < 2:
        return False

    rows = t.shape[-3] if t.rank > 2 else 1

    return rows == 1 and min(t.shape[-2:]) > 1
