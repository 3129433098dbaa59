"""Random attentions: what lies between the projections and the products varies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgec.ir import Builder, TensorType, Value
from edgec.ops.binary import Add, Mul
from edgec.ops.matmul import BatchMatMul
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice
from edgec.ops.softmax import Softmax
from edgec.ops.unary import Relu
from tests.harness import random_inputs
from tests.schedule.layers import Layer, Pick


def attention(one: Pick) -> Layer:
    """Of windows and heads: packed operands, factors, a bias that windows may share."""
    build = Builder("layer")
    windows = one(1, 1, 2, 3)
    heads = one(1, 2, 3)
    rows = one(1, 2, 7, 9, 17, 30)
    depth = one(1, 3, 8, 16, 21)
    q, k, v = _operands(build, one, (windows, rows, heads, depth))

    factor = build.const(np.array(one(0.25, 0.5), np.float32), "factor")
    if one(False, True):
        q = build.add(Mul(), [q, factor])
    if one(False, False, True):
        k = build.add(Mul(), [k, factor])
    keys = build.add(Transpose((0, 1, 3, 2)), [k])
    scores = build.add(BatchMatMul(), [q, keys])
    if one(False, True, True):
        shape = (one(1, windows), one(1, heads), rows, rows)
        bias = one.rng.normal(size=shape).astype(np.float32)
        scores = build.add(Add(), [scores, build.const(bias, "bias")])

    shares = build.add(Softmax(one(1.0, 1.0, 0.7)), [scores])
    y = build.add(BatchMatMul(), [shares, v])
    outputs = [_result(build, one, y)]
    if one(*[False] * 5, True):
        # Somebody else reads the scores.
        outputs.append(build.add(Relu(), [scores]))
    build.graph.outputs = outputs
    inputs = random_inputs(build.graph, int(one.rng.integers(1 << 30)))
    return Layer("attention float", build.graph, inputs)


def _operands(build: Builder, one: Pick, shape: tuple[int, ...]) -> Sequence[Value]:
    """Return Q, K and V [windows, heads, rows, depth] as a network may have them."""
    windows, rows, heads, depth = shape
    if one(False, False, True):
        matrices = TensorType((windows, heads, rows, depth))
        return [build.input(name, matrices) for name in "qkv"]

    packed = TensorType((windows, rows, 3 * heads * depth))
    x = build.add(Relu(), [build.input("x", packed)])
    parts = build.add(Reshape((windows, rows, 3, heads, depth)), [x])
    found: list[Value] = []
    for i in range(3):
        ones = (1,) * 5
        size = (windows, rows, 1, heads, depth)
        part = build.add(Slice((0, 0, i, 0, 0), size, ones), [parts])
        apart = build.add(Reshape(shape), [part])
        found.append(build.add(Transpose((0, 2, 1, 3)), [apart]))
    return found


def _result(build: Builder, one: Pick, y: Value) -> Value:
    """Return a result with its heads side by side, or as it is; some op reads it."""
    if one(False, True, True):
        windows, heads, rows, depth = y.type.shape
        y = build.add(Transpose((0, 2, 1, 3)), [y])
        y = build.add(Reshape((windows, rows, heads * depth)), [y])
    return build.add(Relu(), [y]) if one(False, True) else y


MAKERS: tuple[Callable[[Pick], Layer], ...] = (attention,)
