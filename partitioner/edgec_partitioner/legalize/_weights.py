"""What the rewrites of ops with weights share: edits of constant weights, and whether
an edit helps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Op, OpDef, Quant, TensorType, Value
from edgec_partitioner.verdicts import refusals


def constant_weights(op: Op) -> bool:
    """Whether weights and bias are constants."""
    return all(v.const is not None for v in op.inputs[1:])


def array(v: Value) -> Array:
    """The elements of a constant."""
    assert v.const is not None, f"{v.name} is computed"
    return v.const


def zeros(w: Value, shape: tuple[int, ...]) -> Array:
    """Weights that add nothing, of the type of `w`: zero points where they are
    quantized.
    """
    zero = 0 if w.type.quant is None else w.type.quant.broadcast(len(shape))[1]
    return np.broadcast_to(np.asarray(zero, w.type.np_dtype), shape).copy()


def part_of(quant: Quant | None, part: slice) -> Quant | None:
    """The scales of some of the channels."""
    if quant is None or quant.axis is None:
        return quant
    return Quant(quant.scale[part], quant.zero_point[part], quant.axis)


def helps(
    op: Op, spec: OpDef, inputs: Sequence[Value], result: TensorType | None = None
) -> bool:
    """Whether the op would break fewer rules with this spec and these inputs, and none
    that it keeps now.

    result: the type of its output, if another one.
    """
    outputs = op.outputs if result is None else [Value(op.output.name, result)]
    return _broken(Op(spec, list(inputs), outputs)) < _broken(op)


def _broken(op: Op) -> set[str]:
    return {found.rule for found in refusals(op)} - {"int8_tensors"}
