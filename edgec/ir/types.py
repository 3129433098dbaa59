"""Types of tensors: static shape, element type and affine quantization."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

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


@dataclass(frozen=True)
class Quant:
    """real = scale * (q - zero_point), per tensor (`axis` None) or per slice along
    `axis`.

    Source: the TFLite 8-bit quantization specification.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @classmethod
    def per_tensor(cls, scale: float, zero_point: int = 0) -> Quant:
        """One scale and zero point for the whole tensor; the scale is rounded to
        float32 as files store it.
        """
        return cls((float(np.float32(scale)),), (int(zero_point),))

    def permuted(self, perm: tuple[int, ...]) -> Quant:
        """Of the tensor whose axis `i` was axis `perm[i]`."""
        return self if self.axis is None else replace(self, axis=perm.index(self.axis))

    def reshaped(self, old: tuple[int, ...], new: tuple[int, ...]) -> Quant | None:
        """Of the same elements in another shape; None where the scales run along no
        axis of that.
        """
        if self.axis is None:
            return self
        before = prod(old[: self.axis])
        fits = (
            i
            for i, d in enumerate(new)
            if d == old[self.axis] and prod(new[:i]) == before
        )
        axis = next(fits, None)
        return None if axis is None else replace(self, axis=axis)

    def broadcast(self, rank: int) -> tuple[Array, Array]:
        """Scale (float32) and zero point (int32) shaped to broadcast against a tensor
        of this rank.
        """
        shape = [1] * rank
        if self.axis is not None:
            shape[self.axis] = len(self.scale)
        return np.array(self.scale, np.float32).reshape(shape), np.array(
            self.zero_point, np.int32
        ).reshape(shape)


@dataclass(frozen=True)
class TensorType:
    """Shape, element type and, for quantized tensors, the scale."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    quant: Quant | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions; 0 for a scalar."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def np_dtype(self) -> np.dtype[Any]:
        """The element type as numpy has it."""
        return np.dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.size * self.np_dtype.itemsize

    @property
    def is_quantized(self) -> bool:
        """Whether elements are integers that stand for reals."""
        return self.quant is not None and self.dtype != "float32"

    @property
    def is_plain_int8(self) -> bool:
        """Whether elements are int8 that stand for no reals; most kernels take int8
        with a scale.
        """
        return self.dtype == "int8" and self.quant is None

    @property
    def scale(self) -> float:
        """The per-tensor scale; a tensor without one is our bug."""
        assert self.quant is not None, "tensor is not quantized"
        assert len(self.quant.scale) == 1, "tensor is quantized per channel"
        return self.quant.scale[0]

    @property
    def zero_point(self) -> int:
        """The per-tensor zero point."""
        assert self.quant is not None, "tensor is not quantized"
        return self.quant.zero_point[0]

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """The same elements in another shape."""
        return replace(self, shape=tuple(int(d) for d in shape))

    def with_quant(self, quant: Quant | None, dtype: str | None = None) -> TensorType:
        """The same shape with another quantization (and element type)."""
        return replace(self, quant=quant, dtype=dtype or self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def dequantize(x: Array, t: TensorType) -> Array:
    """The float32 reals that a quantized array stands for."""
    if t.quant is None:
        return x.astype(np.float32)
    scale, zero = t.quant.broadcast(x.ndim)
    return ((x.astype(np.int64) - zero).astype(np.float32) * scale).astype(np.float32)
