"""Folds a constant factor or term for each channel into the weights and biases of the
layers that read the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgec.ir import Array, Graph, Op, Value
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.ops.binary import Add, Mul
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.passes._linear import bias_of, columns, has_border


def run(graph: Graph) -> bool:
    """Only where nothing but such layers reads it: a normalisation of the input, an
    affine block behind a function.
    """
    rw = Rewriter(graph)
    for op in rw.ops("mul", "add"):
        readers = rw.users(op.output)
        found = _channelwise(op)
        if (
            found is None
            or not readers
            or op.output in graph.outputs
            or not all(_reads(op, r) for r in readers)
        ):
            continue
        if op.kind == "mul":
            _factor(rw, op, readers, *found)
        elif any(has_border(r) for r in readers):
            # no term was added to the zeros that it reads there
            _exchange(rw, op, *found)
        else:
            _term(rw, op, readers, *found)
    return rw.changed


def _channelwise(op: Op) -> tuple[Value, Array] | None:
    """What a product or sum computes with, and its constant: float64, one for each
    channel.
    """
    for x, c in (op.inputs, op.inputs[::-1]):
        each = channel_vector(c, x.type.shape)
        if (
            each is not None
            and x.const is None
            and x.type == op.output.type
            and getattr(op.spec, "act", "") == "none"
        ):
            if x.type.dtype == "float32" and np.isfinite(each).all():
                return (x, each.astype(np.float64))
            return None
    return None


def _reads(op: Op, reader: Op) -> bool:
    """Whether an op is a layer that nothing but weights multiplies the value in."""
    if (
        not isinstance(reader.spec, (Conv2D, DepthwiseConv2D, FullyConnected))
        or reader.inputs[0] is not op.output
    ):
        return False
    if (
        any(v.const is None for v in reader.inputs[1:])
        or reader.output.type.dtype != "float32"
    ):
        return False
    # rows of a fully connected layer may hold several pixels, or parts of one
    return (
        reader.inputs[1].type.rank == 4
        or reader.inputs[1].type.shape[1] % op.output.type.shape[-1] == 0
    )


def _factor(
    rw: Rewriter, op: Op, readers: Sequence[Op], x: Value, factor: Array
) -> None:
    _replace(rw, op, x, {r: (1, _weights(r) * columns(r, factor)) for r in readers})


def _term(rw: Rewriter, op: Op, readers: Sequence[Op], x: Value, term: Array) -> None:
    _replace(rw, op, x, {r: (2, bias_of(r) + _product(r, term)) for r in readers})


def _product(reader: Op, term: Array) -> Array:
    """[C]: what is computed of a constant."""
    every = _weights(reader) * columns(reader, term)
    total: Array = every.sum(
        tuple(i for i in range(every.ndim) if i != reader.spec.weight_axis)
    )
    return total


def _replace(
    rw: Rewriter, op: Op, x: Value, made: Mapping[Op, tuple[int, Array]]
) -> None:
    """Let all read what the op does, with other weights (1) or another bias (2), if
    float32 holds these.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        constants = {
            reader: (i, array.astype(np.float32)) for reader, (i, array) in made.items()
        }
    if not all(np.isfinite(array).all() for _, array in constants.values()):
        return
    for reader, (i, array) in constants.items():
        if i < len(reader.inputs):
            name = reader.inputs[i].name
        else:
            name = f"{reader.inputs[1].name}_bias"
        rw.update(
            reader,
            inputs=[*reader.inputs[:i], rw.const(array, name), *reader.inputs[i + 1 :]],
        )
    rw.forward(op, x)


def _exchange(rw: Rewriter, op: Op, y: Value, term: Array) -> None:
    """x * k + b, of which only the factor can go ahead, becomes (x + b / k) * k."""
    before = rw.private(y, "mul")
    found = None if before is None else _channelwise(before)
    if before is None or found is None:
        return
    x, factor = found
    with np.errstate(all="ignore"):
        inner = (term / factor).astype(np.float32)
    if np.isfinite(inner).all():
        (k,) = (v for v in before.inputs if v is not x)
        inner = inner[0] if (inner == inner[0]).all() else inner
        rw.update(
            op, Mul(), [rw.add(op, Add(), [x, rw.const(inner, k.name)], y.name), k]
        )


def _weights(op: Op) -> Array:
    w = op.inputs[1].const
    assert w is not None
    return w.astype(np.float64)
