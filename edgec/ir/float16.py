"""Float16 elements, and their twins in float32.

Every operation on reals is defined on float32. On float16 elements it computes the same
of their values in float32, and rounds each result once to float16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from edgec.ir.kernel import KernelCall, Operand, Pointer
from edgec.ir.types import Array, TensorType
from edgec.ir.value import Value

LARGEST = 65504.0
"""The largest float16."""


def has_float16(types: Iterable[TensorType]) -> bool:
    """Return whether any tensor has float16 elements."""
    return any(t.dtype == "float16" for t in types)


def widened(t: TensorType) -> TensorType:
    """Return the type with float32 in place of float16 elements."""
    return replace(t, dtype="float32") if t.dtype == "float16" else t


def narrowed(t: TensorType) -> TensorType:
    """Return the type with float16 in place of float32 elements."""
    return replace(t, dtype="float16") if t.dtype == "float32" else t


def rounded(array: Array) -> Array:
    """Return float32 as float16, to the nearest; what is too large becomes infinite."""
    if array.dtype != np.float32:
        return array

    with np.errstate(over="ignore"):
        return array.astype(np.float16)


def float32_twins(values: Iterable[Value]) -> dict[Value, Value]:
    """Return values like these with float32 in place of float16 elements."""
    twins: dict[Value, Value] = {}
    for value in values:
        const = value.const
        if const is not None and const.dtype == np.float16:
            const = const.astype(np.float32)
        twins[value] = Value(value.name, widened(value.type), const)

    return twins


def pointing_back(
    twins: Mapping[Value, Value], calls: Iterable[KernelCall]
) -> tuple[KernelCall, ...]:
    """Return calls with pointers to values in place of pointers to their twins."""
    originals = {twin: value for value, twin in twins.items()}
    back: list[KernelCall] = []
    for call in calls:
        operands: list[Operand] = []
        for x in call.operands:
            if isinstance(x, Pointer) and x.value in originals:
                x = replace(x, value=originals[x.value])
            operands.append(x)
        back.append(replace(call, operands=tuple(operands)))

    return tuple(back)
