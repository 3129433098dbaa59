"""Types of tensors: static shape, element type and affine quantization."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""A numpy array of any element type."""

DTYPES = (
    "float32",
    "float16",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
)
"""Element types, by the names that numpy has for them."""


@dataclass(frozen=True)
class Quant:
    """An affine quantization: real = scale * (q - zero_point).

    Source: the TFLite 8-bit quantization specification.

    Attributes:
        scale: one number, or one for each slice along `axis`
        zero_point: as many numbers
        axis: axis along which they differ, None: per tensor
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @classmethod
    def per_tensor(cls, scale: float, zero_point: int = 0) -> Quant:
        """Return one scale and zero point for the whole tensor.

        The scale is rounded to float32 as files store it.
        """
        # A Python float of the float32 value.
        return cls((float(np.float32(scale)),), (int(zero_point),))

    def permuted(self, perm: tuple[int, ...]) -> Quant:
        """Return the quantization of a tensor whose axis i was axis perm[i]."""
        return self if self.axis is None else replace(self, axis=perm.index(self.axis))

    def reshaped(self, old: tuple[int, ...], new: tuple[int, ...]) -> Quant | None:
        """Return the quantization of the same elements in another shape.

        None where the scales do not run along one axis of that shape.
        """
        if self.axis is None:
            return self

        # The axis keeps its size and the number of elements before it.
        size = old[self.axis]
        before = prod(old[: self.axis])
        for axis, new_size in enumerate(new):
            if new_size == size and prod(new[:axis]) == before:
                return replace(self, axis=axis)

        return None

    def broadcast(self, rank: int) -> tuple[Array, Array]:
        """Return scales (float32) and zero points (int32) that broadcast to a rank."""
        # One number for each slice of the axis.
        shape = [1] * rank
        if self.axis is not None:
            shape[self.axis] = len(self.scale)

        scale = np.array(self.scale, np.float32).reshape(shape)
        zero_point = np.array(self.zero_point, np.int32).reshape(shape)

        return scale, zero_point


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor.

    Attributes:
        shape: sizes of the dimensions, () for a scalar
        dtype: one of `DTYPES`
        quant: quantization of integers that stand for reals, else None
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    quant: Quant | None = None

    @property
    def rank(self) -> int:
        """The number of dimensions, 0 for a scalar."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def np_dtype(self) -> np.dtype[Any]:
        """The element type in numpy."""
        return np.dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        """The bytes of the dense tensor."""
        return self.size * self.np_dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        """Whether elements are integers that stand for reals."""
        return self.quant is not None and self.dtype != "float32"

    @property
    def is_plain_int8(self) -> bool:
        """Whether elements are int8 without a scale.

        Most kernels take int8 with a scale.
        """
        return self.dtype == "int8" and self.quant is None

    @property
    def scale(self) -> float:
        """The per-tensor scale; the caller knows that there is one."""
        assert self.quant is not None, "tensor is not quantized"
        assert len(self.quant.scale) == 1, "tensor is quantized per channel"
        return self.quant.scale[0]

    @property
    def zero_point(self) -> int:
        """The per-tensor zero point."""
        assert self.quant is not None, "tensor is not quantized"
        return self.quant.zero_point[0]

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """Return the type with another shape."""
        return replace(self, shape=tuple(int(d) for d in shape))

    def with_quant(self, quant: Quant | None, dtype: str | None = None) -> TensorType:
        """Return the type with another quantization, and maybe another element type."""
        return replace(self, quant=quant, dtype=dtype or self.dtype)

    def __str__(self) -> str:
        """Return the type as in the text form, e.g. `float32[1,4]`."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def dequantize(x: Array, t: TensorType) -> Array:
    """Return the float32 reals of a quantized array: scale * (q - zero_point)."""
    if t.quant is None:
        return x.astype(np.float32)

    scale, zero = t.quant.broadcast(x.ndim)
    centred = (x.astype(np.int64) - zero).astype(np.float32)

    return (centred * scale).astype(np.float32)
