"""Elementwise ops that follow a layer are done on its sums, by every family of float
kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, OpDef, TensorType, Value, interp
from edgec.ops.activation import Clamp, Elu, Gelu, HardSigmoid, LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.norm import InstanceNorm
from edgec.ops.prelu import PRelu
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import HardSwish, Logistic, Relu, Tanh
from edgec.schedule.cores import core
from edgec.schedule.steps import schedule
from edgec.schedule.variant import legal
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

IMAGE = (1, 7, 9, 20)
LAYERS: Sequence[tuple[OpDef, tuple[int, ...], tuple[int, ...], int]] = (
    (Conv2D(pads=(1, 1, 1, 1)), IMAGE, (11, 3, 3, 20), 11),
    (Conv2D(pads=(1, 1, 1, 1)), (1, 11, 14, 16), (27, 3, 3, 16), 27),
    (Conv2D(act="relu6"), IMAGE, (24, 1, 1, 20), 24),
    (DepthwiseConv2D(pads=(1, 1, 1, 1), act="relu"), IMAGE, (1, 3, 3, 20), 20),
    (DepthwiseConv2D((2, 2), (1, 2, 1, 2)), IMAGE, (1, 5, 5, 20), 20),
    (DepthwiseConv2D(pads=(0, 0, 3, 3)), IMAGE, (1, 1, 7, 20), 20),
    (TransposeConv2D((2, 2), (0, 1, 0, 1)), IMAGE, (35, 3, 3, 20), 35),
    (FullyConnected(), (5, 20), (19, 20), 19),
)
CHAINS = (
    "add",
    "add relu",
    "prelu",
    "add prelu",
    "hard_swish",
    "add hard_swish",
    "leaky",
    "clamp",
    "relu add clamp",
    "silu",
    "add silu",
    "logistic",
    "clamp tanh",
    "gelu",
    "elu",
    "hard_gate",
)
NORM = (InstanceNorm(), (2, 7, 9, 20), (20,), 20)
AFTER_NORM = ("add", "relu", "add relu", "clamp", "relu add clamp")
GATES = {"silu": Logistic(), "hard_gate": HardSigmoid(1 / 6, 0.5)}


def _graph(
    layer: tuple[OpDef, tuple[int, ...], tuple[int, ...], int], chain: str
) -> Graph:
    spec, shape, weights, channels = layer
    rng = np.random.default_rng(len(chain))
    build = Builder("chain")
    x = build.input("x", TensorType(shape))
    # sums, as networks have them
    near_one = rng.normal(size=weights) / np.sqrt(np.prod(weights) / channels)
    w, b = (
        build.const(a.astype(np.float32), n)
        for n, a in (("w", near_one), ("b", rng.normal(size=(channels,))))
    )
    slope = build.const(rng.normal(size=(channels,)).astype(np.float32), "slope")
    y = build.add(spec, [x, w, b], "y")
    for i, name in enumerate(chain.split()):
        other = build.input(f"other{i}", y.type) if name == "add" else slope
        specs: dict[str, tuple[OpDef, list[Value]]] = {
            "add": (Add("relu6" if chain == "add" else "none"), [other, y]),
            "relu": (Relu(), [y]),
            "prelu": (PRelu(), [y, slope]),
            "hard_swish": (HardSwish(), [y]),
            "leaky": (LeakyRelu(0.3), [y]),
            "clamp": (Clamp(-0.5, 2.0), [y]),
            "logistic": (Logistic(), [y]),
            "tanh": (Tanh(), [y]),
            "gelu": (Gelu(), [y]),
            "elu": (Elu(0.7, 1.5), [y]),
        }
        if name in GATES:
            y = build.add(Mul(), [y, build.add(GATES[name], [y], f"gate{i}")], f"y{i}")
        else:
            y = build.add(*specs[name], f"y{i}")
    build.graph.outputs = [y]
    return build.graph


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", on(*WIDTHS))
def test_what_follows_is_done_on_the_sums(name: str) -> None:
    graphs = [_graph(layer, chain) for layer in LAYERS for chain in CHAINS]
    graphs += [_graph(NORM, chain) for chain in AFTER_NORM]
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    want = [interp(g, given) for g, given in zip(graphs, inputs, strict=True)]
    for graph in graphs:
        assert segment_source(graph, "seg", core(name)).text.count("EK_OP void") == 1
    for graph, got, expected in zip(
        graphs, run_on(name, graphs, inputs), want, strict=True
    ):
        assert_agree(got, expected, of=graph)


def test_a_function_is_not_called_for_a_few_floats() -> None:
    layer = (TransposeConv2D((2, 2), (0, 1, 0, 1)), IMAGE, (1, 3, 3, 20), 1)
    for chain, steps in (("relu", 1), ("logistic", 2)):
        assert len(schedule(_graph(layer, chain), core("cortex_a72")).steps) == steps


def test_what_the_kernels_cannot_do_at_once_is_refused() -> None:
    for chain in (
        "prelu add",
        "hard_swish relu",
        "add add",
        "prelu prelu",
        "tanh add",
        "logistic relu",
        "tanh gelu",
    ):
        graph = _graph(LAYERS[0], chain)
        first, *then = (call for op in graph.ops for call in op.spec.calls(op))
        assert legal(replace(first, then=tuple(then)), core("cortex_a72")) == []
