"""Shapes that no sample has: no element at all, ranks that differ, outputs that nobody
reads.
"""

from __future__ import annotations

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from benchmarks.fuzzing.graphs import random_graph
from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, OpDef, Quant, Rounding, TensorType, interp, verify
from edgec.ops.binary import Mul
from edgec.ops.bits import ShiftLeft
from edgec.ops.cast import Cast
from edgec.ops.channel_norm import L2Norm, LocalResponseNorm
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.detection import Detections
from edgec.ops.grid_sample import GridSample
from edgec.ops.matmul import BatchMatMul, FullyConnected
from edgec.ops.norm import BatchNorm, InstanceNorm
from edgec.ops.pool import AveragePool2D
from edgec.ops.prelu import PRelu
from edgec.ops.quantize import Dequantize
from edgec.ops.reduce import Mean, Sum
from edgec.ops.softmax import LogSoftmax
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import Tanh
from edgec.passes.pipeline import optimize
from edgec.schedule.cores import core
from tests.harness import assert_agree, random_inputs, run_c

F32 = "float32"
S8 = Quant.per_tensor(0.05, -7)


def _graph(spec: OpDef, *types: TensorType) -> Graph:
    b = Builder("odd")
    b.graph.outputs = b.add_multi(spec, [b.input("x", t) for t in types], "y")
    return b.graph


@pytest.mark.cc
@pytest.mark.parametrize(
    ("spec", "types"),
    [
        (InstanceNorm(), [TensorType((8, 0, 0)), TensorType((0,)), TensorType((0,))]),
        (
            InstanceNorm(),
            [TensorType((0, 1, 7, 3)), TensorType((3,)), TensorType((3,))],
        ),
        (LogSoftmax(), [TensorType((5, 0))]),
        (L2Norm(), [TensorType((4, 2, 8, 0), "int8", S8)]),
        (L2Norm(rounding=Rounding.TFLITE_UINT8), [TensorType((0,), "int8", S8)]),
    ],
)
def test_a_result_without_elements_needs_no_kernel(
    spec: OpDef, types: list[TensorType]
) -> None:
    graph = _graph(spec, *types)
    inputs = random_inputs(graph)
    got = interp(graph, inputs)
    assert [a.size for a in got.values()] == [0]
    assert_agree(run_c(graph, inputs), got)
    assert_agree(interp(optimize(graph), inputs), got)


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        (Conv2D(), [(1, 4, 4, 0), (2, 3, 3, 0)]),
        (Conv2D(), [(1, 4, 4, 2), (2, 3, 3, 0)]),
        (DepthwiseConv2D(), [(1, 4, 4, 0), (1, 3, 3, 2)]),
        (TransposeConv2D(pads=(1, 1, 1, 1)), [(1, 4, 4, 0), (1, 0, 0, 0)]),
        (FullyConnected(), [(3, 0), (2, 0)]),
        (GridSample(), [(2, 4, 0, 16), (2, 8, 2, 2)]),
        (Concat(1), [(2, 3), (2,)]),
        (AveragePool2D(pads=(1, 1, 1, 1)), [(7, 3, 0, 2)]),
        (L2Norm(), [()]),
        (LocalResponseNorm(2, 2), [()]),
    ],
)
def test_types_that_do_not_fit_are_a_value_error(
    spec: OpDef, types: list[tuple[int, ...]]
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each says something else)
        spec.infer(*(TensorType(shape) for shape in types))


@pytest.mark.parametrize("spec", [Mean((1, 2)), Sum((1,))])
def test_no_quantized_mean_of_nothing(spec: OpDef) -> None:
    with pytest.raises(ValueError, match="have no element"):
        spec.infer(TensorType((8, 0, 3, 3), "int8", S8))


def test_random_shapes_raise_nothing_else() -> None:
    for number in range(300):
        verify(random_graph(11, number), "partitioned")


def test_plain_int8_that_folds_to_a_constant_is_legal() -> None:
    b = Builder("g")
    c = b.const(np.ones((2, 3), np.int8), "c", S8)
    b.graph.outputs = [b.add(Cast("int8"), [b.add(Dequantize(), [c])], "y")]
    graph = optimize(b.graph)
    verify(graph, "partitioned")
    assert not graph.ops


@pytest.mark.parametrize("name", ["x86_64_v3", "cortex_a72"])
def test_schedules_take_constants_and_products_of_nothing(name: str) -> None:
    b = Builder("g")
    channel = [b.const(np.full(6, 1 + i, F32), "k") for i in range(4)]
    image = b.const(np.ones((1, 4, 5, 6), F32), "image")
    y = b.add(Tanh(), [b.add(BatchNorm(), [image, *channel])], "y")
    empty = [
        b.input("a", TensorType((17, 3, 7, 0))),
        b.input("b", TensorType((17, 3, 0, 8))),
    ]
    b.graph.outputs = [y, b.add(BatchMatMul(), empty, "product")]
    source = segment_source(b.graph, "seg", core(name))
    assert "ek_batch_matmul_f32_simd(" not in source.text


@pytest.mark.cc
@pytest.mark.parametrize("size", [(1, 0, 2, 7), (3, 2, 0, 7), (2, 0, 0, 7)])
def test_a_transposed_convolution_of_nothing_is_its_bias(size: tuple[int, ...]) -> None:
    b = Builder("g")
    weights = b.const(np.ones((2, 5, 4, 7), F32), "w")
    bias = b.const(np.array([1.5, -2], F32), "bias")
    b.graph.outputs = [
        b.add(
            TransposeConv2D((2, 2)),
            [b.input("x", TensorType(size)), weights, bias],
            "y",
        )
    ]
    inputs = random_inputs(b.graph)
    got = interp(b.graph, inputs)
    np.testing.assert_array_equal(
        got["y"], np.broadcast_to(np.array([1.5, -2], F32), got["y"].shape)
    )
    assert_agree(run_c(b.graph, inputs), got)


@pytest.mark.cc
def test_boxes_without_numbers_overlap_none() -> None:
    """As in TFLite, which leaves out what overlaps more than it may."""
    sample = next(iter(Detections.samples()))
    b = Builder("g")
    values = [
        b.input("boxes", sample.args[0].type),
        b.input("scores", sample.args[1].type),
    ]
    assert sample.args[2].data is not None
    values.append(b.const(sample.args[2].data, "anchors"))
    b.graph.outputs = b.add_multi(sample.spec, values, "y")[3:]
    inputs = {v.name: np.full(v.type.shape, np.inf, F32) for v in b.graph.inputs}
    got = interp(b.graph, inputs)
    assert list(got.values()) == [10.0]
    assert_agree(run_c(b.graph, inputs), got)


@pytest.mark.cc
@pytest.mark.parametrize("spec", [PRelu(), Mul(), Mul(rounding=Rounding.ONNXRUNTIME)])
def test_scales_whose_quotient_float32_does_not_hold(spec: OpDef) -> None:
    b = Builder("g")
    x, y = (TensorType((2, 3), "int8", Quant.per_tensor(s)) for s in (1e20, 3e25))
    b.graph.outputs = [
        b.add(spec, [b.input("x", x), b.input("y", y)], "z", Quant.per_tensor(1e-9))
    ]
    inputs = {
        "x": np.array([[-9, 0, 9], [-1, 1, 0]], np.int8),
        "y": np.array([[1, -1, 0], [2, -3, 5]], np.int8),
    }
    got = interp(b.graph, inputs)
    assert set(got["z"].ravel().tolist()) <= {-128, 0, 127}
    assert_agree(run_c(b.graph, inputs), got)


@pytest.mark.cc
def test_outputs_that_nobody_reads() -> None:
    spec = Detections(5, 1, (10.0, 10.0, 5.0, 5.0), 0.1, 0.5)
    sample = next(iter(Detections.samples()))
    b = Builder("g")
    boxes, classes, anchors = sample.args
    anchor = np.random.default_rng(0).uniform(0.1, 1, anchors.type.shape).astype(F32)
    values = [
        b.input("boxes", boxes.type),
        b.input("classes", classes.type),
        b.const(anchor, "anchors"),
    ]
    b.graph.outputs = b.add_multi(spec, values, "y")[3:]
    inputs = random_inputs(b.graph)
    assert_agree(run_c(b.graph, inputs), interp(b.graph, inputs))


@pytest.mark.cc
def test_the_ends_of_64_bits() -> None:
    far = np.array([-1e20, -9.3e18, 0, 9.3e18, 1e20, 4e9], np.float32)
    for dtype in ("int64", "uint64", "int32"):
        graph = _graph(Cast(dtype), TensorType((6,)))
        got = interp(graph, {"x": far})["y"]
        info = np.iinfo(dtype)
        assert (got[0], got[4]) == (info.min, info.max)
        assert_agree(run_c(graph, {"x": far}), {"y": got}, of=graph)
    graph = _graph(ShiftLeft(), TensorType((4,), "uint64"), TensorType((4,), "uint64"))
    values = {
        "x": np.array([2**64 - 292, 1, 2**60, 5], np.uint64),
        "x_1": np.array([0, 63, 3, 64], np.uint64),
    }
    got = interp(graph, values)["y"]
    assert got.tolist() == [2**64 - 292, 2**63, 2**63, 0]
    assert_agree(run_c(graph, values), {"y": got})
