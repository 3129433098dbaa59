"""Sizes of published networks, which several programs here rebuild.

A stage is (expansion, channels, blocks, stride of the first block, kernel).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Stage = tuple[int, int, int, int, int]

MOBILENET_V2: Sequence[Stage] = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
"""Sandler et al. (2018), table 2."""

EFFICIENTNET_B0: Sequence[Stage] = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""Tan and Le (2019), table 1."""


@dataclass(frozen=True)
class Lite:
    """The sizes of an EfficientDet-Lite.

    Attributes:
        size: of the image
        channels: of the pyramid's levels
        cells: of the pyramid
        repeats: of the heads' layers
        width: of the backbone
        depth: of the backbone
    """

    size: int
    channels: int
    cells: int
    repeats: int
    width: float
    depth: float

    def stages(self) -> list[Stage]:
        """Return the stages of the backbone; the first and the last keep their blocks."""
        stages = []
        last = len(EFFICIENTNET_B0) - 1
        for i, (expand, out, times, stride, k) in enumerate(EFFICIENTNET_B0):
            blocks = times if i in (0, last) else math.ceil(times * self.depth)
            stages.append((expand, rounded(out * self.width), blocks, stride, k))
        return stages


EFFICIENTDET_LITE = {
    "0": Lite(320, 64, 3, 3, 1.0, 1.0),
    "1": Lite(384, 88, 4, 3, 1.0, 1.1),
    "2": Lite(448, 112, 5, 3, 1.1, 1.2),
    "3": Lite(512, 160, 6, 4, 1.2, 1.4),
    "3x": Lite(640, 200, 6, 4, 1.2, 1.4),
    "4": Lite(640, 224, 7, 4, 1.4, 1.8),
}
"""google/automl, efficientdet/hparams_config.py."""


def rounded(channels: float) -> int:
    """Return a multiple of 8 that is at most a tenth smaller, as EfficientNet rounds."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8
