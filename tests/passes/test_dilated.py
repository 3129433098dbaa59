"""recognize_dilated_conv and fold_crop."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.ir import Array, Quant, Value
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pad import Pad
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import slice_axes
from edgec.ops.unary import Relu, Relu6
from tests.passes.chain import Chain

Pair = tuple[int, int]
Q = Quant.per_tensor(0.05, -3)
PLAIN = Conv2D()
PASS = "recognize_dilated_conv"


def to_batch(b: Chain, x: Value, block: Pair) -> Value:
    """As the TFLite front-end reads SPACE_TO_BATCH_ND."""
    (n, h, w, c), (by, bx) = x.type.shape, block
    y = b.add(Reshape((n, h // by, by, w // bx, bx, c)), [x])
    y = b.add(Transpose((2, 4, 0, 1, 3, 5)), [y])
    return b.add(Reshape((n * by * bx, h // by, w // bx, c)), [y])


def to_space(b: Chain, x: Value, block: Pair) -> Value:
    """As it reads BATCH_TO_SPACE_ND."""
    (n, h, w, c), (by, bx) = x.type.shape, block
    y = b.add(Reshape((by, bx, n // (by * bx), h, w, c)), [x])
    y = b.add(Transpose((2, 3, 0, 4, 1, 5)), [y])
    return b.add(Reshape((n // (by * bx), h * by, w * bx, c)), [y])


def int8(b: Chain, *shape: int) -> Value:
    data: Array = b.rng.integers(-127, 128, shape).astype(np.int8)
    return b.const(data, "w", Quant.per_tensor(0.01))


@pytest.mark.parametrize("block", [(2, 2), (3, 1), (2, 4)])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_between_blocks_is_dilated(block: Pair, batch: int) -> None:
    b = Chain()
    y = to_batch(b, b.x(batch, 12, 12, 3), block)
    y = b.add(Conv2D(pads=(1, 0, 0, 1)), [y, b.weights(5, 2, 3, 3), b.weights(5)])
    done = b.done(to_space(b, y, block)).run(PASS).kinds("conv2d").same().settles(PASS)
    spec = done.graph.ops[0].spec
    assert isinstance(spec, Conv2D)
    assert spec.dilation == block
    assert spec.pads == (block[0], 0, 0, block[1])


def test_int8_stays_bit_exact_with_border_and_crop() -> None:
    b = Chain()
    x = b.add(Pad(((0, 0), (2, 3), (2, 3), (0, 0))), [b.x(1, 7, 7, 3, quant=Q)])
    y = b.add(
        DepthwiseConv2D(act="relu"),
        [to_batch(b, x, (2, 2)), int8(b, 1, 3, 3, 3)],
        quant=Quant.per_tensor(0.1),
    )
    y = to_space(b, y, (2, 2))
    y = b.add(slice_axes(y.type, {1: (0, 7, 1), 2: (0, 7, 1)}), [y])
    done = (
        b.done(y).run(PASS, "fold_pad", "fold_crop").kinds("depthwise_conv2d").same(0)
    )
    assert done.graph.ops[0].spec == DepthwiseConv2D(
        pads=(2, 2, 2, 2), dilation=(2, 2), act="relu"
    )


def test_what_treats_every_pixel_alike_moves_too() -> None:
    b = Chain()
    y = b.add(Conv2D(), [to_batch(b, b.x(1, 8, 8, 3), (2, 2)), b.weights(4, 2, 2, 3)])
    y = b.add(Relu6(), [b.add(Add(), [y, b.weights(4)])])
    y = b.add(Conv2D(dilation=(2, 1)), [y, b.weights(4, 2, 2, 4)])
    done = (
        b.done(to_space(b, y, (2, 2)))
        .run(PASS)
        .kinds("conv2d", "add", "relu6", "conv2d")
        .same()
    )
    spec = done.graph.ops[-1].spec
    assert isinstance(spec, Conv2D)
    assert spec.dilation == (4, 2)


def test_what_treats_images_or_pixels_unlike_stays() -> None:
    def chain(
        spec: Conv2D = PLAIN,
        back: Pair = (2, 2),
        term: tuple[int, ...] = (),
        shared: bool = False,
    ) -> None:
        b = Chain()
        y = b.add(spec, [to_batch(b, b.x(1, 8, 8, 3), (2, 2)), b.weights(4, 2, 2, 3)])
        other = [b.add(Relu(), [y])] if shared else []
        y = b.add(Add(), [y, b.weights(*term)]) if term else y
        b.done(to_space(b, y, back), *other).settles(PASS)

    chain(Conv2D((2, 2)))
    chain(back=(4, 1))
    chain(term=(4, 1, 1, 1))
    chain(term=(3, 3, 4))
    chain(shared=True)


@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
def test_a_crop_takes_from_the_border(stride: Pair) -> None:
    b = Chain()
    spec = Conv2D(stride, (2, 4, 3, 3))
    y = b.add(spec, [b.x(1, 9, 9, 3), b.weights(4, 3, 3, 3), b.weights(4)])
    _, h, w, _ = y.type.shape
    y = b.add(slice_axes(y.type, {1: (1, h - 2, 1), 2: (1, w - 2, 1)}), [y])
    done = b.done(y).run("fold_crop").kinds("conv2d").same()
    assert done.graph.ops[0].spec == Conv2D(
        stride, (2 - stride[0], 4 - stride[0], 3 - stride[1], 3 - stride[1])
    )


@pytest.mark.parametrize(
    "taken",
    [{1: (2, 5, 1)}, {1: (0, 4, 2)}, {3: (0, 2, 1)}, {1: (0, 5, 1)}],
    ids=["before", "steps", "channels", "after"],
)
def test_a_crop_of_more_than_the_border_stays(
    taken: dict[int, tuple[int, int, int]],
) -> None:
    b = Chain()
    y = b.add(Conv2D(pads=(1, 1, 1, 1)), [b.x(1, 7, 7, 3), b.weights(4, 3, 3, 3)])
    b.done(b.add(slice_axes(y.type, taken), [y])).settles("fold_crop")
