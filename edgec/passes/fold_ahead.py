"""Folds a constant factor or term for each channel into the weights and biases of the layers that read the result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgec.ir import Array, Graph, Op
from edgec.ir.rewrite import Rewriter, channel_vector
from edgec.ops.binary import Add, Mul
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.passes._linear import bias_of


def run(graph: Graph) -> bool:
    """Only where nothing but such layers reads it: a normalisation of the input, an affine block behind a function."""
    rw = Rewriter(graph)
    for op in rw.ops("mul", "add"):
        if op.output.type.dtype == "float32" and op.spec in (Mul(), Add()):
            _fold(rw, op)
    return rw.changed


def _fold(rw: Rewriter, op: Op) -> None:
    readers = rw.users(op.output)
    if not readers or op.output in rw.graph.outputs or not all(_reads(op, r) for r in readers):
        return
    for x, c in (op.inputs, op.inputs[::-1]):
        constant = channel_vector(c, x.type.shape)
        if constant is None or x.const is not None or x.type != op.output.type or not np.isfinite(constant).all():
            continue
        if op.kind == "mul":
            _factor(rw, op, readers, constant.astype(np.float64))
        elif all(_borderless(r) for r in readers):
            _term(rw, op, readers, constant.astype(np.float64))
        else:
            _exchange(rw, op, constant.astype(np.float64))
        return


def _reads(op: Op, reader: Op) -> bool:
    """Whether an op is a layer that nothing but weights multiplies the value in."""
    if not isinstance(reader.spec, (Conv2D, DepthwiseConv2D, FullyConnected)) or reader.inputs[0] is not op.output:
        return False
    constants = reader.inputs[1:]
    if any(v.const is None or v.type.dtype != "float32" for v in constants) or reader.output.type.dtype != "float32":
        return False
    return not isinstance(reader.spec, FullyConnected) or constants[0].type.shape[1] == op.output.type.shape[-1]


def _borderless(reader: Op) -> bool:
    """Whether it reads no zeros around the image, to which nothing was added."""
    return not any(getattr(reader.spec, "pads", ()))


def _factor(rw: Rewriter, op: Op, readers: Sequence[Op], factor: Array) -> None:
    for reader in [*readers]:
        w = reader.inputs[1]
        product = (_weights(reader) * _columns(reader, factor)).astype(np.float32)
        rw.update(reader, inputs=[reader.inputs[0], rw.const(product, w.name), *reader.inputs[2:]])
    _skip(rw, op)


def _term(rw: Rewriter, op: Op, readers: Sequence[Op], term: Array) -> None:
    for reader in [*readers]:
        more = _weights(reader) * _columns(reader, term)
        # a depthwise layer has its outputs along the last axis
        other = tuple(i for i in range(more.ndim) if i != reader.spec.weight_axis)
        bias = (bias_of(reader) + more.sum(other)).astype(np.float32)
        name = reader.inputs[2].name if len(reader.inputs) > 2 else f"{reader.inputs[1].name}_bias"
        rw.update(reader, inputs=[*reader.inputs[:2], rw.const(bias, name)])
    _skip(rw, op)


def _exchange(rw: Rewriter, op: Op, term: Array) -> None:
    """x * k + b, of which only the factor can go ahead, becomes (x + b / k) * k."""
    for y, _ in (op.inputs, op.inputs[::-1]):
        before = rw.private(y, "mul")
        if before is None or before.spec != Mul():
            continue
        for x, k in (before.inputs, before.inputs[::-1]):
            factor = channel_vector(k, x.type.shape)
            if factor is None or x.const is not None or x.type != op.output.type:
                continue
            with np.errstate(all="ignore"):
                inner = (term / factor).astype(np.float32)
            if np.isfinite(inner).all():
                even = k.type.size == 1 and (inner == inner[0]).all()
                shifted = rw.add(op, Add(), [x, rw.const(inner[:1] if even else inner, k.name)], y.name)
                rw.update(op, Mul(), [shifted, k])
            return


def _skip(rw: Rewriter, op: Op) -> None:
    """Let all read what it does."""
    rw.forward(op, next(v for v in op.inputs if v.const is None))


def _weights(op: Op) -> Array:
    w = op.inputs[1].const
    assert w is not None
    return w.astype(np.float64)


def _columns(op: Op, each: Array) -> Array:
    """What is given for each channel that it reads, as its weights have them."""
    w = op.inputs[1].type
    if isinstance(op.spec, DepthwiseConv2D):
        return np.repeat(each, w.shape[3] // len(each))
    if isinstance(op.spec, Conv2D):
        of_groups = each.reshape(-1, w.shape[3])
        return np.repeat(of_groups, w.shape[0] // len(of_groups), axis=0)[:, None, None]
    return each
