"""Elementwise calls join the call that makes their operand: where that may be, and only
there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, Quant, TensorType, Value, interp
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.prelu import PRelu
from edgec.ops.unary import HardSwish, Logistic, Relu
from edgec.schedule.cores import PLAIN, core
from edgec.schedule.steps import schedule
from edgec.schedule.variant import Rules
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import on
from tests.schedule.runner import run_on

CHANNELS = 16
IMAGE = TensorType((1, 6, 17, CHANNELS))


def _weights(b: Builder, *shape: int) -> Value:
    return b.const(
        np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32), "w"
    )


def _conv(b: Builder, x: Value, name: str) -> Value:
    return b.add(Conv2D(), [x, _weights(b, CHANNELS, 1, 1, CHANNELS)], name)


def _depthwise(b: Builder, x: Value, name: str) -> Value:
    return b.add(
        DepthwiseConv2D((1, 1), (1, 1, 1, 1)), [x, _weights(b, 1, 3, 3, CHANNELS)], name
    )


def _add(b: Builder, one: Value, two: Value, name: str) -> Value:
    return b.add(Add(), [one, two], name)


def _residual(b: Builder, x: Value) -> list[Value]:
    """A block with a residual, PReLU and hard-swish."""
    y = b.add(PRelu(), [_depthwise(b, x, "dw"), _weights(b, CHANNELS)], "prelu")
    y = b.add(
        PRelu(),
        [_add(b, x, _conv(b, y, "conv"), "add"), _weights(b, CHANNELS)],
        "prelu2",
    )
    return [b.add(HardSwish(), [_depthwise(b, y, "dw2")], "swish")]


def _branches(b: Builder, x: Value) -> list[Value]:
    """A sum of two branches, of which the earlier waits for the later: that one takes
    the sum.
    """
    left = _conv(b, x, "left")
    right = _conv(b, b.add(Relu(), [_depthwise(b, x, "dw")], "relu"), "right")
    return [b.add(Relu(), [_add(b, left, right, "add")], "relu_of_sum")]


def _later(b: Builder, x: Value) -> list[Value]:
    """A sum with what another kind of op makes later: the convolution waits for it."""
    left = _conv(b, x, "left")
    return [_add(b, left, b.add(Relu(), [x], "right"), "add")]


def _read_twice(b: Builder, x: Value) -> list[Value]:
    """Results that others read too, or that the graph returns, stay."""
    y = _conv(b, x, "y")
    out = _conv(b, x, "out")
    return [
        b.add(HardSwish(), [y], "swish"),
        b.add(Relu(), [y], "relu"),
        b.add(HardSwish(), [out], "swish2"),
        out,
    ]


def _itself(b: Builder, x: Value) -> list[Value]:
    """Twice a result is no residual."""
    y = _conv(b, x, "y")
    return [_add(b, y, y, "twice")]


def _joined(b: Builder, x: Value) -> list[Value]:
    """A concat of channels: each convolution writes its own, what others read too is
    copied.
    """
    one = _conv(b, x, "one")
    two = b.add(HardSwish(), [_depthwise(b, x, "two")], "swish")
    three = _residual(b, x)[0]
    added = _add(b, x, _conv(b, x, "conv"), "sum")
    joined = b.add(
        Concat(3), [one, three, x, two, _depthwise(b, x, "four"), added], "joined"
    )
    return [b.add(Relu(), [joined], "relu"), b.add(Relu(), [three], "relu2")]


def _gated(b: Builder, x: Value) -> list[Value]:
    """SiLU of each kind of layer, joined by channels; not where the gate or what it
    gates is wanted elsewhere.
    """

    def silu(v: Value, name: str) -> tuple[Value, Value]:
        gate = b.add(Logistic(), [v], f"gate_{name}")
        return gate, b.add(Mul(), [gate, v], f"silu_{name}")

    _, one = silu(_conv(b, x, "one"), "one")
    _, two = silu(_depthwise(b, one, "two"), "two")
    _, three = silu(
        b.add(Conv2D(), [two, _weights(b, 32, 1, 1, CHANNELS)], "three"), "three"
    )
    gate, four = silu(_conv(b, x, "four"), "four")
    return [
        b.add(Relu(), [b.add(Concat(3), [two, three], "joined")], "relu"),
        b.add(Relu(), [gate], "relu2"),
        four,
    ]


CORES = on("cortex_a53", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni")

SILU = "logistic mul"
WANTED: dict[Callable[[Builder, Value], list[Value]], list[str]] = {
    _residual: [
        "depthwise_conv2d prelu",
        "conv2d add prelu",
        "depthwise_conv2d hard_swish",
    ],
    _branches: ["conv2d", "depthwise_conv2d relu", "conv2d add relu"],
    _later: ["relu", "conv2d add"],
    _read_twice: ["conv2d", "conv2d", "hard_swish", "relu", "hard_swish"],
    _itself: ["conv2d", "add"],
    _gated: [
        f"conv2d {SILU}",
        f"depthwise_conv2d {SILU}",
        f"conv2d {SILU} concat",
        "conv2d",
        "logistic",
        "mul",
        "concat",
        "relu",
        "relu",
    ],
    _joined: [
        "conv2d concat",
        "depthwise_conv2d hard_swish concat",
        "depthwise_conv2d prelu",
        "conv2d add prelu",
        "depthwise_conv2d hard_swish",
        "conv2d add",
        "depthwise_conv2d concat",
        "concat",
        "relu",
        "relu",
    ],
}


def graph_of(build: Callable[[Builder, Value], list[Value]]) -> Graph:
    b = Builder("g")
    b.graph.outputs = build(b, b.input("x", IMAGE))
    return b.graph


@pytest.mark.parametrize("build", WANTED)
def test_calls_join_the_maker_of_their_operand(
    build: Callable[[Builder, Value], list[Value]],
) -> None:
    graph = graph_of(build)
    steps = schedule(graph, core("cortex_a76"), Rules(chains=False)).steps
    assert [" ".join(graph.ops[i].kind for i in step.ops) for step in steps] == WANTED[
        build
    ]
    assert [step.at for step in steps] == sorted({step.at for step in steps})
    assert all(len(step.ops) == 1 for step in schedule(graph, PLAIN).steps), (
        "plain kernels join nothing"
    )


def test_what_is_joined_takes_no_memory_and_keeps_its_mark() -> None:
    graph = graph_of(_residual)
    plain = segment_source(graph, "s")
    fused = segment_source(graph, "s", core("cortex_a76"))
    assert fused.functions == plain.functions
    assert fused.calls == plain.calls
    assert fused.plan.lower_bound <= plain.plan.lower_bound
    names = {graph.ops[i].output.name for i in (0, 2, 3)}
    apart = segment_source(graph, "s", rules=Rules(views=False))
    assert names & set(apart.plan.offsets) == names
    assert not names & set(fused.plan.offsets)


@pytest.mark.parametrize("name", CORES)
def test_fused_code_computes_what_the_graph_means(name: str) -> None:
    graphs = [graph_of(build) for build in WANTED]
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


def _joined_int8() -> Graph:
    """Int8 convolutions, pointwise and with strides that are joined by channels."""
    b = Builder("g")
    q = Quant.per_tensor(0.1, 3)
    x = b.input("x", TensorType((1, 9, 8, 5), "int8", q))
    rng = np.random.default_rng(1)

    def conv(k: int, stride: int, o: int) -> Value:
        w = rng.integers(-127, 128, (o, k, k, 5)).astype(np.int8)
        weights = b.const(w, "w", Quant(tuple(rng.uniform(0.01, 0.02, o)), (0,) * o, 0))
        pad = k // 2
        bias = b.const(rng.integers(-999, 999, o).astype(np.int32), "bias")
        return b.add(
            Conv2D((stride, stride), (pad, pad, pad, pad)),
            [x, weights, bias],
            f"conv{k}{stride}",
            q,
        )

    ones = [conv(1, 1, 7), conv(3, 1, 16), x, conv(5, 1, 3)]
    twos = [conv(3, 2, 4), conv(1, 2, 33)]
    b.graph.outputs = [
        b.add(Relu(), [b.add(Concat(3), part, "joined", q)], "y", q)
        for part in (ones, twos)
    ]
    return b.graph


def test_int8_convolutions_write_to_a_concat() -> None:
    graph = _joined_int8()
    steps = schedule(graph, core("cortex_a76"), Rules(chains=False)).steps
    assert [len(s.ops) for s in steps if graph.ops[s.ops[0]].kind == "conv2d"] == [
        2
    ] * 5


@pytest.mark.parametrize("name", CORES)
def test_joined_int8_code_is_exact(name: str) -> None:
    graph = _joined_int8()
    given = random_inputs(graph)
    (got,) = run_on(name, [graph], [given])
    wanted = interp(graph, given)
    assert {k: v.tobytes() for k, v in got.items()} == {
        k: v.tobytes() for k, v in wanted.items()
    }
