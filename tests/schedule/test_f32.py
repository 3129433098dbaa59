"""Every float variant computes what the plain kernels compute, within 1e-5 of the range: random layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np
import pytest

from edgec.ir import Builder, Graph, OpDef, TensorType, Value, interp
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import BatchMatMul, FullyConnected
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.schedule.cores import core
from edgec.schedule.variant import legal
from tests.harness import assert_agree, random_inputs
from tests.schedule.segments import BUILDS, run_on

T = TypeVar("T")


class Pick(Protocol):
    """One of the options, at random."""

    def __call__(self, *options: T) -> T: ...


LEADS: tuple[tuple[int, ...], ...] = ((), (2,), (2, 3))
ACTS = ("none", "relu", "relu6")


def _graph(spec: OpDef, *shapes: tuple[int, ...], weights: int = 2, seed: int = 0) -> Graph:
    """One op; its inputs but the first are constants, `weights` of them."""
    rng = np.random.default_rng(seed)
    build = Builder("layer")
    values: list[Value] = []
    for i, shape in enumerate(shapes):
        if i == 0 or i > weights:
            values.append(build.input(f"x{i}", TensorType(shape)))
        else:
            values.append(build.const(rng.normal(size=shape).astype(np.float32), f"c{i}"))
    build.graph.outputs = [build.add(spec, values, "y")]
    return build.graph


def _size(one: Pick, extent: int, pads: int) -> int:
    return max(extent - pads, 1) + one(0, 1, 2, 5, 9, 14)


def _conv(one: Pick, kind: str) -> Graph:
    """A convolution with the edges that matter: pads beyond the kernel, strides, dilation, groups, odd channels."""
    kh, kw, dh, dw = one(1, 1, 2, 3, 3, 5), one(1, 1, 2, 3, 3, 5), one(1, 1, 2, 3), one(1, 1, 2, 3)
    if kind == "depthwise":
        kh, kw = one((3, 3), (3, 3), (3, 3), (5, 5), (2, 3), (1, 1), (7, 4))
        dh = dw = one(1, 1, 1, 2, 3)
    pads = (one(0, 0, 1, 2), one(0, 1, 2), one(0, 0, 1, 2), one(0, 1, 2))
    h = _size(one, (kh - 1) * dh + 1, pads[0] + pads[1])
    w = _size(one, (kw - 1) * dw + 1, pads[2] + pads[3])
    step = one((1, 1), (1, 1), (2, 2), (1, 2), (3, 2)) if kind == "dense" else one((1, 1), (1, 1), (2, 2), (2, 1))
    act = one(*ACTS)
    if kind == "depthwise":
        c, times = one(1, 3, 4, 7, 8, 12, 16, 24, 33), one(1, 1, 1, 1, 2, 3)
        spec: OpDef = DepthwiseConv2D(step, pads, (dh, dw), act)
        return _graph(spec, (one(1, 1, 2), h, w, c), (1, kh, kw, c * times), (c * times,))
    groups, depth, per = one(1, 1, 1, 2, 3), one(1, 2, 3, 4, 7, 16, 21), one(1, 3, 4, 8, 9, 17, 24, 33)
    x, o = (one(1, 1, 2), h, w, depth * groups), per * groups
    return _graph(Conv2D(step, pads, (dh, dw), act), x, (o, kh, kw, depth), (o,)[: one(1, 1, 0)] or (o,))


def _transposed(one: Pick) -> Graph:
    kh, kw, sh, sw = one(1, 2, 3, 4, 5), one(1, 2, 3, 4), one(1, 2, 2, 3), one(1, 2, 2, 3)
    h, w = one(1, 2, 5, 9), one(1, 3, 7, 12)
    pads = (one(0, 1) * (kh > 2), one(0, 1) * (kh > 2), one(0, 1) * (kw > 2), one(0, 1) * (kw > 2))
    o, c = one(1, 3, 8, 17), one(1, 4, 9)
    return _graph(TransposeConv2D((sh, sw), pads, act=one(*ACTS)), (one(1, 2), h, w, c), (o, kh, kw, c), (o,))


def _connected(one: Pick) -> Graph:
    k, o = one(1, 3, 4, 17, 64, 130), one(1, 3, 4, 8, 9, 31, 100)
    return _graph(FullyConnected(one(*ACTS)), (one(1, 1, 2, 7, 33), k), (o, k), (o,))


def _product(one: Pick) -> Graph:
    m, n, k = one(1, 3, 8, 17), one(1, 4, 9, 40), one(1, 5, 16, 33)
    lead = one(*LEADS)
    adj_x, adj_y = bool(one(0, 1)), bool(one(0, 1))
    a = (*lead, k, m) if adj_x else (*lead, m, k)
    b = (n, k) if adj_y else (k, n)
    return _graph(BatchMatMul(adj_x, adj_y), a, (*lead, *b)[one(0, 0, 1) * len(lead) :], weights=0)


def layers(count: int, seed: int) -> Iterator[Graph]:
    """Random ones of all kinds that have float variants."""
    rng = np.random.default_rng(seed)

    def one(*options: T) -> T:
        return options[rng.integers(len(options))]

    makers: tuple[Callable[[Pick], Graph], ...]
    makers = (lambda p: _conv(p, "dense"), lambda p: _conv(p, "depthwise"), _transposed, _connected, _product)
    for i in range(count):
        yield makers[(0, 1, 0, 1, 2, 3, 0, 1, 4)[i % 9]](one)


ON = [pytest.param(n, marks=pytest.mark.arm if "cortex" in n else pytest.mark.cc) for n in BUILDS]


@pytest.mark.parametrize("name", ON)
def test_variants_compute_what_plain_kernels_do(name: str) -> None:
    graphs = list(layers(63, seed=len(name)))
    chosen = [bool(legal(call, core(name))) for g in graphs for call in g.ops[0].spec.calls(g.ops[0])]
    assert sum(chosen) > 0.6 * len(chosen), "most layers have a variant"
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(graphs, inputs, run_on(name, graphs, inputs), strict=True):
        assert_agree(got, interp(graph, given))
