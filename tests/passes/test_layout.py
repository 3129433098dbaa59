"""layout and sink_transposes: where transposes end up, and that nothing else changes."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgec.ir import Graph, Quant, Value
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.gather import Gather
from edgec.ops.matmul import FullyConnected
from edgec.ops.pad import Pad
from edgec.ops.pool import AveragePool2D
from edgec.ops.shape import Reshape, Transpose, from_nhwc, to_nhwc
from edgec.ops.slice import Slice
from edgec.ops.unary import Relu, Tanh
from edgec.passes._storage import inverse, only_moves_ones
from edgec.passes.pipeline import available, optimize
from edgec.passes.sink_transposes import through_reshape
from tests.passes.chain import Chain, Check

Q = Quant.per_tensor(0.05, -3)
LAYOUT = ("cancel_transposes", "layout", "sink_transposes", "common_subexpressions")


def conv(b: Chain, x: Value, channels: int = 4) -> Value:
    """An NCHW convolution as the ONNX front-end imports it."""
    y = b.add(
        Conv2D(pads=(1, 1, 1, 1)),
        [to_nhwc(b, x), b.weights(channels, 3, 3, x.type.shape[1])],
    )
    return from_nhwc(b, y)


def pooled(b: Chain, x: Value) -> Value:
    """Global average pooling in NCHW."""
    h, w = x.type.shape[2:]
    return from_nhwc(b, b.add(AveragePool2D((h, w), (1, 1)), [to_nhwc(b, x)]))


def body(check: Check) -> list[str]:
    """The kinds between the transposes of the border, which there may be at most one of
    per input and output.
    """
    kinds = [op.kind for op in check.graph.ops]
    border = 0
    while kinds and kinds[0] == "transpose":
        kinds.pop(0)
        border += 1
    while kinds and kinds[-1] == "transpose":
        kinds.pop()
        border += 1
    assert border <= len(check.graph.inputs) + len(check.graph.outputs)
    return kinds


def settled(check: Check) -> Check:
    """Layout until it settles, with what cancels transposes."""
    optimize(check.graph, [name for name in available() if name not in LAYOUT])
    return check


def test_a_residual_block_is_nhwc_inside() -> None:
    b = Chain()
    x = b.add(Relu(), [conv(b, b.x(1, 3, 8, 8))])
    y = b.add(Relu(), [b.add(Mul(), [conv(b, x), b.weights(4, 1, 1)])])
    z = b.add(Add(), [conv(b, y), x])
    check = settled(b.done(conv(b, b.add(Tanh(), [z])))).same()
    assert "transpose" not in body(check)


def test_one_change_in_one_pass() -> None:
    b = Chain()
    y = b.add(Relu(), [conv(b, b.x(1, 3, 8, 8))])
    b.done(conv(b, y)).run("layout").delta(transpose=-2).same().settles(
        "layout", "cancel_transposes"
    )


def test_ties_go_to_channels_last() -> None:
    b = Chain()
    x = b.add(Tanh(), [b.x(1, 3, 8, 8)])
    check = b.done(b.add(Tanh(), [conv(b, x)])).run("layout").same().settles("layout")
    check.kinds("transpose", "tanh", "conv2d", "tanh", "transpose")


def test_squeeze_and_excite() -> None:
    b = Chain()
    x = conv(b, b.x(1, 3, 8, 8))
    gate = b.add(Tanh(), [conv(b, b.add(Relu(), [pooled(b, x)]))])
    check = settled(b.done(conv(b, b.add(Mul(), [x, gate])))).same()
    assert "transpose" not in body(check)


def test_a_gate_that_was_flat() -> None:
    b = Chain()
    x = conv(b, b.x(1, 3, 8, 8))
    flat = b.add(Reshape((1, 4)), [pooled(b, x)])
    gate = b.add(
        Reshape((1, 4, 1, 1)), [b.add(FullyConnected(), [flat, b.weights(4, 4)])]
    )
    check = b.done(conv(b, b.add(Mul(), [x, gate])))
    optimize(check.graph)
    assert "transpose" not in body(check.same())


def test_joins_slices_and_borders_move_along() -> None:
    b = Chain()
    x = conv(b, b.x(1, 3, 8, 8))
    halves = [
        b.add(Slice((0, i, 0, 0), (1, 2, 8, 8), (1, 1, 1, 1)), [x]) for i in (0, 2)
    ]
    y = b.add(Concat(1), [halves[1], b.add(Relu(), [halves[0]]), x])
    y = b.add(Pad(((0, 0), (0, 1), (1, 0), (0, 2)), "reflect"), [y])
    check = settled(b.done(conv(b, y))).same()
    assert "transpose" not in body(check)


def test_channels_that_are_picked_move_along() -> None:
    b = Chain()
    picked = b.add(
        Gather(1), [conv(b, b.x(1, 3, 8, 8)), b.const(np.array([3, 0, 2, 0], np.int32))]
    )
    check = settled(b.done(conv(b, picked))).same()
    assert "transpose" not in body(check)


def test_the_input_joins_a_later_value() -> None:
    b = Chain()
    x = b.x(1, 3, 8, 8)
    check = settled(b.done(b.add(Add(), [conv(b, conv(b, x), 3), x]))).same()
    check.kinds("transpose", "conv2d", "conv2d", "add", "transpose")


def test_the_lesser_bytes_move() -> None:
    b = Chain()
    x = conv(b, b.x(1, 3, 8, 8), 8)
    small = b.x(1, 1, 8, 8, name="small")
    small = b.add(
        Reshape((1, 1, 8, 8)), [b.add(Tanh(), [b.add(Reshape((64,)), [small])])]
    )
    check = settled(b.done(conv(b, b.add(Add(), [x, small])))).same()
    moved = [op.inputs[0].type.size for op in check.graph.ops if op.kind == "transpose"]
    assert max(moved) <= 4 * 64


def test_a_model_that_is_nhwc_at_its_border() -> None:
    b = Chain()
    x = b.add(Transpose((0, 3, 1, 2)), [b.x(1, 8, 8, 3)])
    y = b.add(Transpose((0, 2, 3, 1)), [b.add(Relu(), [conv(b, x)])])
    settled(b.done(b.add(Reshape((1, 64, 4)), [y]))).same().kinds(
        "conv2d", "relu", "reshape"
    )


def test_an_image_as_tokens() -> None:
    b = Chain()
    y = b.add(Reshape((1, 4, 64)), [conv(b, b.x(1, 3, 8, 8))])
    tokens = b.add(
        FullyConnected(), [b.add(Transpose((0, 2, 1)), [y]), b.weights(4, 4)]
    )
    back = b.add(Reshape((1, 4, 8, 8)), [b.add(Transpose((0, 2, 1)), [tokens])])
    check = settled(b.done(conv(b, back))).same()
    assert "transpose" not in body(check)


def test_a_channel_shuffle_leaves_one_transpose() -> None:
    b = Chain()
    y = b.add(Reshape((1, 2, 4, 8, 8)), [conv(b, b.x(1, 3, 8, 8), 8)])
    y = b.add(Reshape((1, 8, 8, 8)), [b.add(Transpose((0, 2, 1, 3, 4)), [y])])
    check = settled(b.done(conv(b, y))).same()
    assert body(check) == ["conv2d", "reshape", "transpose", "reshape", "conv2d"]


def test_a_flattened_image_sorts_the_weights() -> None:
    b = Chain()
    flat = b.add(Reshape((1, 256)), [conv(b, b.x(1, 3, 8, 8))])
    check = (
        b.done(b.add(FullyConnected(), [flat, b.weights(5, 256)]))
        .run("sink_transposes")
        .same()
    )
    check.kinds("transpose", "conv2d", "reshape", "fully_connected")


def test_a_flattened_int8_image_sorts_the_weights() -> None:
    b = Chain()
    x = b.add(Transpose((0, 3, 1, 2)), [b.x(1, 3, 3, 4, quant=Q)])
    w = b.const(
        b.rng.integers(-127, 128, (5, 36)).astype(np.int8),
        "w",
        Quant((0.01,) * 5, (0,) * 5, 0),
    )
    y = b.add(FullyConnected(), [b.add(Reshape((1, 36)), [x]), w], quant=Q)
    b.done(y).run("sink_transposes").kinds("reshape", "fully_connected").same()


def test_two_readers_share_one_transpose() -> None:
    b = Chain()
    x = b.x(1, 3, 8, 8)
    check = settled(b.done(conv(b, x), conv(b, x))).same()
    assert [op.kind for op in check.graph.ops].count("transpose") == 3


def test_outputs_keep_their_names() -> None:
    b = Chain()
    y = conv(b, b.x(1, 3, 8, 8))
    z = b.add(Relu(), [y])
    settled(b.done(y, z, b.add(Transpose((0, 2, 3, 1)), [z], "last"))).same()


def test_what_only_moves_ones() -> None:
    assert only_moves_ones((0, 3, 1, 2), (2, 1, 1, 5))
    assert not only_moves_ones((0, 3, 1, 2), (1, 2, 1, 5))
    assert inverse((0, 2, 3, 1)) == (0, 3, 1, 2)


COIN = st.booleans()
SHAPES = st.lists(st.integers(1, 4), min_size=2, max_size=5).map(tuple)


@st.composite
def reshaped(
    draw: st.DrawFn,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A shape, a permutation of it, and a shape that joins and splits axes of the
    permuted one.
    """
    shape = draw(SHAPES)
    perm = tuple(draw(st.permutations(range(len(shape)))))
    target: list[int] = []
    for d in (shape[p] for p in perm):
        if bool(target) and draw(COIN):
            target[-1] *= d
        elif d == 4 and draw(COIN):
            target += [2, 2]
        else:
            target.append(d)
    return shape, perm, tuple(target)


@given(reshaped())
def test_every_plan_is_the_same_reshape(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    shape, perm, target = case
    x = np.arange(np.prod(shape)).reshape(shape)
    plan = through_reshape(shape, perm, target)
    if plan is not None:
        got = x.transpose(plan.inner).reshape(plan.shape).transpose(plan.outer)
        np.testing.assert_array_equal(got, x.transpose(perm).reshape(target))


@given(st.randoms(use_true_random=False))
def test_random_nets_keep_their_numbers_and_move_less(random: Random) -> None:
    b = Chain()
    values = [b.x(1, 4, 6, 6)]
    for _ in range(8):
        values.append(_random_op(b, values, random))
    check = b.done(*values[-2:])
    settled(check).same(1e-4, copies=1)
    assert _moved(check.graph) <= _moved(check.before)
    check.settles("layout", "sink_transposes", "cancel_transposes")


def _random_op(b: Chain, values: list[Value], random: Random) -> Value:
    choice, x, other = random.randrange(7), random.choice(values), random.choice(values)
    if choice == 0:
        return b.add(Tanh(), [x])
    if choice == 1:
        return b.add(Add(), [x, other])
    if choice == 2:
        return b.add(Mul(), [x, b.weights(4, 1, 1)])
    if choice == 3:
        return b.add(
            Slice((0, 2, 0, 0), (1, 4, 6, 6), (1,) * 4), [b.add(Concat(1), [x, other])]
        )
    if choice == 4:
        return b.add(
            Reshape((1, 4, 6, 6)), [b.add(Relu(), [b.add(Reshape((1, 4, 36)), [x])])]
        )
    return conv(b, x)


def _moved(graph: Graph) -> int:
    return sum(op.output.type.nbytes for op in graph.ops if op.kind == "transpose")
