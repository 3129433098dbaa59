"""The meaning of ops on float16, by what they mean on float32."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir.float16 import has_float16, narrowed, rounded, widened
from edgec.ir.opdef import OpDef
from edgec.ir.types import Array, TensorType


def infer(spec: OpDef, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """Return the types of an op's outputs, as `OpDef.infer` does.

    Reals of an op with float16 inputs are float16. Raises ValueError.
    """
    if spec.any_elements or not has_float16(types):
        return spec.infer(*types)

    outputs = spec.infer(*(widened(t) for t in types))
    return tuple(narrowed(t) for t in outputs)


def ref(
    spec: OpDef,
    arrays: Sequence[Array],
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
) -> list[Array]:
    """Return the outputs of an op as `OpDef.ref` does, also of float16."""
    if spec.any_elements or not has_float16((*inputs, *outputs)):
        return spec.ref(arrays, inputs, outputs)

    wide: list[Array] = []
    for array in arrays:
        is_half = array.dtype == np.float16
        wide.append(array.astype(np.float32) if is_half else array)

    wide_inputs = [widened(t) for t in inputs]
    wide_outputs = [widened(t) for t in outputs]
    results = spec.ref(wide, wide_inputs, wide_outputs)
    narrow: list[Array] = []
    for result, t in zip(results, outputs, strict=True):
        narrow.append(rounded(result) if t.dtype == "float16" else result)

    return narrow
