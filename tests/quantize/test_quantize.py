"""float → int8: near the float model, and equal in every way of running it."""

from __future__ import annotations

import numpy as np
import pytest
from edgec_partitioner.legalize import legalize
from hypothesis import given
from hypothesis import strategies as st

from edgec.errors import InputError
from edgec.ir import Builder, Graph, Op, Quant, TensorType, interp, verify
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.common import quantize_bias
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.norm import BatchNorm, InstanceNorm
from edgec.ops.pool import MaxPool2D
from edgec.ops.shape import Reshape
from edgec.ops.transpose_conv import TransposeConv2D
from edgec.ops.unary import LOGISTIC_QUANT, Logistic, Relu
from edgec.quantize import (
    assumed,
    calibrate,
    compare,
    is_quantized,
    quantize,
    quantize_ranges,
)
from edgec.quantize.change.params import (
    activation_quant,
    quantize_activation,
    quantize_weight,
    weight_quant,
)
from tests.harness import assert_agree, run_c, run_tflite
from tests.quantize.nets import NETS, Net, samples

FINITE = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize("name", NETS)
def test_int8_is_near_float(name: str) -> None:
    graph = NETS[name]()
    tries = samples(graph)
    q = quantize(graph, tries)
    verify(q, "quantized")
    assert is_quantized(q)
    assert not is_quantized(graph)
    assert [(v.name, v.type) for v in q.inputs] == [
        (v.name, v.type) for v in graph.inputs
    ]
    assert [(v.name, v.type) for v in q.outputs] == [
        (v.name, v.type) for v in graph.outputs
    ]
    for agreement in compare((interp(graph, s), interp(q, s)) for s in tries).values():
        assert agreement.cosine > 0.99
        assert agreement.sqnr_db > 18


@pytest.mark.cc
@pytest.mark.parametrize("name", NETS)
def test_c_is_interp(name: str) -> None:
    graph = NETS[name]()
    q = quantize(graph, samples(graph))
    inputs = samples(graph, 1, seed=9)[0]
    assert_agree(run_c(q, inputs), interp(q, inputs))


@pytest.mark.parametrize("name", NETS)
def test_tflite_reference_kernels_are_interp(name: str) -> None:
    graph = NETS[name]()
    q = legalize(quantize(graph, samples(graph)), exact=True)[0]
    inputs = samples(graph, 1, seed=9)[0]
    for key, y in run_tflite(q, inputs).items():
        np.testing.assert_array_equal(y, interp(q, inputs)[key])


def test_an_op_without_int8_form_is_between_conversions() -> None:
    net = Net("mixed")
    y = net.conv(net.input(1, 6, 6, 3), 4)
    y.name = "first"
    side = net.op(
        Conv2D(pads=(1, 1, 1, 1)),
        y,
        net.op(Reshape((4, 3, 3, 4)), net.const(144)),
        net.const(4),
    )
    q = quantize(net.done(net.conv(side, 2)), samples(net.build.graph))
    kinds = [op.kind for op in q.ops]
    assert kinds == [
        "quantize",
        "conv2d",
        "reshape",
        "dequantize",
        "conv2d",
        "quantize",
        "conv2d",
        "dequantize",
    ]


def test_light_islands_between_float_ops_stay_float() -> None:
    """A computed weight keeps a convolution float; additions between two such are not
    worth conversions.
    """
    net = Net("island")
    w = net.op(Reshape((3, 1, 1, 3)), net.input(9, name="w"))
    x = net.op(Conv2D(), net.input(1, 4, 4, 3), w)
    y = net.op(Add(), net.op(Add(), x, net.const(3)), net.const(3))
    graph = net.done(net.op(Conv2D(), y, w))
    assert not is_quantized(quantize(graph, samples(graph)))


def test_a_function_of_what_is_float_stays_float() -> None:
    """Its result is rounded, not what it reads too; a bias that the norm takes away
    again costs no rounding either.
    """
    net = Net("norms")
    x = net.conv(net.input(1, 8, 8, 3), 8, act="none")
    y = net.op(Relu(), net.op(InstanceNorm(), x, net.const(8), net.const(8)))
    up = net.op(TransposeConv2D(stride=(2, 2)), y, net.const(6, 2, 2, 8), net.const(6))
    z = net.op(LeakyRelu(0.1), net.op(InstanceNorm(), up, net.const(6), net.const(6)))
    graph = net.done(net.conv(net.op(MaxPool2D(), z), 4, act="none"))
    tries = samples(graph)
    q = quantize(graph, tries)
    between = ["dequantize", "instance_norm"]
    assert [op.kind for op in q.ops] == [
        *("quantize", "conv2d", *between, "relu", "quantize"),
        *(
            "transpose_conv2d",
            *between,
            "leaky_relu",
            "quantize",
            "max_pool2d",
            "conv2d",
            "dequantize",
        ),
    ]
    for agreement in compare((interp(graph, s), interp(q, s)) for s in tries).values():
        assert agreement.sqnr_db > 30


def test_a_view_follows_its_neighbours() -> None:
    net = Net("view")
    x = net.op(Reshape((1, 4, 4, 3)), net.input(48))
    y = net.op(Reshape((1, 32)), net.conv(x, 2))
    q = quantize(net.done(y), samples(net.build.graph))
    assert [op.kind for op in q.ops] == [
        "quantize",
        "reshape",
        "conv2d",
        "reshape",
        "dequantize",
    ]


def test_concat_shares_a_scale_and_requantizes_prescribed_ones() -> None:
    q = quantize(NETS["joined"](), samples(NETS["joined"]()))
    concat = next(op for op in q.ops if op.kind == "concat")
    assert {v.type.quant for v in concat.inputs} == {concat.output.type.quant}
    producers = q.producers()
    assert [producers[v].kind for v in concat.inputs] == ["quantize", "mul", "conv2d"]
    assert producers[concat.inputs[0]].inputs[0].type.quant == LOGISTIC_QUANT


def test_concat_of_prescribed_scales_keeps_them() -> None:
    net = Net("gates")
    y = net.conv(net.input(1, 4, 4, 3), 4)
    gates = [net.op(Logistic(), net.conv(y, 2)) for _ in range(2)]
    q = quantize(net.done(net.op(Concat(3), *gates)), samples(net.build.graph))
    assert [op.kind for op in q.ops].count("quantize") == 1
    assert (
        next(op for op in q.ops if op.kind == "concat").output.type.quant
        == LOGISTIC_QUANT
    )


def test_a_batch_norm_of_its_own_becomes_a_convolution() -> None:
    net = Net("norm")
    x = net.input(1, 5, 5, 3)
    variance = net.build.const(np.array([0.5, 1, 2], np.float32))
    y = net.op(BatchNorm(), x, net.const(3), net.const(3), net.const(3), variance)
    z = net.op(Relu(), y)
    graph = net.done(
        net.conv(z, 4, act="none"),
        net.op(BatchNorm(), z, net.const(3), net.const(3), net.const(3), variance),
    )
    tries = samples(graph)
    q = quantize(graph, tries)
    assert [op.kind for op in q.ops] == [
        "quantize",
        *["depthwise_conv2d", "conv2d"],
        "depthwise_conv2d",
    ] + 2 * ["dequantize"]
    assert [op.kind for op in graph.ops].count("batch_norm") == 2
    for agreement in compare((interp(graph, s), interp(q, s)) for s in tries).values():
        assert agreement.sqnr_db > 25


@pytest.mark.parametrize(
    ("act", "bias", "behind"),
    [
        ("none", 1.0, ["add"]),
        ("relu", 1.0, ["add"]),
        ("relu6", 0.0, ["relu6"]),
        ("none", 0.0, []),
        ("relu", None, ["relu"]),
    ],
)
def test_transposed_convolutions_lose_bias_and_activation(
    act: str, bias: float | None, behind: list[str]
) -> None:
    net = Net("up")
    x = net.input(1, 4, 4, 3)
    w = net.const(2, 2, 2, 3)
    graph = net.done(
        net.op(
            TransposeConv2D((2, 2), act=act),
            x,
            w,
            *([net.const(2, scale=bias)] if bias is not None else []),
        )
    )
    tries = samples(graph)
    q = quantize(graph, tries)
    assert [op.kind for op in q.ops] == [
        "quantize",
        "transpose_conv2d",
        *behind,
        "dequantize",
    ]
    assert len(q.ops[1].inputs) == 2
    for agreement in compare((interp(graph, s), interp(q, s)) for s in tries).values():
        assert agreement.sqnr_db > 25


def test_unlike_ranges_are_joined_in_float_at_the_end_only() -> None:
    """Boxes and scores of a detector: one scale for both would leave the scores few
    steps.
    """
    net = Net("detector")
    y = net.conv(net.input(1, 4, 4, 3), 4)
    boxes = net.op(Mul(), net.conv(y, 4), net.const(scale=100.0))
    scores = net.op(Logistic(), net.conv(y, 2))
    end = net.op(Reshape((1, 96)), net.op(Concat(3), boxes, scores))
    graph = net.done(end)
    tries = samples(graph)
    kinds = [op.kind for op in quantize(graph, tries).ops]
    assert kinds[-4:] == ["dequantize", "dequantize", "concat", "reshape"]
    net.done(net.conv(net.op(Reshape((1, 4, 4, 6)), end), 2))
    kinds = [op.kind for op in quantize(graph, tries).ops]
    assert kinds.count("dequantize") == 1


def test_names_survive() -> None:
    graph = NETS["head"]()
    q = quantize(graph, samples(graph))
    assert {v.name for v in graph.values() if v.const is None} <= {
        v.name for v in q.values()
    }


def test_one_dequantize_serves_all_readers() -> None:
    graph = NETS["head"]()
    middle = graph.outputs[1]
    graph.outputs.append(middle)
    q = quantize(graph, samples(graph))
    assert q.outputs[1] is q.outputs[2]


def test_an_output_that_is_an_input_passes_through() -> None:
    net = Net("through")
    x = net.input(1, 4, 4, 3)
    graph = net.done(net.conv(x, 2), x)
    q = quantize(graph, samples(graph))
    assert q.outputs[1] is q.inputs[0]


def test_assumed_scales_need_no_data() -> None:
    q = assumed(NETS["residual"]())
    verify(q, "quantized")
    assert [op.kind for op in q.ops] == [
        op.kind for op in assumed(NETS["residual"]()).ops
    ]


def test_networks_that_take_minutes_have_even_scales() -> None:
    """86 G multiply-accumulates, which numpy would take half a minute and 30 GB for."""
    net = Net("vast")
    q = assumed(net.done(net.conv(net.input(1, 20_000, 20_000, 3), 8)))
    verify(q, "quantized")
    assert [op.inputs[0].type.dtype for op in q.ops if op.kind == "conv2d"] == ["int8"]


def test_calibration_without_samples() -> None:
    graph = NETS["chain"]()
    with pytest.raises(InputError, match="no calibration sample"):
        calibrate(graph, [])


def test_ranges_ignore_what_is_not_finite() -> None:
    net = Net("inf")
    x = net.input(4)
    graph = net.done(net.op(Add(), x, x))
    ranges = calibrate(graph, [{"x": np.array([1, -2, np.inf, np.nan], np.float32)}])
    assert ranges[x] == (-2.0, 1.0)
    assert calibrate(graph, [{"x": np.full(4, np.nan, np.float32)}])[x] == (0.0, 0.0)


def test_outputs_without_range_get_a_scale_that_kernels_take() -> None:
    """x + (-x): TFLite's ADD refuses output scales far below those of the inputs."""
    build = Builder("cancel")
    a = build.input("a", TensorType((4,)))
    b = build.input("b", TensorType((4,)))
    y = build.add(Add(), [a, b])
    build.graph.outputs = [y]
    q = quantize_ranges(build.graph, {a: (-1.0, 1.0), b: (-1.0, 1.0), y: (0.0, 1e-9)})
    assert next(op for op in q.ops if op.kind == "add").output.type.scale > 2**-19 / 127
    inputs = {
        v.name: np.array([1.0, -0.5, 0.25, 0.1], np.float32)
        * (1 if v.name == "a" else -1)
        for v in q.inputs
    }
    for key, got in run_tflite(q, inputs).items():
        np.testing.assert_array_equal(got, interp(q, inputs)[key])


@given(FINITE, FINITE)
def test_zero_is_exact_and_the_range_is_covered(a: float, b: float) -> None:
    low = min(a, b)
    high = max(a, b)
    q = activation_quant((low, high))
    zero = q.zero_point[0]
    scale = q.scale[0]
    assert -128 <= zero <= 127
    assert quantize_activation(np.zeros(1, np.float32), q)[0] == zero
    for real in (low, high):
        got = (float(quantize_activation(np.array([real]), q)[0]) - zero) * scale
        assert abs(got - real) <= scale * 1.001


def test_activations_are_rounded_as_c_rounds_them() -> None:
    """Ties away from zero, however large the array; what is not finite at an end, NaN
    as 0.
    """
    q = Quant.per_tensor(0.25, 3)
    steps = np.random.default_rng(0).integers(-400, 400, 100_001) / 2
    want = np.clip(np.trunc(steps + np.copysign(0.5, steps)) + 3, -128, 127)
    np.testing.assert_array_equal(
        quantize_activation((steps * 0.25).astype(np.float32), q), want
    )
    near = np.nextafter(0.125, 0, dtype=np.float32)
    got = quantize_activation(
        np.array([[np.nan, np.inf, -np.inf, 0.125, near, -0.125, 0.25]], np.float32), q
    )
    np.testing.assert_array_equal(got, [[0, 127, -128, 4, 3, 2, 4]])
    assert quantize_activation(np.zeros((0, 3), np.float32), q).shape == (0, 3)


def test_weights_are_symmetric_per_channel() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 3, 3, 2)).astype(np.float32)
    w[2] = 0
    q = weight_quant(w, 0, 0.1, None)
    data = quantize_weight(w, q)
    assert q.axis == 0
    assert len(q.scale) == 4
    assert set(q.zero_point) == {0}
    assert data.min() >= -127
    assert [int(np.abs(c).max()) for c in data] == [127, 127, 0, 127]
    assert weight_quant(w, None, 0.1, None).axis is None


@given(st.floats(1e-12, 1e3), st.floats(-1e6, 1e6))
def test_the_bias_fits_its_integer(weight: float, bias: float) -> None:
    w = np.full((1, 1, 1, 1), weight, np.float32)
    b = np.array([bias], np.float32)
    q = weight_quant(w, 0, 1e-3, b)
    data, quant = quantize_bias(b, 1e-3, q)
    assert abs(int(data[0])) <= 2**30 + 2**7
    assert abs(data[0] * quant.scale[0] - b[0]) <= quant.scale[0] + 1e-5 * abs(b[0])


def test_constants_of_a_same_op_take_its_scale() -> None:
    net = Net("padded")
    y = net.conv(net.input(1, 4, 4, 3), 4)
    border = net.const(1, 4, 1, 4, scale=9.0)
    q = quantize(net.done(net.op(Concat(2), y, border)), samples(net.build.graph))
    concat = next(op for op in q.ops if op.kind == "concat")
    assert concat.inputs[1].type.quant == concat.output.type.quant
    assert concat.output.type.scale * 255 > float(np.abs(border.const).max())  # type: ignore[arg-type]


def test_integers_are_left_alone() -> None:
    build = Builder("indices")
    x = build.input("x", TensorType((4,), "int64"))
    y = build.add(Add(), [x, build.const(np.ones(4, np.int64))])
    build.graph.outputs = [y]
    assert [op.kind for op in assumed(build.graph).ops] == ["add"]


def test_an_int8_graph_is_left_alone() -> None:
    t = TensorType((1, 2, 2, 3), "int8", Quant.per_tensor(0.1, 3))
    graph = Graph("int8", [])
    build = Builder(graph)
    x = build.input("x", t)
    y = build.add(Reshape((1, 12)), [x])
    graph.outputs = [y]
    assert isinstance(graph.ops[0], Op)
    assert assumed(graph) == graph
