"""Rewrites of data movement: what they leave of well-known patterns, what they must
leave alone, random chains.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import pytest
from edgec_partitioner.legalize import legalize
from edgec_partitioner.verdicts import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.compiler.lower import lower
from edgec.ir import Builder, Graph, Quant, TensorType, Value, interp
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.pad import Pad
from edgec.ops.scan import TopK
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu
from edgec.options.compile import CompileOptions
from tests.harness import random_inputs

Q = Quant.per_tensor(0.05, -7)


class Net:
    """An int8 graph in the making; `x` is its input."""

    def __init__(self, *shape: int) -> None:
        self.build = Builder("moves")
        self.x = self.build.input("x", TensorType(shape, "int8", Q))

    def conv(self, x: Value, kernel: int = 3, pad: int = 0, low: int = -127) -> Value:
        """8 output channels, weights from `low` to 127."""
        weights = (
            np.random.default_rng(0)
            .integers(low, 128, (8, kernel, kernel, x.type.shape[3]))
            .astype(np.int8)
        )
        inputs = [x, self.build.const(weights, "w", Quant.per_tensor(0.01))]
        return self.build.add(
            Conv2D(pads=(pad,) * 4), inputs, quant=Quant.per_tensor(0.3, 5)
        )

    def phase(self, x: Value, row: int, column: int, step: int = 2) -> Value:
        """Every `step`-th row and column."""
        _, h, w, _ = x.type.shape
        ranges = {
            1: (row, (h - row - 1) // step + 1, step),
            2: (column, (w - column - 1) // step + 1, step),
        }
        return self.build.add(slice_axes(x.type, ranges), [x])

    def focus(self, x: Value) -> Value:
        """The four phases, in YOLOX's order."""
        return self.build.add(
            Concat(3),
            [self.phase(x, row, column) for column in (0, 1) for row in (0, 1)],
        )

    def shuffle(self, x: Value, groups: int) -> Value:
        """ShuffleNet's."""
        _, h, w, c = x.type.shape
        y = self.build.add(Reshape((1, h, w, groups, c // groups)), [x])
        return self.build.add(
            Reshape(x.type.shape), [self.build.add(Transpose((0, 1, 2, 4, 3)), [y])]
        )

    def done(self, *outputs: Value) -> Graph:
        self.build.graph.outputs = list(outputs)
        return self.build.graph


def legal(graph: Graph) -> Graph:
    """The graph rewritten, which must compute the same."""
    result, _ = legalize(graph, exact=True)
    inputs = random_inputs(graph)
    got = interp(result, inputs)
    for name, want in interp(graph, inputs).items():
        np.testing.assert_array_equal(got[name], want)
    return result


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def macs(graph: Graph) -> int:
    return sum(op.spec.macs(op) for op in graph.ops)


def test_a_focus_becomes_part_of_the_convolution_behind_it() -> None:
    net = Net(1, 16, 20, 3)
    graph = net.done(net.conv(net.focus(net.x), pad=1))
    result = legal(graph)
    assert kinds(result) == ["conv2d"]
    assert result.ops[0].inputs[1].type.shape == (8, 6, 6, 3)
    assert vars(result.ops[0].spec)["stride"] == (2, 2)
    assert macs(result) == macs(graph)


def test_a_shuffle_between_convolutions_costs_nothing() -> None:
    net = Net(1, 6, 5, 12)
    graph = net.done(net.conv(net.shuffle(net.x, 3), kernel=1))
    result = legal(graph)
    assert kinds(result) == ["conv2d"]
    assert macs(result) == macs(graph)


def test_both_readers_of_a_shuffle_are_served() -> None:
    net = Net(1, 6, 5, 12)
    shuffled = net.shuffle(net.x, 3)
    result = legal(
        net.done(net.conv(shuffled), net.build.add(Relu(), [shuffled], quant=Q))
    )
    # the shuffle is a convolution of its own
    assert Counter(kinds(result)) == {"conv2d": 2, "relu": 1}
    assert not any(refusals(op) for op in result.ops)


def test_large_weights_of_a_channel_taken_twice_are_not_summed() -> None:
    net = Net(1, 5, 5, 4)
    shuffled = net.shuffle(net.x, 2)
    twice = net.build.add(Concat(3), [shuffled, shuffled])
    result = legal(net.done(net.conv(twice, kernel=1, low=100)))
    assert len([op for op in result.ops if op.kind == "conv2d"]) == 2


def test_padding_around_overlapping_phases_is_not_the_image_s() -> None:
    net = Net(1, 11, 11, 2)
    wide = [net.phase(net.x, row, 0) for row in (0, 2)]
    shorter = net.build.add(slice_axes(wide[0].type, {1: (0, 5, 1)}), [wide[0]])
    result = legal(
        net.done(net.conv(net.build.add(Concat(3), [shorter, wide[1]]), pad=1))
    )
    assert len([op for op in result.ops if op.kind == "conv2d"]) == 2


def test_a_wide_mirrored_border_stays() -> None:
    net = Net(1, 20, 20, 3)
    graph = net.done(
        net.build.add(Pad(((0, 0), (9, 9), (9, 9), (0, 0)), "reflect"), [net.x])
    )
    assert kinds(legal(graph)) == ["pad"]


def test_moves_that_map_are_left_alone() -> None:
    net = Net(1, 6, 6, 8)
    halves = [
        net.build.add(slice_axes(net.x.type, {3: (at, 4, 1)}), [net.x]) for at in (4, 0)
    ]
    graph = net.done(net.build.add(Concat(3), halves))
    assert kinds(legal(graph)) == kinds(graph)


def test_ops_with_two_results_are_no_moves() -> None:
    net = Net(1, 6, 5, 12)
    shuffled = net.shuffle(net.x, 3)
    values, indices = net.build.add_multi(TopK(4, axis=3), [shuffled])
    result = legal(net.done(net.conv(shuffled, kernel=1), values, indices))
    assert "topk" in kinds(result)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_random_chains_of_moves_keep_their_results(seed: int) -> None:
    legal(random_moves(np.random.default_rng(seed)))


def random_moves(rng: np.random.Generator) -> Graph:
    """Up to 8 moves of values chosen at random; one or two of them are read, perhaps by
    a convolution.
    """
    net = Net(1, *(int(n) for n in rng.choice([2, 4, 6], 2)), int(rng.choice([4, 8])))
    values = [net.build.add(Relu(), [net.x], quant=Q)]
    for _ in range(int(rng.integers(1, 9))):
        values.append(
            _move(
                net.build,
                rng,
                values[max(0, len(values) - int(rng.integers(1, 4)))],
                values,
            )
        )
    read = dict.fromkeys([values[-1], values[int(rng.integers(len(values)))]])
    return net.done(*(_read(net, rng, v) for v in read))


def _move(
    build: Builder, rng: np.random.Generator, x: Value, values: list[Value]
) -> Value:
    shape = x.type.shape
    kind = int(rng.integers(4))
    if kind == 0:
        return build.add(Reshape(_regrouped(rng, shape)), [x])
    if kind == 1:
        return build.add(
            Transpose(tuple(int(p) for p in rng.permutation(len(shape)))), [x]
        )
    if kind == 2:
        axis = int(rng.integers(len(shape)))
        begin = int(rng.integers(shape[axis]))
        step = int(rng.choice([-1, 1, 2]))
        most = (shape[axis] - 1 - begin) // step + 1 if step > 0 else begin + 1
        return build.add(
            slice_axes(x.type, {axis: (begin, int(rng.integers(1, most + 1)), step)}),
            [x],
        )
    axis = int(rng.integers(len(shape)))
    rest = (*shape[:axis], *shape[axis + 1 :])
    fit = [
        v
        for v in values
        if v.type.rank == len(shape)
        and (*v.type.shape[:axis], *v.type.shape[axis + 1 :]) == rest
    ]
    return build.add(Concat(axis), [x, *fit[: int(rng.integers(1, 3))]])


def _regrouped(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A dimension split in two, or two joined; or an image again."""
    how = int(rng.integers(3))
    i = int(rng.integers(len(shape)))
    if how == 0 and len(shape) < 6:
        by = int(rng.choice([d for d in range(1, shape[i] + 1) if shape[i] % d == 0]))
        return (*shape[:i], shape[i] // by, by, *shape[i + 1 :])
    if how == 1 and i + 1 < len(shape):
        return (*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :])
    size = prod(shape)
    h = int(rng.choice([d for d in (1, 2, 3, 4) if size % d == 0]))
    w = int(rng.choice([d for d in (1, 2, 4) if size // h % d == 0]))
    return (1, h, w, size // h // w)


def _read(net: Net, rng: np.random.Generator, x: Value) -> Value:
    shape = x.type.shape
    if len(shape) == 4 and shape[0] == 1 and rng.integers(2):
        return net.conv(
            x, kernel=int(rng.choice([k for k in (1, 2, 3) if k <= min(shape[1:3])]))
        )
    return net.build.add(Relu(), [x], quant=Q)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "rewrite"),
    [
        ("fastestdet_onnx/fastestdet_onnx.onnx", "channel_shuffle"),
        ("yolox_nano_416/yolox_nano_416.onnx", "strided_slice"),
        ("deeplab_dm05_u8/deeplab_dm05_u8.tflite", "tile_one_pixel"),
    ],
)
def test_real_models_become_one_region(shared: Path, file: str, rewrite: str) -> None:
    parts = lower(
        shared / "models" / file, CompileOptions(target="pi4+coral"), assume=True
    ).partition
    assert rewrite in {a.rewrite for a in parts.applied}
    assert sum(s.place == "edgetpu" for s in parts.segments) == 1
    on_cpu = [op for op in parts.graph.ops if parts.segment_of[op].place == "cpu"]
    assert not any(op.kind in ("slice", "depthwise_conv2d") for op in on_cpu)
    # A last convolution comes to the CPU where its output is wider than its input.
    for op in on_cpu:
        if op.kind == "conv2d":
            assert op.output.type.size > op.inputs[0].type.size
