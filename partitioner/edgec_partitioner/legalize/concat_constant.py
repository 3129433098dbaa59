"""A constant joined to computed tensors becomes a border of zeros, and what it holds is
added.

Pattern: a CONCATENATION of computed and constant tensors of one scale, not over the
batch. Condition: the constants are zero, or they are joined as channels and the same
for every pixel. Replacement: PADs beside the computed tensors, their CONCATENATION if
there are several, and the ADD of a vector of channels if a constant is not zero. Proof:
PAD fills in the zero point z. ADD of equal scales multiplies by 1/2, 1/2 and 2 in
TFLite's fixed point, all exact, so it gives (x - z) + (c - z) + z: c in the border,
where x = z, and x elsewhere, where c = z. Pays inside of an Edge TPU region.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Builder, Graph, Op, Value
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Add
from edgec.ops.concat import Concat
from edgec.ops.pad import Pad
from edgec_partitioner.legalize._examples import (
    Shape,
    int8_input,
    integer,
    integers,
    random_quant,
    relu,
    with_output,
)
from edgec_partitioner.legalize._moves import whole

OPS = (Concat,)
BOUND = 0.0


def rewrite(r: Rewriter, op: Op, spec: Concat) -> bool:
    """Pad the computed tensors, join them, and add the constants."""
    y = op.output.type
    if not whole(y):
        return False
    if any(v.type.quant != y.quant for v in op.inputs):
        return False

    vector = _constant_vector(op, spec.axis)
    computed = [v for v in op.inputs if v.const is None]
    if vector is None or not computed:
        return False
    # Without constants there is nothing to replace.
    if len(computed) == len(op.inputs):
        return False
    # PAD has no border over the batch.
    if spec.axis < y.rank - 3:
        return False

    name = op.output.name
    padded = _padded(r, op, spec.axis)
    x = padded[0]
    if len(padded) > 1:
        x = r.add(op, spec, padded, f"{name}_joined", y.quant)

    # Zeros are the borders alone.
    if (vector == y.zero_point).all():
        return r.forward(op, x)
    constants = r.const(vector, f"{name}_constants", y.quant)
    r.update(op, Add(), [x, constants])
    return True


def _constant_vector(op: Op, axis: int) -> Array | None:
    """Return the elements of the constants along the axis.

    Computed tensors count as the zero point. None if a constant differs along other
    axes, or is not zero on another axis than that of the channels.
    """
    y = op.output.type
    zero = y.zero_point
    is_channel_axis = axis == y.rank - 1

    parts: list[Array] = []
    for v in op.inputs:
        size = v.type.shape[axis]
        if v.const is None:
            parts.append(np.full(size, zero, np.int8))
            continue

        # One row for each place along the axis.
        axis_first = np.moveaxis(v.const, axis, 0)
        rows = axis_first.reshape(size, -1)
        if (rows != rows[:, :1]).any():
            return None
        if not is_channel_axis and (rows != zero).any():
            return None
        parts.append(rows[:, 0])
    return np.concatenate(parts)


def _padded(r: Rewriter, op: Op, axis: int) -> list[Value]:
    """Return the computed tensors, with borders in place of the constants.

    A border lies before a tensor, and behind the last one for the constants there.
    """
    inputs = op.inputs
    # Constants behind the last computed tensor become its second border.
    last = max(i for i, v in enumerate(inputs) if v.const is None)
    trailing = inputs[last + 1 :]
    size_behind = sum(v.type.shape[axis] for v in trailing)

    padded: list[Value] = []
    before = 0
    for i in range(last + 1):
        v = inputs[i]
        if v.const is not None:
            before += v.type.shape[axis]
            continue

        after = size_behind if i == last else 0
        if before or after:
            pads = [(0, 0)] * v.type.rank
            pads[axis] = (before, after)
            spec = Pad(tuple(pads))
            v = r.add(op, spec, [v], f"{v.name}_padded", v.type.quant)
        padded.append(v)
        before = 0
    return padded


def example(rng: np.random.Generator) -> Graph:
    """Return a concatenation with constants before, between and behind.

    Constant channels have any elements, constant rows and columns zeros.
    """
    build = Builder("concat_constant")
    q = random_quant(rng, 0.1)
    shape = (1, *integers(rng, 1, 6, 3))
    axis = integer(rng, 1, 4)
    zeros = axis != 3 or rng.random() < 0.3

    inputs: list[Value] = []
    for i in range(integer(rng, 1, 4)):
        size = integer(rng, 1, 5)
        part_shape = _resized(shape, axis, size)
        x = int8_input(build, part_shape, q, f"x{i}")
        inputs.append(x)
    parts = [relu(build, v) for v in inputs]

    constants = 2 if zeros else integer(rng, 1, 3)
    for i in range(constants):
        size = integer(rng, 1, 4)
        zero_point = q.zero_point[0]
        elements = np.full(size, zero_point)
        if not zeros:
            elements = rng.integers(-128, 128, size)
            if i == 0:
                # A constant of zeros would not need the ADD.
                elements[0] = -128 if zero_point >= 0 else 127

        data = _along(elements, shape, axis)
        place = integer(rng, 0, len(parts) + 1)
        constant = build.const(data, f"c{i}", q)
        parts.insert(place, constant)

    joined = build.add(Concat(axis), parts)
    y = relu(build, joined)
    return with_output(build, y)


def _along(elements: Array, shape: Sequence[int], axis: int) -> Array:
    """Return an int8 tensor that differs only along an axis.

    elements: the numbers along the axis.
    shape: the sizes of the other axes.
    """
    vector_shape = [1] * len(shape)
    vector_shape[axis] = -1
    vector = elements.reshape(vector_shape)

    target = _resized(shape, axis, len(elements))
    data = np.broadcast_to(vector, target)
    return data.astype(np.int8)


def _resized(shape: Sequence[int], axis: int, size: int) -> Shape:
    """Return the shape with another size of an axis."""
    resized = [*shape]
    resized[axis] = size
    return tuple(resized)
