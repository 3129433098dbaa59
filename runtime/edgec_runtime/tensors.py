"""The types of tensors that cross the borders of a bundle's segments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np


@dataclass(frozen=True)
class QuantInfo:
    """Quantization: real = scale * (q - zero_point).

    Attributes:
        scale: one number, or one for each index along `axis`
        zero_point: as many integers
        axis: an axis of the tensor; None for one number
    """

    scale: Tuple[float, ...]
    zero_point: Tuple[int, ...]
    axis: Optional[int] = None


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that crosses a border of a segment.

    Attributes:
        name: its name
        shape: its shape
        dtype: numpy's descr, for example "<f4"
        quant: its quantization
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
