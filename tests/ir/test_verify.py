"""What `verify` refuses, rule by rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from edgec.ir import Builder, Graph, Op, Quant, TensorType, Value, verify
from edgec.ir.verify import VerifyError
from edgec.ops.binary import Add
from edgec.ops.cast import Cast
from edgec.ops.pool import MaxPool2D
from edgec.ops.shape import Reshape


def _good() -> Graph:
    b = Builder("g")
    x = b.input("x", TensorType((1, 4)))
    y = b.add(Add(), [x, b.const(np.ones(4, np.float32), "c")], "y")
    b.graph.outputs = [b.add(Reshape((4,)), [y], "z")]
    return b.graph


def _use_before_definition(g: Graph) -> None:
    g.ops.reverse()


def _twice_written(g: Graph) -> None:
    g.ops.append(Op(Reshape((4,)), [g.inputs[0]], [g.outputs[0]]))


def _dangling_output(g: Graph) -> None:
    g.outputs.append(Value("nowhere", TensorType((1,))))


def _same_name(g: Graph) -> None:
    g.outputs[0].name = "x"


def _wrong_type(g: Graph) -> None:
    g.outputs[0].type = TensorType((2, 2))


def _wrong_constant(g: Graph) -> None:
    g.constants()[0].const = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_use_before_definition, "nothing has written"),
        (_twice_written, "written twice"),
        (_dangling_output, "never written"),
        (_same_name, "two values are called x"),
        (_wrong_type, "infers float32"),
        (_wrong_constant, "constant c is float32"),
    ],
)
def test_a_damaged_graph_is_refused(
    damage: Callable[[Graph], None], message: str
) -> None:
    graph = _good()
    verify(graph, "canonical")
    damage(graph)
    with pytest.raises(VerifyError, match=message):
        verify(graph, "imported")


def test_int8_without_a_scale_is_no_quantized_graph() -> None:
    b = Builder("g")
    x = b.input("x", TensorType((1, 4), "int8", Quant.per_tensor(0.1)))
    y = b.add(Reshape((4,)), [x], "y")
    y.type = y.type.with_quant(None)
    b.graph.outputs = [y]
    with pytest.raises(VerifyError, match="y is int8 without a scale"):
        verify(b.graph, "quantized")


def test_a_cast_reads_int8_without_a_scale() -> None:
    b = Builder("g")
    x = b.input("x", TensorType((1, 4), "int8"))
    b.graph.outputs = [b.add(Cast("float32"), [x], "y")]
    verify(b.graph, "partitioned")
    b.add(Reshape((4,)), [x], "z")
    verify(b.graph, "partitioned")
    b.add(MaxPool2D(), [b.add(Reshape((1, 2, 2, 1)), [x], "image")], "pooled")
    with pytest.raises(VerifyError, match="image is int8 without a scale"):
        verify(b.graph, "partitioned")


def test_uint8_stays_at_the_border() -> None:
    b = Builder("g")
    x = b.input("x", TensorType((1, 4), "uint8", Quant.per_tensor(0.1, 128)))
    y = b.add(Reshape((4,)), [x], "y")
    b.graph.outputs = [b.add(Reshape((2, 2)), [y], "z")]
    with pytest.raises(VerifyError, match="uint8 inside the graph"):
        verify(b.graph, "canonical")
