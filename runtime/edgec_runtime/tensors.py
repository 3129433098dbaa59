"""What a bundle says of the tensors that cross its segments' borders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np


@dataclass(frozen=True)
class QuantInfo:
    """real = scale * (q - zero_point).

    One entry each, or one per index along `axis`.
    """

    scale: Tuple[float, ...]
    zero_point: Tuple[int, ...]
    axis: Optional[int] = None


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that crosses a segment border.  dtype is numpy's descr, for example
    "<f4".
    """

    name: str
    shape: Tuple[int, ...]
    dtype: str
    quant: Optional[QuantInfo] = None

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype as numpy has it."""
        return np.dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return math.prod(self.shape) * self.numpy_dtype.itemsize

    def __str__(self) -> str:
        return f'"{self.name}" {self.dtype} {self.shape}'
