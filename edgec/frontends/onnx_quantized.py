"""Operators on quantized tensors as the float ones that they stand for, between
DequantizeLinear and QuantizeLinear.

So a file in onnxruntime's "QOperator" format reads as one in its "QDQ" format. One that
is quantized dynamically, by scales that are computed at run time, reads as what it
approximates: floats, with its weights dequantized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from edgec.errors import UnsupportedError

_SIMPLIFY = "export the model again, or replace the node"
_DOMAINS = ("", "ai.onnx", "com.microsoft")


def expanded(graph: GraphProto) -> GraphProto:
    """The graph with those operators replaced; itself where it has none."""
    if not any(_is_one(node) for node in graph.node):
        return graph
    twin = GraphProto()
    twin.CopyFrom(graph)
    del twin.node[:]
    for node in _without_dynamic_scales(graph):
        try:
            twin.node.extend(_Expansion(node).nodes() if _is_one(node) else [node])
        except ValueError as e:
            raise UnsupportedError(
                f"{node.op_type}: {e}", f"node {node.name}", _SIMPLIFY
            ) from e
    return twin


def _is_one(node: NodeProto) -> bool:
    """One that writes nothing stays: nobody needs it."""
    return (
        node.domain in _DOMAINS
        and (node.op_type in OPERATORS or _of_microsoft(node))
        and any(node.output)
    )


def _of_microsoft(node: NodeProto) -> bool:
    """Whether it is onnxruntime's own form of a standard operator, which it had
    earlier.
    """
    return node.domain == "com.microsoft" and node.op_type in (
        "QuantizeLinear",
        "DequantizeLinear",
    )


@dataclass
class _Expansion:
    """The nodes that one node stands for."""

    node: NodeProto
    made: list[NodeProto] = field(default_factory=list)

    def nodes(self) -> list[NodeProto]:
        """In the order in which they compute."""
        if _of_microsoft(self.node):
            self.add(
                self.node.op_type,
                self.node.input,
                self.node.output[0],
                **self.attributes(),
            )
        else:
            OPERATORS[self.node.op_type](self)
        return self.made

    def name(self, what: str) -> str:
        """A name that no other node has."""
        return f"{self.node.output[0]}/{what}{len(self.made)}"

    def input(self, i: int) -> str:
        """The name of an input, "" where it is absent."""
        return self.node.input[i] if i < len(self.node.input) else ""

    def attributes(self, *without: str) -> dict[str, Any]:
        """Those of the node. Raises ValueError for one without a type."""
        given = [a for a in self.node.attribute if a.name not in without]
        if untyped := [a.name for a in given if a.type == AttributeProto.UNDEFINED]:
            raise ValueError(f"the attribute {untyped[0]} is of type UNDEFINED")
        return {a.name: helper.get_attribute_value(a) for a in given}

    def add(
        self, op_type: str, inputs: Sequence[str], output: str = "", /, **attrs: Any
    ) -> str:
        """A standard node; returns its output."""
        y = output or self.name(op_type)
        made = helper.make_node(
            op_type, inputs, [y], name=self.node.name or self.node.output[0]
        )
        made.attribute.extend(helper.make_attribute(k, v) for k, v in attrs.items())
        self.made.append(made)
        return y

    def const(self, value: float) -> str:
        """A float."""
        return self.add(
            "Constant", [], value=numpy_helper.from_array(np.array(value, np.float32))
        )

    def real(self, x: int, scale: int, zero: int, axis: int = 0) -> str:
        """The floats of a quantized input."""
        return self.add(
            "DequantizeLinear",
            _present(self.input(x), self.input(scale), self.input(zero)),
            axis=axis,
        )

    def quantize(self, y: str, scale: int, zero: int) -> None:
        """Write the output as integers; as floats where the node gives no scale."""
        if not self.input(scale):
            self.add("Identity", [y], self.node.output[0])
        else:
            self.add(
                "QuantizeLinear",
                _present(y, self.input(scale), self.input(zero)),
                self.node.output[0],
            )

    def bias(self, b: int, x_scale: int, w_scale: int) -> str:
        """The floats of an int32 bias, whose scale is the product of those of input and
        weight.
        """
        if not self.input(b):
            return ""
        scale = self.add("Mul", [self.input(x_scale), self.input(w_scale)])
        return self.add("DequantizeLinear", [self.input(b), scale], axis=0)


def _present(*names: str) -> list[str]:
    return [name for name in names if name]


def _conv(e: _Expansion) -> None:
    """x, w, y with scale and zero point each, bias.

    The weights' scales run along their first axis.
    """
    if e.attributes().get("channels_last"):
        raise ValueError("channels_last is not supported")
    bias = e.bias(8, 1, 4)
    inputs = [e.real(0, 1, 2), e.real(3, 4, 5), *_present(bias)]
    e.quantize(e.add("Conv", inputs, **e.attributes("channels_last")), 6, 7)


def _matmul(e: _Expansion) -> None:
    """a, b, y with scale and zero point each: of a by rows, of b by columns."""
    e.quantize(e.add("MatMul", [e.real(0, 1, 2, -2), e.real(3, 4, 5, -1)]), 6, 7)


def _gemm(e: _Expansion) -> None:
    """a, b with scale and zero point each, C without, y."""
    attrs = e.attributes()
    bias = e.bias(6, 1, 4)
    inputs = [
        e.real(0, 1, 2),
        e.real(3, 4, 5, 0 if attrs.get("transB") else 1),
        *_present(bias),
    ]
    e.quantize(e.add("Gemm", inputs, **attrs), 7, 8)


def _binary(op_type: str) -> Callable[[_Expansion], None]:
    """a, b, y with scale and zero point each."""

    def expand(e: _Expansion) -> None:
        e.quantize(
            e.add(op_type, [e.real(0, 1, 2), e.real(3, 4, 5)], **e.attributes()), 6, 7
        )

    return expand


def _unary(op_type: str, *ignored: str) -> Callable[[_Expansion], None]:
    """x, y with scale and zero point each. ignored: attributes that are of
    onnxruntime's layouts and versions.
    """

    def expand(e: _Expansion) -> None:
        if e.attributes().get("channels_last"):
            raise ValueError("channels_last is not supported")
        e.quantize(
            e.add(
                op_type, [e.real(0, 1, 2)], **e.attributes("channels_last", *ignored)
            ),
            3,
            4,
        )

    return expand


def _concat(e: _Expansion) -> None:
    """The scale and zero point of y, then x, scale and zero point of each input."""
    parts = [e.real(i, i + 1, i + 2) for i in range(2, len(e.node.input), 3)]
    e.quantize(e.add("Concat", parts, **e.attributes()), 0, 1)


def _where(e: _Expansion) -> None:
    """The condition, then x, y and z with scale and zero point each."""
    e.quantize(e.add("Where", [e.input(0), e.real(1, 2, 3), e.real(4, 5, 6)]), 7, 8)


def _integer(op_type: str, axes: tuple[int, int]) -> Callable[[_Expansion], None]:
    """x and w without scales, their zero points: the exact sums as int32."""

    def expand(e: _Expansion) -> None:
        one = e.const(1.0)
        a = e.add(
            "DequantizeLinear",
            _present(e.input(0), _like(e, one, 2), e.input(2)),
            axis=axes[0],
        )
        b = e.add(
            "DequantizeLinear",
            _present(e.input(1), _like(e, one, 3), e.input(3)),
            axis=axes[1],
        )
        sums = e.add(op_type, [a, b], **e.attributes())
        e.add("Cast", [sums], e.node.output[0], to=TensorProto.INT32)

    return expand


def _like(e: _Expansion, one: str, zero: int) -> str:
    """Scales of 1, as many as there are zero points."""
    if not e.input(zero):
        return one
    return e.add(
        "Add",
        [
            e.add(
                "Mul",
                [e.add("Cast", [e.input(zero)], to=TensorProto.FLOAT), e.const(0.0)],
            ),
            one,
        ],
    )


def _to_float(e: _Expansion) -> None:
    """MatMulIntegerToFloat: a, b, their scales, their zero points, a float bias."""
    a = e.real(0, 2, 4, -2)
    b = e.real(1, 3, 5, -1)
    y = e.add("MatMul", [a, b])
    e.add(
        "Add" if e.input(6) else "Identity", _present(y, e.input(6)), e.node.output[0]
    )


def _dynamic_matmul(e: _Expansion) -> None:
    """DynamicQuantizeMatMul: floats a, integers b, their scale and zero point, a float
    bias.
    """
    y = e.add("MatMul", [e.input(0), e.real(1, 2, 3, -1)])
    e.add(
        "Add" if e.input(4) else "Identity", _present(y, e.input(4)), e.node.output[0]
    )


def _dynamic_lstm(e: _Expansion) -> None:
    """DynamicQuantizeLSTM: as LSTM, with integer weights [directions, inputs, gates];
    their scales and zero points.
    """
    weights = [
        e.add("Transpose", [e.real(i, 8 + 2 * k, 9 + 2 * k)], perm=[0, 2, 1])
        for k, i in enumerate((1, 2))
    ]
    inputs = [e.input(0), *weights, *(e.input(i) for i in range(3, 8))]
    e.add("LSTM", inputs, **e.attributes())
    del e.made[-1].output[:]
    e.made[-1].output.extend(e.node.output)


OPERATORS: Mapping[str, Callable[[_Expansion], None]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax", "opset"),
    "ConvInteger": _integer("Conv", (0, 0)),
    "MatMulInteger": _integer("MatMul", (-2, -1)),
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "DynamicQuantizeLSTM": _dynamic_lstm,
}
"""The operators and how each is made of others."""


# ---- dynamically quantized files
# --------------------------------------------------------------------------------------
_SUMS = {"MatMulInteger": ("MatMul", -1), "ConvInteger": ("Conv", 0)}
"""The float operator, and the axis that the weights' scales run along."""


def _without_dynamic_scales(graph: GraphProto) -> list[NodeProto]:
    """DynamicQuantizeLinear → MatMulInteger or ConvInteger → Cast → Mul by both scales
    becomes the float operator.

    So does a bias that is added to the sums, as Div by both scales → Floor → Cast →
    Reshape makes it of floats.
    """
    writer = {name: node for node in graph.node for name in node.output}
    nodes = list[NodeProto]()
    for node in graph.node:
        found = _dynamic(node, writer) if node.op_type == "Mul" else None
        nodes += [node] if found is None else _in_floats(node, *found)
    return nodes


def _in_floats(
    mul: NodeProto, x: str, sums: NodeProto, scale: str, bias: tuple[str, str] | None
) -> Iterator[NodeProto]:
    """The float operator in the place of one that scales sums; its weights; the bias."""
    op_type, axis = _SUMS[sums.op_type]
    out = mul.output[0]
    weights = _present(
        sums.input[1], scale, sums.input[3] if len(sums.input) > 3 else ""
    )
    yield helper.make_node("DequantizeLinear", weights, [f"{out}/weights"], axis=axis)
    product = helper.make_node(
        op_type,
        [x, f"{out}/weights"],
        [f"{out}/product" if bias else out],
        name=sums.name,
    )
    product.attribute.extend(sums.attribute)
    yield product
    if bias is not None:
        yield helper.make_node("Reshape", [*bias], [f"{out}/bias"])
        yield helper.make_node(
            "Add", [f"{out}/product", f"{out}/bias"], [out], name=sums.name
        )


_Dynamic = tuple[str, NodeProto, str, tuple[str, str] | None]


def _dynamic(mul: NodeProto, writer: Mapping[str, NodeProto]) -> _Dynamic | None:
    """What is multiplied, the node of the sums, the scale of the weights, and a bias
    with its shape.
    """
    for sums, scales in _both_ways(mul):
        cast = writer.get(sums)
        bias = None
        if cast is not None and cast.op_type == "Cast":
            of_sums = writer.get(cast.input[0])
        else:
            of_sums = None
        if of_sums is not None and of_sums.op_type == "Add":
            of_sums, bias = _with_bias(of_sums, writer)
        product = writer.get(scales)
        if (
            of_sums is None
            or of_sums.op_type not in _SUMS
            or product is None
            or product.op_type != "Mul"
        ):
            continue
        source = writer.get(of_sums.input[0])
        if (
            source is None
            or source.op_type != "DynamicQuantizeLinear"
            or of_sums.input[2:3] != source.output[2:3]
        ):
            continue
        for own, scale in _both_ways(product):
            if own == source.output[1]:
                return source.input[0], of_sums, scale, bias
    return None


_ROUNDED = ("Reshape", "Cast", "Floor", "Div")


def _with_bias(
    add: NodeProto, writer: Mapping[str, NodeProto]
) -> tuple[NodeProto | None, tuple[str, str] | None]:
    """The node of the sums, and the floats of the bias with its shape; none where it is
    another sum.
    """
    for sums, bias in _both_ways(add):
        chain = list[NodeProto]()
        while (
            len(chain) < len(_ROUNDED)
            and bias in writer
            and writer[bias].op_type == _ROUNDED[len(chain)]
        ):
            chain.append(writer[bias])
            bias = chain[-1].input[0]
        if len(chain) == len(_ROUNDED):
            return writer.get(sums), (bias, chain[0].input[1])
    return None, None


def _both_ways(node: NodeProto) -> Iterator[tuple[str, str]]:
    a, b = node.input
    yield a, b
    yield b, a
