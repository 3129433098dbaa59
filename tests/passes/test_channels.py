"""Channels that are constant go, and what they added stays: the outputs are the same."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Array, Builder, Graph, TensorType, Value, interp, verify
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.conv import DepthwiseConv2D
from edgec.ops.matmul import BatchMatMul, FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D, MaxPool2D
from edgec.ops.prelu import PRelu
from edgec.ops.reduce import Mean
from edgec.ops.resize import ResizeBilinear
from edgec.ops.shape import Reshape
from edgec.ops.softmax import Softmax
from edgec.ops.unary import Relu
from edgec.passes.dead_channels import run
from edgec.passes.pipeline import optimize
from tests.quantize.nets import NETS, Net, random_net, samples

DEAD = (1, 4)


def kill(net: Net, v: Value, *channels: int, bias: float | None = None) -> Value:
    """Let these filters of the convolution that writes v be nothing beside the others."""
    (op,) = (op for op in net.build.graph.ops if op.output is v)
    w, b = (c.const for c in op.inputs[1:])
    assert w is not None
    assert b is not None
    index = (Ellipsis, [*channels]) if op.kind == "depthwise_conv2d" else ([*channels],)
    w[index] *= 1e-20
    if bias is not None:
        b[[*channels]] = bias
    return v


def checked(graph: Graph, shrinks: bool = True) -> Graph:
    """The outputs stay; whether there is less to compute."""
    plain = graph.copy()
    before = macs(graph)
    tries = samples(graph, 3)
    want = [interp(graph, s) for s in tries]
    assert run(graph) == shrinks
    while run(graph):
        pass
    verify(graph, "canonical")
    assert (macs(graph) < before) == shrinks
    assert [v.type for v in graph.outputs] == [v.type for v in plain.outputs]
    for s, ys in zip(tries, want, strict=True):
        for name, y in interp(graph, s).items():
            np.testing.assert_allclose(y, ys[name], rtol=1e-5, atol=1e-5)
    return graph


def macs(graph: Graph) -> int:
    return sum(op.spec.macs(op) for op in graph.ops)


def channels(graph: Graph, kind: str = "conv2d") -> list[int]:
    return [op.output.type.shape[-1] for op in graph.ops if op.kind == kind]


def test_a_constant_goes_into_the_bias_behind() -> None:
    """0.5 behind a relu, over a window without border; the shared bias of another op
    stays as it was.
    """
    net = Net("c", 1)
    y = kill(net, net.conv(net.input(1, 8, 8, 3), 6), *DEAD, bias=0.5)
    graph = net.done(net.conv(y, 5, 1, act="none"))
    last = graph.ops[-1].inputs[2].const
    assert last is not None
    old = last.copy()
    checked(graph)
    assert channels(graph) == [4, 5]
    new = graph.ops[-1].inputs[2].const
    assert new is not None
    assert not np.allclose(new, old)
    np.testing.assert_array_equal(last, old)


def test_a_product_without_a_bias_gets_one() -> None:
    net = Net("c", 1)
    y = kill(net, net.conv(net.input(1, 8, 8, 3), 6), *DEAD, bias=0.5)
    graph = net.done(
        net.op(FullyConnected(), net.op(Mean((1, 2), False), y), net.const(4, 6))
    )
    checked(graph)
    assert channels(graph) == [4]
    assert len(graph.ops[-1].inputs) == 3


@pytest.mark.parametrize(("bias", "goes"), [(-1.0, True), (0.5, False)])
def test_behind_a_border_only_zeros_go(bias: float, goes: bool) -> None:
    """A window of 3 x 3 sees 0.5 inside and 0 outside: not the same at every pixel."""
    net = Net("c", 2)
    y = kill(net, net.conv(net.input(1, 8, 8, 3), 6, act="relu"), *DEAD, bias=bias)
    checked(net.done(net.conv(y, 5, 3, act="none")), goes)


def test_through_depthwise_pools_pads_and_activations() -> None:
    net = Net("c", 3)
    y = kill(net, net.conv(net.input(1, 9, 9, 3), 6, act="none"), *DEAD, bias=-1.0)
    y = net.op(Relu(), y)
    y = net.op(MaxPool2D((2, 2), (2, 2), (0, 0, 0, 0)), y)
    y = net.depthwise(y)
    y = net.op(Pad(((0, 0), (1, 0), (0, 1), (0, 0))), net.op(LeakyRelu(0.1), y))
    y = net.op(
        ResizeBilinear((7, 7)), net.op(AveragePool2D((2, 2), (1, 1), (0, 0, 0, 0)), y)
    )
    y = net.op(Mul(), net.op(PRelu(), y, net.const(1, 1, 6)), net.const(6))
    graph = net.done(net.conv(y, 5, 1, act="none"))
    # the depthwise convolution's bias makes them alive at its border, behind a border
    # of zeros
    checked(graph, False)
    for op in graph.ops:
        if op.kind == "depthwise_conv2d":
            bias = op.inputs[2].const
            assert bias is not None
            bias[[*DEAD]] = -0.5
    checked(graph)
    assert channels(graph) == [4, 5]
    assert channels(graph, "depthwise_conv2d") == [4]


def test_a_depthwise_filter_that_is_nothing_takes_its_input_along() -> None:
    net = Net("c", 4)
    y = net.conv(net.input(1, 8, 8, 3), 6)
    y = kill(net, net.depthwise(y), *DEAD, bias=0.7)
    graph = net.done(net.conv(y, 5, 1, act="none"))
    checked(graph)
    assert channels(graph) == [4, 5]


@pytest.mark.parametrize(
    ("other", "goes"), [(DEAD, True), ((1,), True), ((0, 2), False)]
)
def test_an_addition_ties_both_its_sides(other: tuple[int, ...], goes: bool) -> None:
    """What is dead on one side alone stays; that each side is constant where the other
    is not does not help.
    """
    net = Net("c", 5)
    x = net.input(1, 8, 8, 3)
    a = kill(net, net.conv(x, 6), *DEAD, bias=0.5)
    b = kill(net, net.conv(x, 6), *other, bias=0.25)
    graph = net.done(net.conv(net.op(Add("relu"), a, b), 5, 1, act="none"))
    checked(graph, goes)
    gone = len({*DEAD} & {*other})
    assert channels(graph) == [6 - gone, 6 - gone, 5]


def test_a_concatenation_keeps_track_of_whose_they_are() -> None:
    net = Net("c", 6)
    x = net.input(1, 8, 8, 3)
    a = kill(net, net.conv(x, 6), *DEAD, bias=0.5)
    b = kill(net, net.conv(x, 4), 3, bias=1.5)
    graph = net.done(net.conv(net.op(Concat(3), a, b, a), 5, 1, act="none"))
    checked(graph)
    assert channels(graph) == [4, 3, 5]
    assert graph.ops[2].output.type.shape[-1] == 11


def test_rows_of_a_flattened_image_go_pixel_by_pixel() -> None:
    net = Net("c", 7)
    y = kill(net, net.conv(net.input(1, 4, 4, 3), 6), *DEAD, bias=0.5)
    graph = net.done(
        net.op(
            FullyConnected(),
            net.op(Reshape((1, 96)), y),
            net.const(5, 96),
            net.const(5),
        )
    )
    checked(graph)
    assert graph.ops[1].output.type.shape == (1, 64)


def test_what_softmax_or_an_output_reads_stays() -> None:
    net = Net("c", 8)
    y = kill(net, net.conv(net.input(1, 4, 4, 3), 6, act="none"), *DEAD, bias=0.5)
    checked(net.done(net.op(Softmax(), y)), False)
    net = Net("c", 8)
    y = kill(net, net.conv(net.input(1, 4, 4, 3), 6), *DEAD, bias=0.5)
    checked(net.done(y, net.conv(y, 3, 1)), False)


def test_an_output_that_is_constant_has_no_channels() -> None:
    """The anchors of an SSD are an output; here they are the weights of a layer, too."""
    net = Net("c", 8)
    y = kill(net, net.conv(net.input(1, 4, 4, 3), 6, act="none"), *DEAD, bias=0.5)
    y = net.conv(y, 3, 1)
    weights = net.build.graph.ops[-1].inputs[1]
    anchors = net.const(1, 6, 4)
    checked(net.done(y, anchors, weights))


@pytest.mark.parametrize("first", [False, True])
def test_scalars_have_no_channels(first: bool) -> None:
    """A sum with a computed one stays as it is, and so does one that becomes a row."""
    net = Net("c", 10)
    scalar = net.op(Relu(), net.input(name="s"))
    y = kill(net, net.conv(net.input(1, 8, 8, 3), 6), *DEAD, bias=0.5)
    y = net.op(Add(), *((scalar, y) if first else (y, scalar)))
    row = net.op(Reshape((1,)), scalar)
    checked(net.done(net.conv(y, 5, 1, act="none"), row), False)


def test_of_a_layer_that_is_all_dead_one_channel_stays() -> None:
    net = Net("c", 9)
    y = kill(net, net.conv(net.input(1, 4, 4, 3), 6), *range(6), bias=0.5)
    (op,) = net.build.graph.ops
    w = op.inputs[1].const
    assert w is not None
    w[:] = 0
    graph = net.done(net.conv(y, 3, 1, act="none"))
    tries = samples(graph, 2)
    want = [interp(graph, s) for s in tries]
    run(graph)
    assert channels(graph) == [1, 3]
    for s, ys in zip(tries, want, strict=True):
        for name, got in interp(graph, s).items():
            np.testing.assert_allclose(got, ys[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_with_dead_filters_compute_the_same(seed: int) -> None:
    graph = random_net(seed)
    rng = np.random.default_rng(seed)
    for op in graph.ops:
        if op.kind in ("conv2d", "depthwise_conv2d"):
            w, b = (v.const for v in op.inputs[1:])
            assert w is not None
            assert b is not None
            some: Array = rng.random(len(b)) < 0.4
            w[(Ellipsis, some) if op.kind == "depthwise_conv2d" else (some,)] *= 0.0
    plain = graph.copy()
    tries = samples(graph, 2)
    made = optimize(graph)
    for s in tries:
        want = interp(plain, s)
        for name, y in interp(made, s).items():
            np.testing.assert_allclose(y, want[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NETS)
def test_where_nothing_is_dead_nothing_changes(name: str) -> None:
    assert not run(NETS[name]())


def test_values_without_channels_are_left_alone() -> None:
    """A product of empty tensors beside a convolution that has dead channels: all its
    channels are dead, and none.
    """
    build = Builder("empty")
    empty = build.const(np.zeros((2, 0, 1, 7), np.float32), "empty")
    product = build.add(
        BatchMatMul(), [empty, build.input("rows", TensorType((0, 7, 0)))], "product"
    )
    weights = build.const(np.zeros((1, 1, 1, 6), np.float32), "weights")
    bias = build.const(np.arange(6, dtype=np.float32), "bias")
    image = build.input("image", TensorType((2, 4, 5, 6)))
    build.graph.outputs = [
        build.add(DepthwiseConv2D(), [image, weights, bias], "y"),
        product,
    ]
    rng = np.random.default_rng(0)
    inputs = {
        "rows": np.zeros((0, 7, 0), np.float32),
        "image": rng.standard_normal((2, 4, 5, 6)).astype(np.float32),
    }
    want = interp(build.graph, inputs)
    optimize(build.graph)
    for name, y in interp(build.graph, inputs).items():
        np.testing.assert_array_equal(y, want[name])
