"""Rewrites operators on quantized tensors as float ones with conversions.

The conversions are DequantizeLinear and QuantizeLinear. So a file in onnxruntime's
"QOperator" format reads like one in its "QDQ" format. A dynamically quantized file,
with scales computed at run time, reads as the float model it approximates, with
dequantized weights.
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
from edgec.frontends.onnx_contrib import NHWC_DOMAIN

_SIMPLIFY = "export the model again, or replace the node"
_DOMAINS = ("", "ai.onnx", "com.microsoft")


def expanded(graph: GraphProto) -> GraphProto:
    """Return the graph with these operators replaced, itself if it has none."""
    if not any(_is_quantized(node) for node in graph.node):
        return graph
    twin = GraphProto()
    twin.CopyFrom(graph)
    del twin.node[:]
    # Products with dynamic scales span several nodes, so they come first.
    for node in _without_dynamic_scales(graph):
        try:
            if _is_quantized(node):
                twin.node.extend(_Expansion(node).nodes())
            else:
                twin.node.append(node)
        except ValueError as e:
            message = f"{node.op_type}: {e}"
            raise UnsupportedError(message, f"node {node.name}", _SIMPLIFY) from e
    return twin


def _is_quantized(node: NodeProto) -> bool:
    """Return whether a node is one of OPERATORS, or onnxruntime's own conversion.

    A node without outputs stays: nobody needs it.
    """
    if node.domain not in _DOMAINS or not any(node.output):
        return False
    return node.op_type in OPERATORS or _of_microsoft(node)


def _of_microsoft(node: NodeProto) -> bool:
    """Return whether a node is onnxruntime's own form of a standard conversion.

    onnxruntime had these operators before the standard.
    """
    if node.domain != "com.microsoft":
        return False
    return node.op_type in ("QuantizeLinear", "DequantizeLinear")


@dataclass
class _Expansion:
    """The nodes that one node stands for.

    Attributes:
        node: the node.
        made: the nodes so far.
    """

    node: NodeProto
    made: list[NodeProto] = field(default_factory=list)

    def nodes(self) -> list[NodeProto]:
        """Return the nodes in the order in which they compute.

        Raises ValueError for attributes that edgec does not read.
        """
        node = self.node
        if _of_microsoft(node):
            attributes = self.attributes()
            self.add(node.op_type, node.input, node.output[0], **attributes)
        else:
            OPERATORS[node.op_type](self)
        return self.made

    def name(self, what: str) -> str:
        """Return a name that no other node has.

        what: a part of the name, for readers.
        """
        return f"{self.node.output[0]}/{what}{len(self.made)}"

    def input(self, i: int) -> str:
        """Return the name of an input, "" if it is absent."""
        return self.node.input[i] if i < len(self.node.input) else ""

    def attributes(self, *without: str) -> dict[str, Any]:
        """Return the attributes of the node, except those named.

        Raises ValueError for one without a type.
        """
        values: dict[str, Any] = {}
        attributes = [a for a in self.node.attribute if a.name not in without]
        for a in attributes:
            if a.type == AttributeProto.UNDEFINED:
                raise ValueError(f"the attribute {a.name} is of type UNDEFINED")
        for a in attributes:
            values[a.name] = helper.get_attribute_value(a)
        return values

    def add(
        self, op_type: str, inputs: Sequence[str], output: str = "", /, **attrs: Any
    ) -> str:
        """Add a standard node, and return the name of its output.

        Without `output`, the name is a new one. attrs: the attributes of the node, in
        the order in which they are written, and onnxruntime's channels_last.
        """
        y = output or self.name(op_type)
        name = self.node.name or self.node.output[0]
        domain = NHWC_DOMAIN if attrs.pop("channels_last", 0) else ""
        node = helper.make_node(op_type, inputs, [y], name=name, domain=domain)
        for key, value in attrs.items():
            node.attribute.append(helper.make_attribute(key, value))
        self.made.append(node)
        return y

    def const(self, value: float) -> str:
        """Add a float constant, and return its name."""
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        return self.add("Constant", [], value=tensor)

    def real(self, x: int, scale: int, zero: int, axis: int = 0) -> str:
        """Return the dequantized form of an input.

        x, scale, zero: the positions of the tensor, its scale and its zero point.
        """
        inputs = _present(self.input(x), self.input(scale), self.input(zero))
        return self.add("DequantizeLinear", inputs, axis=axis)

    def quantize(self, y: str, scale: int, zero: int) -> None:
        """Write the output as integers, or as floats without a scale.

        scale, zero: the positions of the scale and the zero point.
        """
        output = self.node.output[0]
        if not self.input(scale):
            self.add("Identity", [y], output)
            return
        inputs = _present(y, self.input(scale), self.input(zero))
        self.add("QuantizeLinear", inputs, output)

    def bias(self, b: int, x_scale: int, w_scale: int) -> str:
        """Return the dequantized form of an int32 bias, "" if it is absent.

        Its scale is the product of the scales of input and weights. b, x_scale,
        w_scale: the positions of the bias and of both scales.
        """
        if not self.input(b):
            return ""
        scale = self.add("Mul", [self.input(x_scale), self.input(w_scale)])
        return self.add("DequantizeLinear", [self.input(b), scale], axis=0)


def _present(*names: str) -> list[str]:
    return [name for name in names if name]


def _conv(e: _Expansion) -> None:
    """Expand inputs x, w, y with scale and zero point each, then a bias.

    The weights' scales run along their first axis.
    """
    bias = e.bias(8, 1, 4)
    inputs = [e.real(0, 1, 2), e.real(3, 4, 5), *_present(bias)]
    y = e.add("Conv", inputs, **e.attributes())
    e.quantize(y, 6, 7)


def _matmul(e: _Expansion) -> None:
    """Expand inputs a, b, y with scale and zero point each.

    Those of a run along its rows, those of b along its columns.
    """
    a = e.real(0, 1, 2, -2)
    b = e.real(3, 4, 5, -1)
    e.quantize(e.add("MatMul", [a, b]), 6, 7)


def _gemm(e: _Expansion) -> None:
    """Expand inputs a, b with scale and zero point each, C, then those of y."""
    attributes = e.attributes()
    bias = e.bias(6, 1, 4)
    a = e.real(0, 1, 2)
    b = e.real(3, 4, 5, 0 if attributes.get("transB") else 1)
    y = e.add("Gemm", [a, b, *_present(bias)], **attributes)
    e.quantize(y, 7, 8)


def _binary(op_type: str) -> Callable[[_Expansion], None]:
    """Return the expansion of inputs a, b, y with scale and zero point each.

    op_type: the float operator.
    """

    def expand(e: _Expansion) -> None:
        a = e.real(0, 1, 2)
        b = e.real(3, 4, 5)
        y = e.add(op_type, [a, b], **e.attributes())
        e.quantize(y, 6, 7)

    return expand


def _unary(op_type: str, *ignored: str) -> Callable[[_Expansion], None]:
    """Return the expansion of inputs x, y with scale and zero point each.

    ignored: attributes for onnxruntime's layouts and versions.
    """

    def expand(e: _Expansion) -> None:
        x = e.real(0, 1, 2)
        y = e.add(op_type, [x], **e.attributes(*ignored))
        e.quantize(y, 3, 4)

    return expand


def _concat(e: _Expansion) -> None:
    """Expand the scale and zero point of y, then the inputs.

    Each input has x, scale and zero point.
    """
    parts = [e.real(i, i + 1, i + 2) for i in range(2, len(e.node.input), 3)]
    y = e.add("Concat", parts, **e.attributes())
    e.quantize(y, 0, 1)


def _where(e: _Expansion) -> None:
    """Expand the condition, then inputs x, y, z with scale and zero point each."""
    x = e.real(1, 2, 3)
    y = e.real(4, 5, 6)
    e.quantize(e.add("Where", [e.input(0), x, y]), 7, 8)


def _integer(op_type: str, axes: tuple[int, int]) -> Callable[[_Expansion], None]:
    """Return the expansion of inputs x, w without scales, then their zero points.

    The result is the exact sums as int32. axes: of the zero points of x and w.
    """

    def operand(e: _Expansion, i: int, one: str) -> str:
        zero_point = 2 + i
        scale = _like(e, one, zero_point)
        inputs = _present(e.input(i), scale, e.input(zero_point))
        return e.add("DequantizeLinear", inputs, axis=axes[i])

    def expand(e: _Expansion) -> None:
        one = e.const(1.0)
        a = operand(e, 0, one)
        b = operand(e, 1, one)
        sums = e.add(op_type, [a, b], **e.attributes())
        e.add("Cast", [sums], e.node.output[0], to=TensorProto.INT32)

    return expand


def _like(e: _Expansion, one: str, zero: int) -> str:
    """Return scales of 1, as many as there are zero points.

    They are 0 * zero_point + 1.
    """
    if not e.input(zero):
        return one
    floats = e.add("Cast", [e.input(zero)], to=TensorProto.FLOAT)
    # The count of zero points is not known from names alone.
    zeros = e.add("Mul", [floats, e.const(0.0)])
    return e.add("Add", [zeros, one])


def _add_bias(e: _Expansion, y: str, bias: str) -> None:
    """Write the sum of `y` and a float bias, or `y` itself without one."""
    op_type = "Add" if bias else "Identity"
    e.add(op_type, _present(y, bias), e.node.output[0])


def _to_float(e: _Expansion) -> None:
    """Expand MatMulIntegerToFloat.

    Its inputs are a, b, their scales, their zero points, and a float bias.
    """
    a = e.real(0, 2, 4, -2)
    b = e.real(1, 3, 5, -1)
    y = e.add("MatMul", [a, b])
    _add_bias(e, y, e.input(6))


def _dynamic_matmul(e: _Expansion) -> None:
    """Expand DynamicQuantizeMatMul.

    Its inputs are floats a, integers b with scale and zero point, and a float bias.
    """
    b = e.real(1, 2, 3, -1)
    y = e.add("MatMul", [e.input(0), b])
    _add_bias(e, y, e.input(4))


def _dynamic_lstm(e: _Expansion) -> None:
    """Expand DynamicQuantizeLSTM.

    Its inputs are LSTM's, with integer weights [directions, inputs, gates], then the
    scales and zero points of both weights.
    """
    weights: list[str] = []
    for number, i in enumerate((1, 2)):
        scale = 8 + 2 * number
        real = e.real(i, scale, scale + 1)
        # LSTM has [directions, gates, inputs].
        weights.append(e.add("Transpose", [real], perm=[0, 2, 1]))
    others = [e.input(i) for i in range(3, 8)]
    e.add("LSTM", [e.input(0), *weights, *others], **e.attributes())

    # It has up to three outputs.
    lstm = e.made[-1]
    del lstm.output[:]
    lstm.output.extend(e.node.output)


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
"""The operators, and the expansion of each."""


# ---- dynamically quantized files
# --------------------------------------------------------------------------------------
_SUMS = {"MatMulInteger": ("MatMul", -1), "ConvInteger": ("Conv", 0)}
"""The float operator, and the axis of the weights' scales."""


@dataclass(frozen=True)
class _Bias:
    """A float bias and the shape to which it is brought, by their names."""

    name: str
    shape: str


@dataclass(frozen=True)
class _DynamicProduct:
    """A dynamically quantized product.

    Attributes:
        x: the float input.
        sums: the node of the integer sums.
        scale: the scale of the weights.
        bias: the bias, None without one.
    """

    x: str
    sums: NodeProto
    scale: str
    bias: _Bias | None


def _without_dynamic_scales(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes, with dynamically quantized products as float operators.

    Such a product is DynamicQuantizeLinear → MatMulInteger or ConvInteger → Cast → Mul
    by both scales. A bias may be added to the sums, made of floats by Div by both
    scales → Floor → Cast → Reshape.
    """
    writer = {name: node for node in graph.node for name in node.output}
    nodes: list[NodeProto] = []
    for node in graph.node:
        product = _dynamic(node, writer) if node.op_type == "Mul" else None
        if product is None:
            nodes.append(node)
        else:
            nodes += _in_floats(node.output[0], product)
    return nodes


def _in_floats(out: str, product: _DynamicProduct) -> Iterator[NodeProto]:
    """Yield the float operator that writes `out`, with its weights and bias."""
    sums = product.sums
    op_type, axis = _SUMS[sums.op_type]
    zero_point = sums.input[3] if len(sums.input) > 3 else ""
    weights = _present(sums.input[1], product.scale, zero_point)
    yield helper.make_node("DequantizeLinear", weights, [f"{out}/weights"], axis=axis)

    # The last node must write the name that others read.
    result = out if product.bias is None else f"{out}/product"
    operands = [product.x, f"{out}/weights"]
    node = helper.make_node(op_type, operands, [result], name=sums.name)
    node.attribute.extend(sums.attribute)
    yield node

    if product.bias is not None:
        bias = [product.bias.name, product.bias.shape]
        yield helper.make_node("Reshape", bias, [f"{out}/bias"])
        terms = [f"{out}/product", f"{out}/bias"]
        yield helper.make_node("Add", terms, [out], name=sums.name)


def _dynamic(mul: NodeProto, writer: Mapping[str, NodeProto]) -> _DynamicProduct | None:
    """Return the product that ends with `mul`, None for other multiplications.

    writer: the node that writes each value.
    """
    for scaled, scales in _both_ways(mul):
        cast = writer.get(scaled)
        factors = writer.get(scales)
        # The sums are int32, and cast to be scaled.
        if cast is None or cast.op_type != "Cast":
            continue
        if factors is None or factors.op_type != "Mul":
            continue
        sums = writer.get(cast.input[0])
        bias: _Bias | None = None
        if sums is not None and sums.op_type == "Add":
            sums, bias = _with_bias(sums, writer)
        if sums is None or sums.op_type not in _SUMS:
            continue
        product = _scaled_product(sums, factors, bias, writer)
        if product is not None:
            return product
    return None


def _scaled_product(
    sums: NodeProto,
    factors: NodeProto,
    bias: _Bias | None,
    writer: Mapping[str, NodeProto],
) -> _DynamicProduct | None:
    """Return the product with these sums, if its scales are the right ones.

    factors: the product of both scales. The input must be quantized dynamically.
    """
    source = writer.get(sums.input[0])
    if source is None or source.op_type != "DynamicQuantizeLinear":
        return None
    # The zero point is the third output.
    if sums.input[2:3] != source.output[2:3]:
        return None
    for x_scale, scale in _both_ways(factors):
        if x_scale == source.output[1]:
            return _DynamicProduct(source.input[0], sums, scale, bias)
    return None


_ROUNDED = ("Reshape", "Cast", "Floor", "Div")
"""The operators that make an integer bias of floats, last first."""


def _with_bias(
    add: NodeProto, writer: Mapping[str, NodeProto]
) -> tuple[NodeProto | None, _Bias | None]:
    """Return the node of the sums, and the float bias added to them.

    Both are None if `add` is another sum.
    """
    for sums, name in _both_ways(add):
        chain: list[NodeProto] = []
        for op_type in _ROUNDED:
            node = writer.get(name)
            if node is None or node.op_type != op_type:
                break
            chain.append(node)
            name = node.input[0]
        if len(chain) == len(_ROUNDED):
            return writer.get(sums), _Bias(name, chain[0].input[1])
    return None, None


def _both_ways(node: NodeProto) -> Iterator[tuple[str, str]]:
    """Yield the two inputs of a node in both orders."""
    a, b = node.input
    yield a, b
    yield b, a
