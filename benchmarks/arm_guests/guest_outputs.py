"""What every guest does alike: the input that it makes, and what it prints of outputs,
by which a peer's results are compared with onnxruntime's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUTPUTS = "# outputs "
"""The beginning of the printed line."""


def filled(shape: Sequence[int]) -> NDArray[np.float32]:
    """Return an input of [0, 1]: (0, 37, 74, … mod 255) / 255, in the order of NCHW."""
    flat = (np.arange(int(np.prod(shape))) * 37 % 255 / 255).astype(np.float32)
    return flat.reshape(shape)


def statistics(arrays: Iterable[NDArray[Any]]) -> list[tuple[float, float]]:
    """Return the mean and the standard deviation of each output."""
    found = []
    for array in arrays:
        values = np.asarray(array, np.float64)
        found.append((float(values.mean()), float(values.std())))
    return found


def print_outputs(arrays: Iterable[NDArray[Any]]) -> None:
    """Print the statistics of the outputs as a line of JSON."""
    print(OUTPUTS + json.dumps(statistics(arrays)))
