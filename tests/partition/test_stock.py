"""What the stock compiler makes of a file: node sets, versions, aborts, operators that
edgec cannot read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edgec_partitioner.partition import partition
from edgec_partitioner.source import SourceOp, judge
from edgec_partitioner.stock import StockNode, mapped, stock_places, subsets
from hypothesis import given
from hypothesis import strategies as st

from edgec.emit.tflite import write_tflite
from edgec.errors import InputError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.operators import read_operators
from edgec.ir import Builder, Quant, TensorType
from edgec.ops.activation import LeakyRelu
from edgec.ops.binary import Add, Mul
from edgec.ops.opaque import Opaque
from edgec.ops.quantize import Dequantize
from edgec.ops.unary import Logistic, Relu
from edgec.passes.pipeline import optimize

Q = Quant.per_tensor(0.1, 3)
IMAGE = TensorType((1, 8, 8, 4), "int8", Q)


def nodes(*rows: tuple[str, str, bool]) -> list[StockNode]:
    """(tensors read, tensors written, delegable), each tensor a letter."""
    return [StockNode(tuple(reads), tuple(writes), tpu) for reads, writes, tpu in rows]


def test_a_set_takes_parallel_branches_up_to_what_is_refused() -> None:
    heads = nodes(
        ("x", "a", True),
        ("a", "b", False),
        ("a", "c", True),
        ("bc", "d", True),
        ("c", "e", True),
    )
    assert subsets(heads) == [(True, [0, 2, 4]), (False, [1]), (True, [3])]
    assert mapped(heads) == {0, 2, 4}
    assert mapped(heads, all_sets=True) == {0, 2, 3, 4}


def test_the_first_set_is_mapped_even_if_it_is_the_smallest() -> None:
    chain = nodes(
        ("x", "a", True), ("a", "b", False), ("b", "c", True), ("c", "d", True)
    )
    assert mapped(chain) == {0}


def test_refused_operators_at_the_front_do_no_harm() -> None:
    front = nodes(
        ("x", "a", False),
        ("a", "b", False),
        ("b", "c", True),
        ("x", "d", True),
        ("cd", "e", True),
    )
    assert subsets(front) == [(False, [0, 1]), (True, [2, 3, 4])]
    assert mapped(front) == {2, 3, 4}


def test_nothing_delegable_maps_nothing() -> None:
    assert mapped(nodes(("x", "a", False))) == set()
    assert mapped([]) == set()


@given(
    st.lists(
        st.tuples(st.lists(st.integers(-2, 30), max_size=3), st.booleans()), max_size=25
    )
)
def test_sets_are_a_legal_order(rows: list[tuple[list[int], bool]]) -> None:
    """Each node is in one set of its kind, after all that it reads; neighbouring sets
    differ in kind.
    """
    graph = [
        StockNode(tuple(r for r in reads if r < i), (i,), tpu)
        for i, (reads, tpu) in enumerate(rows)
    ]
    found = subsets(graph)
    order = [i for _, taken in found for i in taken]
    assert sorted(order) == list(range(len(graph)))
    for kind, taken in found:
        assert all(graph[i].delegable == kind for i in taken)
    written: set[Hashable] = {-2, -1}
    for i in order:
        assert written.issuperset(graph[i].reads)
        written.update(graph[i].writes)
    assert all(a[0] != b[0] for a, b in pairwise(found))


def residual(tail: bool = False) -> Builder:
    """relu → leaky_relu → add with relu's own logistic."""
    b = Builder("residual")
    x = b.input("x", IMAGE)
    y = b.add(Relu(), [x], "relu", Q)
    z = b.add(
        Add(),
        [b.add(LeakyRelu(), [y], "leaky", Q), b.add(Logistic(), [y], "logistic")],
        "sum",
        Q,
    )
    b.graph.outputs = [b.add(Dequantize(), [z], "out") if tail else z]
    return b


def test_places_of_an_int8_graph() -> None:
    graph = residual().graph
    assert [stock_places(graph)[op] for op in graph.ops] == [
        "edgetpu",
        "cpu",
        "edgetpu",
        "cpu",
    ]
    assert [stock_places(graph, all_sets=True)[op] for op in graph.ops] == [
        "edgetpu",
        "cpu",
        "edgetpu",
        "edgetpu",
    ]


def model_of(builder: Builder) -> Any:
    """The emitted file as an object, to be changed."""
    return schema.ModelT.InitFromPackedBuf(write_tflite(builder.graph))


def save(model: Any, path: Path) -> Path:
    packer = flatbuffers.Builder(1 << 12)
    packer.Finish(model.Pack(packer), b"TFL3")
    path.write_bytes(bytes(packer.Output()))
    return path


def judged(model: Any, tmp_path: Path) -> tuple[SourceOp, ...]:
    return judge(read_operators(save(model, tmp_path / "m.tflite")))


def code_of(model: Any, builtin: str) -> Any:
    wanted = getattr(schema.BuiltinOperator, builtin)
    return next(c for c in model.operatorCodes if c.builtinCode == wanted)


def test_a_file_is_judged_in_its_own_order(tmp_path: Path) -> None:
    ops = judged(model_of(residual(tail=True)), tmp_path)
    assert [o.index for o in ops] == [0, 1, 2, 3, 4]
    assert [o.opcode for o in ops] == [
        "RELU",
        "LEAKY_RELU",
        "LOGISTIC",
        "ADD",
        "DEQUANTIZE",
    ]
    assert [o.verdict for o in ops] == ["edgetpu", "cpu", "edgetpu", "edgetpu", "cpu"]
    assert [o.stock for o in ops] == ["mapped", "cpu", "mapped", "cpu", "cpu"]
    assert [o.outputs for o in ops] == [
        ("relu",),
        ("leaky",),
        ("logistic",),
        ("sum",),
        ("out",),
    ]


@pytest.mark.parametrize(
    ("version", "verdict", "rule"),
    [
        (1, "edgetpu", ""),
        (2, "edgetpu", ""),
        (3, "uncertain", "operator_version"),
        (4, "cpu", "operator_version"),
    ],
)
def test_versions_of_add(version: int, verdict: str, rule: str, tmp_path: Path) -> None:
    model = model_of(residual())
    code_of(model, "ADD").version = version
    op = judged(model, tmp_path)[3]
    assert (op.verdict, op.rule) == (verdict, rule)


def test_a_version_that_the_compiler_does_not_know_stops_it(tmp_path: Path) -> None:
    model = model_of(residual())
    code = code_of(model, "LEAKY_RELU")
    code.builtinCode, code.deprecatedBuiltinCode, code.version = (
        *[schema.BuiltinOperator.EXP] * 2,
        2,
    )
    ops = judged(model, tmp_path)
    assert ops[1].rule == "known_operator"
    assert [o.verdict for o in ops] == ["edgetpu", "cpu", "edgetpu", "edgetpu"]
    assert {o.stock for o in ops} == {"cpu"}
    code.version = 1
    assert [o.stock for o in judged(model, tmp_path)] == [
        "mapped",
        "cpu",
        "mapped",
        "cpu",
    ]


@pytest.mark.parametrize("name", ["GELU", "RELU_0_TO_1"])
def test_operators_younger_than_the_compiler_stop_it(name: str, tmp_path: Path) -> None:
    model = model_of(residual())
    code = code_of(model, "LEAKY_RELU")
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode = 127
    ops = judged(model, tmp_path)
    assert ops[1].rule == "known_operator"
    assert {o.stock for o in ops} == {"cpu"}


def test_an_operator_is_known_by_its_own_name(tmp_path: Path) -> None:
    """edgec reads UNPACK as slices, which map; the compiler has no UNPACK."""
    model, sub = _empty()
    x = _tensor(sub, "x", [2, 8], "INT8")
    parts = [_tensor(sub, name, [8], "INT8") for name in "ab"]
    options = schema.UnpackOptionsT()
    options.num = 2
    options.axis = 0
    _operator(model, sub, "UNPACK", [x], parts, options)
    sub.inputs = [x]
    sub.outputs = parts
    (op,) = judged(model, tmp_path)
    assert (op.verdict, op.rule, op.seen) == ("cpu", "supported_operator", "UNPACK")


def test_a_shape_that_is_computed_is_refused(tmp_path: Path) -> None:
    model, sub = _empty()
    x = _tensor(sub, "x", [1, 8], "INT8")
    shape = _tensor(sub, "shape", [2], "INT32")
    y = _tensor(sub, "y", [8, 1])
    _operator(model, sub, "RESHAPE", [x, shape], [y], schema.ReshapeOptionsT())
    sub.inputs = [x, shape]
    sub.outputs = [y]
    (op,) = judged(model, tmp_path)
    assert (op.verdict, op.rule) == ("cpu", "constant_operands")


def _empty() -> tuple[Any, Any]:
    model = schema.ModelT()
    sub = schema.SubGraphT()
    model.version = 3
    model.buffers = [schema.BufferT()]
    model.operatorCodes = []
    model.subgraphs = [sub]
    sub.tensors = []
    sub.operators = []
    sub.inputs = []
    sub.outputs = []
    return model, sub


def _tensor(
    sub: Any,
    name: str,
    shape: Sequence[int],
    dtype: str = "INT8",
    variable: bool = False,
) -> int:
    t = schema.TensorT()
    t.name = name
    t.shape = list(shape)
    t.type = getattr(schema.TensorType, dtype)
    t.buffer = 0
    t.isVariable = variable
    if dtype == "INT8":
        t.quantization = schema.QuantizationParametersT()
        t.quantization.scale = [0.1]
        t.quantization.zeroPoint = [3]
    sub.tensors.append(t)
    return len(sub.tensors) - 1


def _operator(
    model: Any,
    sub: Any,
    name: str,
    inputs: Sequence[int],
    outputs: Sequence[int],
    options: Any = None,
) -> None:
    code = schema.OperatorCodeT()
    op = schema.OperatorT()
    builtin = getattr(schema.BuiltinOperator, name, schema.BuiltinOperator.CUSTOM)
    code.builtinCode = builtin
    code.deprecatedBuiltinCode = min(builtin, 127)
    code.version = 1
    code.customCode = name if builtin == schema.BuiltinOperator.CUSTOM else None
    model.operatorCodes.append(code)
    op.opcodeIndex = len(model.operatorCodes) - 1
    op.inputs = list(inputs)
    op.outputs = list(outputs)
    if options is not None:
        op.builtinOptions = options
        op.builtinOptionsType = getattr(
            schema.BuiltinOptions, type(options).__name__.removesuffix("T")
        )
    sub.operators.append(op)


ODD_TYPES = [
    "FLOAT16",
    "FLOAT64",
    "INT16",
    "INT64",
    "COMPLEX64",
    "STRING",
    "RESOURCE",
    "INT4",
    "BFLOAT16",
]


def odd_model() -> tuple[Any, Any]:
    """relu, then a decoder without known shapes, an LSTM with missing inputs and a
    state, strange types, no result.
    """
    model, sub = _empty()
    x = _tensor(sub, "x", [1, 8, 8, 4])
    y = _tensor(sub, "y", [1, 8, 8, 4])
    _operator(model, sub, "RELU", [x], [y])
    boxes = _tensor(sub, "boxes", [], "FLOAT32")
    count = _tensor(sub, "count", [0], "FLOAT32")
    _operator(model, sub, "Decoder", [y], [boxes, count])
    state = _tensor(sub, "state", [1, 4], "INT8", True)
    memory = _tensor(sub, "memory", [1, 4], "INT16", True)
    sequence = _tensor(sub, "sequence", [1, 8, 4])
    _operator(
        model,
        sub,
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [y, *[-1] * 17, state, memory],
        [sequence],
    )
    for dtype in ODD_TYPES:
        _operator(
            model,
            sub,
            "CAST",
            [y],
            [_tensor(sub, dtype.lower(), [1, 8, 8, 4], dtype)],
            schema.CastOptionsT(),
        )
    _operator(model, sub, "CALL_ONCE", [], [], schema.CallOnceOptionsT())
    sub.inputs = [x]
    sub.outputs = [boxes, count, sequence]
    model.subgraphs.append(schema.SubGraphT())
    return model, sub


def test_strange_operators_are_judged_and_never_fail(tmp_path: Path) -> None:
    ops = judged(odd_model()[0], tmp_path)
    assert [o.opcode for o in ops[:3]] == [
        "RELU",
        "CUSTOM:Decoder",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
    ]
    assert [o.verdict for o in ops] == [
        "edgetpu",
        "cpu",
        "edgetpu",
        *["cpu"] * (len(ODD_TYPES) + 1),
    ]
    assert [o.stock for o in ops[:3]] == ["mapped", "cpu", "mapped"]
    assert "Decoder" in ops[1].seen


def test_what_cannot_be_read_is_explained_and_not_compiled(tmp_path: Path) -> None:
    path = save(odd_model()[0], tmp_path / "odd.tflite")
    with pytest.raises(UnsupportedError, match="Decoder"):
        read_model(path)
    graph = optimize(read_model(path, opaque=True))
    parts = partition(graph, "usb3")
    opaque = [op for op in parts.graph.ops if isinstance(op.spec, Opaque)]
    assert len(opaque) == 2
    for op in opaque:
        assert parts.verdicts[op].answer == "cpu"
        assert parts.segment_of[op].place == "cpu"


def test_a_flex_operator_stops_the_compiler(tmp_path: Path) -> None:
    model, sub = odd_model()
    model.operatorCodes[sub.operators[1].opcodeIndex].customCode = "FlexSplitV"
    assert {o.stock for o in judged(model, tmp_path)} == {"cpu"}


def test_damage_is_an_error_of_the_input(tmp_path: Path) -> None:
    model, sub = odd_model()
    sub.operators[0].inputs = [99]
    with pytest.raises(InputError, match="cannot be read"):
        judged(model, tmp_path)
    (tmp_path / "no.tflite").write_bytes(np.zeros(64, np.uint8).tobytes())
    with pytest.raises(InputError, match="not a TFLite file"):
        read_operators(tmp_path / "no.tflite")


def test_macs_of_an_operator(tmp_path: Path) -> None:
    b = Builder("mul")
    x = b.input("x", IMAGE)
    b.graph.outputs = [b.add(Mul(), [x, x], "y", Q)]
    (op,) = judged(model_of(b), tmp_path)
    assert (op.opcode, op.macs, op.stock) == ("MUL", 0, "mapped")
