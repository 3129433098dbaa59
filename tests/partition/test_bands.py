"""large_tensor's bands on random chains of ops, for limits small enough to try many."""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.legalize.large_tensor import in_bands
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgec.ir import Builder, Graph, Quant, TensorType, Value, interp, verify
from edgec.ir.rewrite import Rewriter
from edgec.ops.binary import Mul
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.unary import Relu
from tests.harness import random_inputs

Q = Quant.per_tensor(0.05, -3)
W = Quant.per_tensor(0.01)


def weights(build: Builder, rng: np.random.Generator, *shape: int) -> Value:
    return build.const(rng.integers(-127, 128, shape).astype(np.int8), "w", W)


def random_chain(rng: np.random.Generator) -> Graph:
    """A convolution to many channels, a few ops, and a pool that makes the image small
    again.
    """
    build = Builder("chain")
    y = build.input("x", TensorType((1, int(rng.integers(20, 30)), 9, 2), "int8", Q))

    def conv(x: Value, dense: bool, channels: int) -> Value:
        k = int(rng.integers(1, 4))
        dilation = int(rng.integers(1, 3))
        stride = int(rng.integers(1, 3))
        pads = (int(rng.integers(0, 3)), int(rng.integers(0, 3)), 1, 2)
        c = x.type.shape[3]
        spec = (Conv2D if dense else DepthwiseConv2D)((stride, 1), pads, (dilation, 1))
        w = weights(build, rng, *((channels, k, k, c) if dense else (1, k, k, c)))
        return build.add(spec, [x, w], quant=Q)

    y = conv(y, True, 12)
    for kind in rng.integers(0, 5, int(rng.integers(0, 3))):
        if kind == 0:
            y = conv(y, False, 12)
        elif kind == 1:
            y = build.add(Relu(), [y], quant=Q)
        elif kind == 2:
            y = build.add(Pad(((0, 0), (1, 2), (0, 1), (0, 0))), [y])
        elif kind == 3:
            y = build.add(Mul(), [y, weights(build, rng, 12)], quant=Q)
        else:
            y = build.add(AveragePool2D((2, 1), (1, 1)), [y])
    build.graph.outputs = [build.add(MaxPool2D((3, 3), (4, 3)), [y])]
    return build.graph


def in_bands_throughout(graph: Graph, limit: int) -> Graph:
    """What is left when nothing more can be done."""
    result = graph.copy()
    while True:
        rewriter = Rewriter(result)
        for op in rewriter.ops():
            if in_bands(rewriter, op, limit):
                break
        if not rewriter.changed:
            return result


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_bands_give_the_same_integers_and_are_small(seed: int) -> None:
    graph = random_chain(np.random.default_rng(seed))
    limit = max(
        graph.inputs[0].type.size,
        graph.outputs[0].type.size,
        graph.ops[0].output.type.size * 2 // 3,
    )
    result = in_bands_throughout(graph, limit)
    # else one row needs too many
    assume(max(v.type.size for v in result.values()) <= limit)
    verify(result, "quantized")
    assert any(op.kind == "concat" for op in result.ops)
    inputs = random_inputs(graph, seed)
    for name, want in interp(graph, inputs).items():
        np.testing.assert_array_equal(interp(result, inputs)[name], want)


@pytest.mark.parametrize(
    "reason", ["read twice", "returned", "never small", "pool with pads"]
)
def test_a_chain_that_cannot_be_cut_stays(reason: str) -> None:
    rng = np.random.default_rng(0)
    build = Builder("stays")
    x = build.input("x", TensorType((1, 12, 9, 2), "int8", Q))
    large = build.add(Conv2D(), [x, weights(build, rng, 12, 1, 1, 2)], quant=Q)
    pads = (1, 1, 1, 1) if reason == "pool with pads" else (0, 0, 0, 0)
    small = build.add(
        MaxPool2D((3, 3), (1, 1) if reason == "never small" else (3, 3), pads), [large]
    )
    build.graph.outputs = [small, *([large] if reason == "returned" else [])]
    if reason == "read twice":
        build.graph.outputs.append(build.add(MaxPool2D((1, 1), (9, 9)), [large]))
    rewriter = Rewriter(build.graph)
    assert not in_bands(rewriter, build.graph.ops[0], 400)
    assert not rewriter.changed
