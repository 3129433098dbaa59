"""Masks of a segmentation network."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import common

Array = NDArray[Any]


def get_output(interpreter: Any) -> Array:
    """Return the class of each pixel, uint8 [height, width].

    A network with a score for each class and pixel gives [height, width, classes] in
    its own type instead: the class is where the score is largest.
    """
    output = common.output_tensor(interpreter, 0)[0]
    if output.ndim == 2:
        classes: Array = output.astype(np.uint8)
        return classes
    # Not as uint8: scores of int8 would change their order.
    scores: Array = output.copy()
    return scores
