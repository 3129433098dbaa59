"""int8 functions of one int8 number, compared over all of their 256 inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Op, OpDef, TensorType
from edgec.ops.unary import Unary

ALL = np.arange(-128, 128).astype(np.int8)
"""Every int8 input."""


def int8_table(op: Op) -> Array | None:
    """Return the outputs of an op for `ALL` inputs.

    None unless it is a function of one int8 number with one scale on each side.
    """
    x = op.inputs[0].type
    y = op.output.type
    if not isinstance(op.spec, Unary):
        return None
    for t in (x, y):
        if t.dtype != "int8" or t.quant is None or t.quant.axis is not None:
            return None
    return op.spec.table(x, y)


def applied(
    spec: OpDef,
    q: Array,
    x: TensorType,
    y: TensorType,
    *constants: tuple[Array, TensorType],
) -> Array:
    """Return the result of an op on integers `q` of type `x` and scalar constants.

    The types give the scales alone; the shapes are those of the arrays.
    """
    arrays = [q, *(c for c, _ in constants)]
    types = [x, *(t for _, t in constants)]
    (result,) = spec.ref(arrays, _like(types, arrays), _like([y], [q]))
    return result


def _like(types: Sequence[TensorType], arrays: Sequence[Array]) -> list[TensorType]:
    """Return the types with the shapes of the arrays."""
    return [t.with_shape(tuple(a.shape)) for t, a in zip(types, arrays, strict=True)]
