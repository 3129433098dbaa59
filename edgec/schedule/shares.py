"""How threads share windows times panels of channels (ek_share_of in csrc/ek_base.h)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

MAX_IMBALANCE = 1.03
"""A block length is good if the largest part is at most this many equal shares."""

MIN_CHANNELS_A_PIXEL = 7
"""Threads share the channels of a depthwise convolution if it has more a pixel."""


def shares_channels(pixels: int, channels: int) -> int:
    """Return 1 if threads share the channels of a depthwise convolution, 0 for rows.

    Each thread should read what it wrote itself. The 1x1 convolution before it, which
    typically expands its channels sixfold, has more weights than image and result where
    there are so many channels a pixel, and threads share its channels then
    (`GemmSchedule.by_panels`, `Blocking.by_panel`).
    """
    return int(channels > MIN_CHANNELS_A_PIXEL * pixels)


def largest_part(total: int, block: int, panels: int, parts: int) -> int:
    """Return the windows times panels of the largest part.

    Threads share the passes, each of one block of windows by one panel.

    Args:
        total: windows
        block: windows of a block
        panels: panels
        parts: threads
    """
    blocks = -(-total // block)
    ends = [blocks * panels * part // parts for part in range(parts + 1)]

    # The passes of the last block, which may have fewer windows, come last.
    missing = blocks * block - total
    first_short = (blocks - 1) * panels
    sizes: list[int] = []
    for begin, end in itertools.pairwise(ends):
        short_passes = max(0, end - max(begin, first_short))
        sizes.append((end - begin) * block - missing * short_passes)
    return max(sizes)


def equal_blocks(total: int, blocks: Iterable[int], panels: int, parts: int) -> int:
    """Return the first length of a block by which parts are about equal.

    If none is good, the one whose largest part is smallest.
    """
    largest: dict[int, int] = {}
    for n in blocks:
        # Callers repeat lengths, and each costs a look at all parts.
        if n in largest:
            continue
        largest[n] = largest_part(total, n, panels, parts)
        if largest[n] * parts <= MAX_IMBALANCE * total * panels:
            return n
    return min(largest, key=largest.__getitem__)
