"""Support rules at their bounds: the largest size seen mapped, the smallest refused,
and the gap between.
"""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.verdicts import Answer, verdicts

from edgec.ir import Builder, OpDef, Quant, TensorType
from edgec.ops.binary import Add, Mul
from edgec.ops.concat import Concat
from edgec.ops.reduce import Mean, Sum
from edgec.ops.resize import ResizeBilinear, ResizeNearest
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.slice import Slice
from edgec.ops.softmax import Softmax
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import Logistic

Q = Quant.per_tensor(0.1, 3)
Shape = tuple[int, ...]

CASES: list[tuple[str, OpDef, tuple[Shape, ...], Answer]] = [
    (
        "v16 refused 112896, mapped 69696",
        Transpose((0, 3, 1, 2)),
        ((1, 22, 22, 144),),
        "edgetpu",
    ),
    ("", Transpose((0, 3, 1, 2)), ((1, 25, 25, 144),), "uncertain"),
    ("", Transpose((0, 3, 1, 2)), ((1, 28, 28, 144),), "cpu"),
    ("", Reshape((1, 94400)), ((1, 118, 100, 8),), "edgetpu"),
    ("", Reshape((1, 144, 1225)), ((1, 144, 35, 35),), "uncertain"),
    ("", Reshape((1, 144, 1600)), ((1, 144, 40, 40),), "cpu"),
    ("a detector's head", Reshape((1, 1600, 3, 85)), ((1, 40, 40, 255),), "edgetpu"),
    ("", Reshape((1, 6400, 3, 85)), ((1, 80, 80, 255),), "cpu"),
    ("", Reshape((1, 4800, 85)), ((1, 1600, 3, 85),), "cpu"),
    ("nothing moves", Reshape((80, 80, 255)), ((1, 80, 80, 255),), "edgetpu"),
    ("four live dimensions", Reshape((1, 96, 96, 2, 128)), ((1, 96, 96, 256),), "cpu"),
    ("", Mean((1, 2)), ((1, 7, 7, 1280),), "edgetpu"),
    ("", Mean((1, 2)), ((1, 8, 8, 1280),), "uncertain"),
    ("", Mean((1, 2)), ((1, 256, 128, 3),), "cpu"),
    ("", Mean((3,)), ((1, 8, 8, 6),), "cpu"),
    ("only MEAN wants a multiple of 4", Sum((3,)), ((1, 8, 8, 6),), "edgetpu"),
    ("", Sum((0,)), ((2, 8),), "cpu"),
    ("one row, MobileDet's head", Concat(1), ((1, 1200, 91), (1, 834, 91)), "edgetpu"),
    ("", Concat(1), ((1, 64, 1500), (1, 80, 1500)), "uncertain"),
    ("", Concat(1), ((1, 2352, 85), (1, 588, 85), (1, 147, 85)), "cpu"),
    ("an image", Concat(3), ((1, 160, 160, 32), (1, 160, 160, 32)), "edgetpu"),
    ("", Logistic(), ((1, 80, 756),), "edgetpu"),
    ("", Logistic(), ((1, 80, 2541),), "uncertain"),
    ("", Logistic(), ((1, 80, 8400),), "cpu"),
    ("", Logistic(), ((1, 160, 160, 64),), "edgetpu"),
    ("", Slice((0, 0, 0), (1, 64, 8400), (1, 1, 1)), ((1, 144, 8400),), "cpu"),
    ("", Slice((0, 0, 0), (1, 2, 8400), (1, 1, 1)), ((1, 4, 8400),), "edgetpu"),
    ("", Slice((0, 0, 0, 0), (1, 4, 8, 3), (1, 2, 1, 1)), ((1, 8, 8, 3),), "cpu"),
    ("", Mul(), ((1, 2048, 1024), (1, 2048, 1024)), "uncertain"),
    ("", Add(), ((1, 128, 128, 48), (1, 128, 128, 48)), "edgetpu"),
    ("", Add(), ((30, 8, 8, 3), (30, 8, 8, 3)), "cpu"),
    ("", Softmax(), ((1, 16384),), "edgetpu"),
    ("", Softmax(), ((1, 4, 8400, 16),), "edgetpu"),
    ("", Softmax(), ((1, 16385),), "uncertain"),
    ("", ResizeBilinear((48, 48)), ((1, 24, 24, 24),), "edgetpu"),
    ("", ResizeBilinear((96, 96)), ((1, 24, 24, 24),), "uncertain"),
    ("", ResizeBilinear((33, 33), "align_corners"), ((1, 1, 1, 256),), "cpu"),
    ("", ResizeBilinear((33, 33), "align_corners"), ((1, 33, 33, 19),), "edgetpu"),
    ("", ResizeBilinear((48, 48), "align_corners"), ((1, 24, 24, 24),), "uncertain"),
    ("", ResizeBilinear((513, 513), "align_corners"), ((1, 33, 33, 19),), "cpu"),
    ("", ResizeBilinear((12, 12)), ((1, 24, 24, 24),), "uncertain"),
    ("", ResizeNearest((80, 80), "asymmetric"), ((1, 40, 40, 128),), "edgetpu"),
    ("", ResizeNearest((160, 160), "asymmetric"), ((1, 80, 80, 64),), "uncertain"),
]


@pytest.mark.parametrize(("why", "spec", "shapes", "answer"), CASES, ids=lambda v: None)
def test_bounds(
    why: str, spec: OpDef, shapes: tuple[Shape, ...], answer: Answer
) -> None:
    b = Builder("one")
    inputs = [b.input(f"x{i}", TensorType(s, "int8", Q)) for i, s in enumerate(shapes)]
    b.graph.outputs = [
        b.add(
            spec,
            inputs,
            "y",
            spec.fixed_quant() if spec.kind in ("softmax", "logistic") else Q,
        )
    ]
    (verdict,) = verdicts(b.graph).values()
    assert verdict.answer == answer, (spec, shapes, verdict, why)


@pytest.mark.parametrize(
    ("kernel", "size", "answer"),
    [
        (3, (128, 32), "edgetpu"),
        (2, (32, 32), "uncertain"),
        (3, (256, 32), "uncertain"),
    ],
)
def test_transposed_convolutions(
    kernel: int, size: tuple[int, int], answer: Answer
) -> None:
    b, (side, channels) = Builder("up"), size
    x = b.input("x", TensorType((1, side // 2, side // 2, 8), "int8", Q))
    w = b.const(
        np.zeros((channels, kernel, kernel, 8), np.int8), "w", Quant.per_tensor(0.02)
    )
    pads = (0, kernel - 2, 0, kernel - 2)
    b.graph.outputs = [b.add(TransposeConv2D((2, 2), pads), [x, w], "y", Q)]
    (verdict,) = verdicts(b.graph).values()
    assert verdict.answer == answer, verdict
