"""How threads share a row of windows times panels of channels: csrc/ek_base.h,
ek_share_of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

_EQUAL = 1.03
"""What the largest part may be, of an equal share."""

_CHANNELS_A_PIXEL = 7


def shares_channels(pixels: int, channels: int) -> int:
    """Whether (1) threads share the channels of a depthwise convolution, not its rows
    (0), to read what each wrote.

    The pointwise convolution before it, which reads a sixth of its channels, has more
    weights than image and result where there are so many channels a pixel, and threads
    share its channels then (`Walk` of gemm_s8 and gemm_f32).
    """
    return int(channels > _CHANNELS_A_PIXEL * pixels)


def largest_part(total: int, block: int, panels: int, parts: int) -> int:
    """Windows times panels of the largest part, where threads share passes: blocks of
    so many windows times panels.
    """
    blocks = -(-total // block)
    ends = [blocks * panels * part // parts for part in range(parts + 1)]
    missing = blocks * block - total
    full = (blocks - 1) * panels  # of the last block, whose passes come last
    return max(
        (b - a) * block - missing * max(0, b - max(a, full))
        for a, b in itertools.pairwise(ends)
    )


def equal_blocks(total: int, blocks: Iterable[int], panels: int, parts: int) -> int:
    """The first of some lengths of a block by which parts get as many windows times
    panels; else the most equal.
    """
    largest: dict[int, int] = {}
    for n in blocks:
        if n not in largest:
            largest[n] = largest_part(total, n, panels, parts)
            if largest[n] * parts <= _EQUAL * total * panels:
                return n
    return min(largest, key=largest.__getitem__)
