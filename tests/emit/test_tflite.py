"""The emitted TFLite: versions that the Edge TPU compiler knows, and opcode entries
that keep them apart.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.emit.tflite import write_tflite
from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Builder, Graph, OpDef, Quant, Sample, TensorType, interp
from edgec.ops.arithmetic import SquaredDifference
from edgec.ops.binary import Add, Sub
from edgec.ops.compare import Greater
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import BatchMatMul, FullyConnected
from tests.harness import assert_agree, random_inputs, run_tflite, sample_graph

HIGHEST_MAPPED = {
    "ADD": 2,
    "SUB": 2,
    "MUL": 2,
    "AVERAGE_POOL_2D": 2,
    "MAX_POOL_2D": 2,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "LOGISTIC": 2,
    "MAXIMUM": 2,
    "MEAN": 2,
    "PAD": 2,
    "PRELU": 1,
    "QUANTIZE": 2,
    "RELU": 2,
    "RESHAPE": 1,
    "RESIZE_BILINEAR": 3,
    "RESIZE_NEAREST_NEIGHBOR": 3,
    "SOFTMAX": 2,
    "STRIDED_SLICE": 2,
    "TANH": 2,
    "TILE": 1,
    "TRANSPOSE": 2,
    "TRANSPOSE_CONV": 2,
}
"""The highest version of each operator that was seen mapped in compiled files."""
UNSEEN = 2
"""For documented operators that were not seen: the version that brought int8."""
_NAMES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}


def opcodes(data: bytes) -> list[tuple[str, int]]:
    """(operator, version) of every opcode entry."""
    model = schema.ModelT.InitFromPackedBuf(data)
    return [
        (_NAMES[max(c.builtinCode, c.deprecatedBuiltinCode)], c.version)
        for c in model.operatorCodes
    ]


def _mapped_samples() -> list[object]:
    return [
        pytest.param(sample, id=f"{kind}-{sample.label or i}")
        for kind, cls in sorted(OpDef.registry.items())
        for i, sample in enumerate(cls.samples())
        if cls.edgetpu and not sample.spec.why_not(sample_graph(sample).ops[0])
    ]


@pytest.mark.parametrize("sample", _mapped_samples())
def test_what_may_go_to_the_edge_tpu_has_a_version_that_it_knows(
    sample: Sample,
) -> None:
    graph = sample_graph(sample)
    if any(op.spec.to_tflite(op) is None for op in graph.ops):
        pytest.skip("not written as TFLite")
    for name, version in opcodes(write_tflite(graph)):
        assert version <= HIGHEST_MAPPED.get(name, UNSEEN), (name, version)


def test_int8_and_float_uses_of_one_operator_have_entries_of_their_own() -> None:
    b = Builder("g")
    quant = Quant.per_tensor(0.1)
    q = b.input("q", TensorType((1, 4), "int8", quant))
    f = b.input("f", TensorType((1, 4)))
    one = b.const(np.ones(4, np.float32))
    b.graph.outputs = [b.add(Add(), [q, q], "qq", quant), b.add(Add(), [f, one], "ff")]
    assert sorted(opcodes(write_tflite(b.graph))) == [("ADD", 1), ("ADD", 2)]


def test_the_same_graph_gives_the_same_bytes() -> None:
    sample = next(iter(OpDef.registry["conv2d"].samples()))
    assert write_tflite(sample_graph(sample)) == write_tflite(sample_graph(sample))


@pytest.mark.parametrize("scale", [1e-11, 3e-9, 5.6e-9, 0.02])
@pytest.mark.parametrize("act", ["relu6", "relu_n1_to_1", "relu"])
def test_a_clamp_far_beyond_a_tiny_scale(act: str, scale: float) -> None:
    """Networks that were never trained have activations of 1e-9; the kernels refuse a 6
    that is 2^31 steps away.
    """
    build = Builder("tiny")
    step = Quant.per_tensor(scale, -7)
    x = build.input("x", TensorType((1, 5, 5, 3), "int8", step))
    w = build.const(
        np.arange(-13, 14, dtype=np.int8).reshape(1, 3, 3, 3) * 9,
        "w",
        Quant.per_tensor(0.05, 0),
    )
    y = build.add(Conv2D(act=act), [x, w], "y", step)
    z = build.add(Add(act), [y, y], "z", step)
    build.graph.outputs = [z]
    inputs = random_inputs(build.graph)
    assert_agree(run_tflite(build.graph, inputs), interp(build.graph, inputs))


@pytest.mark.parametrize(
    ("spec", "scale"),
    [(Add(), 2 * 2.0**-20), (Sub(), 2 * 2.0**-20), (SquaredDifference(), 4 * 2.0**-14)],
)
def test_a_result_as_fine_as_the_headroom_has_no_form(
    spec: OpDef, scale: float
) -> None:
    """LiteRT's kernels end their process, or wrap, where the result's factor is not
    below one.
    """
    for finer, written in ((1.0, False), (1.01, True)):
        b = Builder("fine")
        t = TensorType((2, 3), "int8", Quant.per_tensor(1.0))
        y = b.add(
            spec,
            [b.input("a", t), b.input("b", t)],
            "y",
            Quant.per_tensor(finer * scale),
        )
        b.graph.outputs = [y]
        assert (spec.to_tflite(b.graph.ops[0]) is not None) == written
        if written:
            inputs = random_inputs(b.graph)
            assert_agree(
                run_tflite(b.graph, inputs), interp(b.graph, inputs), of=b.graph
            )


def _beside_asymmetric_weights(spec: OpDef, quant: Quant | None = None) -> Graph:
    """A graph with an op of two int8 matrices, and a layer that makes the file uint8."""
    b = Builder("beside")
    x = b.input("x", TensorType((3, 3), "int8", Quant.per_tensor(0.1, 4)))
    other = b.input("other", TensorType((3, 3), "int8", Quant.per_tensor(0.07, -9)))
    weights = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    layer = [x, b.const(weights, "weights", Quant.per_tensor(0.02, 9))]
    b.graph.outputs = [
        b.add(FullyConnected(), layer, "layer", Quant.per_tensor(0.09, 5)),
        b.add(spec, [x, other], "y", quant),
    ]
    return b.graph


def test_a_comparison_beside_asymmetric_weights_is_of_uint8() -> None:
    graph = _beside_asymmetric_weights(Greater())
    inputs = random_inputs(graph)
    assert_agree(run_tflite(graph, inputs), interp(graph, inputs), of=graph)


def test_an_op_without_a_uint8_kernel_is_named() -> None:
    graph = _beside_asymmetric_weights(BatchMatMul(), Quant.per_tensor(0.05, 2))
    with pytest.raises(UnsupportedError, match="no uint8 form of batch_matmul y"):
        write_tflite(graph)


@pytest.mark.parametrize("asymmetric", [False, True])
def test_outputs_that_are_inputs_constants_or_listed_twice(
    asymmetric: bool, tmp_path: Path
) -> None:
    """In a file of int8 and in one of uint8, run by LiteRT, and read again."""
    build = Builder("outputs")
    q = Quant.per_tensor(0.05, 3)
    x = build.input("x", TensorType((1, 4, 4, 2), "int8", q))
    real = build.input("real", TensorType((2,)))
    rng = np.random.default_rng(0)
    elements = rng.integers(-100, 100, (3, 1, 1, 2)).astype(np.int8)
    w = build.const(elements, "w", Quant.per_tensor(0.01, 7 if asymmetric else 0))
    y = build.add(Conv2D(), [x, w], "y", quant=q)
    k = build.const(np.array([-5, 9], np.int8), "k", q)
    build.graph.outputs = [y, x, k, real, y, x, k, real]
    inputs = random_inputs(build.graph)
    want = interp(build.graph, inputs)
    assert_agree(run_tflite(build.graph, inputs), want)

    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(build.graph))
    graph = read_model(path)
    assert [v.name for v in graph.outputs] == [v.name for v in build.graph.outputs]
    assert_agree(interp(graph, inputs), want)
