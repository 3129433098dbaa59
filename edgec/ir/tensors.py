"""Tensor types of the IR as a bundle's manifest has them, and back."""

from __future__ import annotations

from edgec_runtime import QuantInfo, TensorInfo

from edgec.ir.types import Quant, TensorType


def tensor_info(name: str, t: TensorType) -> TensorInfo:
    """Return the manifest's record of a tensor of type `t`."""
    q = t.quant
    quant = None if q is None else QuantInfo(q.scale, q.zero_point, q.axis)
    return TensorInfo(name, t.shape, t.np_dtype.str, quant)


def tensor_type(info: TensorInfo) -> TensorType:
    """Return the IR's type of a tensor in a manifest."""
    q = info.quant
    quant = None if q is None else Quant(q.scale, q.zero_point, q.axis)
    return TensorType(info.shape, info.numpy_dtype.name, quant)
