"""Attention as one kernel: what it computes, what stays apart, and what it saves."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, TensorType, Value, interp
from edgec.ops.binary import Add, Mul
from edgec.ops.matmul import BatchMatMul
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice
from edgec.ops.softmax import Softmax
from edgec.ops.unary import Relu
from edgec.schedule.cores import core
from edgec.schedule.steps import schedule
from edgec.schedule.variant import Rules
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

ATTENTION = "ek_attention_f32_simd("
WINDOWED = (4, 49, 3, 16)
"""Windows, rows, heads, and the depth of each: as Swin has them."""
WHOLE = (1, 67, 2, 24)


def _attention(
    shape: tuple[int, int, int, int], *, bias: bool = False, seen: bool = False
) -> Graph:
    """A network's attention behind a function; seen: its scores are an output too."""
    windows, rows, heads, depth = shape
    build = Builder("attention")
    packed = TensorType((windows, rows, 3 * heads * depth))
    x = build.add(Relu(), [build.input("x", packed)])
    parts = build.add(Reshape((windows, rows, 3, heads, depth)), [x])
    q, k, v = (_part(build, parts, i) for i in range(3))

    q = build.add(Mul(), [q, build.const(np.array(depth**-0.5, np.float32), "factor")])
    scores = build.add(BatchMatMul(), [q, build.add(Transpose((0, 1, 3, 2)), [k])])
    outputs: list[Value] = []
    if seen:
        outputs.append(scores)
    if bias:
        values = np.random.default_rng(1).normal(size=(1, heads, rows, rows))
        shared = build.const(values.astype(np.float32), "bias")
        scores = build.add(Add(), [scores, shared])

    y = build.add(BatchMatMul(), [build.add(Softmax(), [scores]), v])
    y = build.add(Transpose((0, 2, 1, 3)), [y])
    y = build.add(Reshape((windows, rows, heads * depth)), [y])
    build.graph.outputs = [build.add(Relu(), [y]), *outputs]
    return build.graph


def _part(build: Builder, parts: Value, i: int) -> Value:
    """Q, K or V [windows, heads, rows, depth] of the packed projections."""
    windows, rows, _, heads, depth = parts.type.shape
    size = (windows, rows, 1, heads, depth)
    part = build.add(Slice((0, 0, i, 0, 0), size, (1,) * 5), [parts])
    apart = build.add(Reshape((windows, rows, heads, depth)), [part])
    return build.add(Transpose((0, 2, 1, 3)), [apart])


GRAPHS = [
    _attention(shape, bias=bias)
    for shape in (WINDOWED, WHOLE)
    for bias in (False, True)
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", on(*WIDTHS, "sanitized"))
@pytest.mark.parametrize("parts", [0, 3])
def test_one_kernel_computes_what_the_ops_do(name: str, parts: int) -> None:
    target = core("x86_64_v3" if name == "sanitized" else name)
    for graph in GRAPHS:
        assert ATTENTION in segment_source(graph, "seg", target).text
        # The function before it, the attention, the function behind it.
        assert len(schedule(graph, target).steps) == 3
    inputs = [random_inputs(g, i) for i, g in enumerate(GRAPHS)]
    for graph, given, got in zip(
        GRAPHS, inputs, run_on(name, GRAPHS, inputs, parts), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


def test_what_lies_between_leaves_the_arena() -> None:
    target = core("cortex_a72")
    graph = _attention(WINDOWED, bias=True)
    joined = segment_source(graph, "seg", target)
    apart = segment_source(graph, "seg", target, rules=Rules(attention=False))
    assert ATTENTION not in apart.text

    # The scores alone take as much.
    windows, rows, heads, _ = WINDOWED
    scores_bytes = 4 * windows * heads * rows * rows
    assert joined.plan.size < apart.plan.size - scores_bytes


def test_scores_that_somebody_else_reads_are_stored() -> None:
    graph = _attention(WHOLE, seen=True)
    assert ATTENTION not in segment_source(graph, "seg", core("cortex_a72")).text
