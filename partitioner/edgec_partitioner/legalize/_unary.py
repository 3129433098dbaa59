"""int8 functions of one int8 number, compared over all of their 256 inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Op, OpDef, TensorType
from edgec.ops.unary import Unary

ALL = np.arange(-128, 128).astype(np.int8)
"""Every input."""


def int8_table(op: Op) -> Array | None:
    """The outputs of an op for `ALL`; None unless it is a function of one int8 number."""
    x = op.inputs[0].type
    y = op.output.type
    whole = all(
        t.dtype == "int8" and t.quant is not None and t.quant.axis is None
        for t in (x, y)
    )
    return op.spec.table(x, y) if isinstance(op.spec, Unary) and whole else None


def applied(
    spec: OpDef,
    q: Array,
    x: TensorType,
    y: TensorType,
    *constants: tuple[Array, TensorType],
) -> Array:
    """What an op makes of the integers `q` of type `x` and of scalar constants; the
    types give the scales alone.
    """
    arrays = [q, *(c for c, _ in constants)]
    types = [x, *(t for _, t in constants)]
    return spec.ref(arrays, _like(types, arrays), _like([y], [q]))[0]


def _like(types: Sequence[TensorType], arrays: Sequence[Array]) -> list[TensorType]:
    return [t.with_shape(tuple(a.shape)) for t, a in zip(types, arrays, strict=True)]
