"""Edits of constant weights, for the rewrites of ops with weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Op, OpDef, Quant, TensorType, Value
from edgec_partitioner.verdicts import refusals


def constant_weights(op: Op) -> bool:
    """Return whether weights and bias are constants."""
    return all(v.const is not None for v in op.inputs[1:])


def array(v: Value) -> Array:
    """Return the elements of a constant."""
    assert v.const is not None, f"{v.name} is computed"
    return v.const


def zeros(w: Value, shape: tuple[int, ...]) -> Array:
    """Return weights of the type of `w` that add nothing to a sum.

    Quantized ones are zero points rather than zeros.
    """
    quant = w.type.quant
    dtype = w.type.np_dtype
    if quant is None:
        return np.zeros(shape, dtype)

    # A zero point stands for the real number 0.
    _, zero_points = quant.broadcast(len(shape))
    filler = np.asarray(zero_points, dtype)
    return np.broadcast_to(filler, shape).copy()


def part_of(quant: Quant | None, part: slice) -> Quant | None:
    """Return the scales of some of the channels.

    A quantization per tensor stays as it is.
    """
    if quant is None or quant.axis is None:
        return quant
    return Quant(quant.scale[part], quant.zero_point[part], quant.axis)


def helps(
    op: Op, spec: OpDef, inputs: Sequence[Value], result: TensorType | None = None
) -> bool:
    """Return whether `op` would break fewer rules with this spec and these inputs.

    It must also break no rule that it keeps now. result: the type of its output, if
    that changes.
    """
    outputs = op.outputs
    if result is not None:
        outputs = [Value(op.output.name, result)]
    return _broken(Op(spec, list(inputs), outputs)) < _broken(op)


def _broken(op: Op) -> set[str]:
    return {refusal.rule for refusal in refusals(op)} - {"int8_tensors"}
