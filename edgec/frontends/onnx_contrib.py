"""Operators of onnxruntime's own domain, com.microsoft, which its optimiser writes: each as the standard ones that it
stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import FunctionProto, NodeProto
from onnx.helper import get_attribute_value, make_node

_OPSET = 23
"""Of the bodies: the first with RMSNormalization."""


def is_contributed(node: NodeProto) -> bool:
    """Whether it is an operator of that domain that edgec knows."""
    return node.domain == "com.microsoft" and node.op_type in _BODIES


def contributed(node: NodeProto, ranks: Sequence[int]) -> FunctionProto:
    """The body of such an operator; `ranks` of its inputs, 0 for absent ones."""
    attrs = {a.name: _plain(get_attribute_value(a)) for a in node.attribute}
    inputs = [f"x{i}" if name else "" for i, name in enumerate(node.input)]
    nodes = _BODIES[node.op_type](inputs, attrs, ranks)
    outputs = ["y", *(f"y{i}" for i in range(1, len(node.output)))]
    if attrs:
        raise ValueError(f"edgec does not know the attribute {next(iter(attrs))} of {node.op_type}")
    formal = [name or f"absent{i}" for i, name in enumerate(inputs)]
    imports = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_function("com.microsoft", node.op_type, formal, outputs, nodes, imports)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


Body = Callable[[list[str], dict[str, Any], Sequence[int]], list[NodeProto]]
"""Makes nodes that write `y`, of the names of the inputs, the attributes, of which it takes out those it knows, and the
ranks of the inputs."""


def _fused_conv(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
    """Conv, + Z, an activation."""
    act, parameters = attrs.pop("activation", ""), attrs.pop("activation_params", [])
    convs = {name: attrs.pop(name) for name in list(attrs) if name in _OF_CONV}
    nodes = [make_node("Conv", x[:3], ["conv"], **convs)]
    if len(x) > 3 and x[3]:
        nodes.append(make_node("Add", ["conv", x[3]], ["sum"]))
    return [*nodes, *_activation(act, parameters, nodes[-1].output[0])]


_OF_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",)}


def _activation(name: str, parameters: list[float], x: str) -> list[NodeProto]:
    if not name:
        return [make_node("Identity", [x], ["y"])]
    if name == "Clip":
        low, high = (
            make_node("Constant", [], [n], value_float=v) for n, v in zip(("low", "high"), parameters, strict=True)
        )
        return [low, high, make_node("Clip", [x, "low", "high"], ["y"])]
    given = dict(zip(_PARAMETERS.get(name, ()), parameters, strict=False))
    return [make_node(name, [x], ["y"], **given)]


def _fused_matmul(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
    """alpha * A' · B'."""
    if attrs.pop("transBatchA", 0) or attrs.pop("transBatchB", 0):
        raise ValueError("a batch axis inside the matrices is not supported")
    nodes, names = list[NodeProto](), list[str]()
    for name, rank, swap in zip(x, ranks, (attrs.pop("transA", 0), attrs.pop("transB", 0)), strict=False):
        swapped = [*range(rank - 2), rank - 1, rank - 2]
        names.append(f"{name}_t" if swap and rank > 1 else name)
        nodes += [make_node("Transpose", [name], names[-1:], perm=swapped)] if names[-1] != name else []
    product = [*nodes, make_node("MatMul", names, ["product"])]
    alpha = make_node("Constant", [], ["alpha"], value_float=attrs.pop("alpha", 1.0))
    return [*product, alpha, make_node("Mul", ["product", "alpha"], ["y"])]


def _gelu(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
    """With an optional bias."""
    if len(x) > 1 and x[1]:
        return [make_node("Add", x[:2], ["sum"]), make_node("Gelu", ["sum"], ["y"])]
    return [make_node("Gelu", x[:1], ["y"])]


def _fast_gelu(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
    """By tanh, with an optional bias."""
    nodes = _gelu(x, attrs, ranks)
    nodes[-1].attribute.append(onnx.helper.make_attribute("approximate", "tanh"))
    return nodes


def _quick_gelu(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
    """x * sigmoid(alpha * x)."""
    return [
        make_node("Constant", [], ["alpha"], value_float=attrs.pop("alpha", 1.702)),
        make_node("Mul", [x[0], "alpha"], ["scaled"]),
        make_node("Sigmoid", ["scaled"], ["gate"]),
        make_node("Mul", [x[0], "gate"], ["y"]),
    ]


def _skip_layer_norm(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
    """LayerNormalization of the sum of two inputs and a bias. Of the outputs the fourth is that sum."""
    epsilon = attrs.pop("epsilon", 1e-12)
    nodes = [make_node("Add", x[:2], ["sum"])]
    if len(x) > 4 and x[4]:
        nodes.append(make_node("Add", ["sum", x[4]], ["biased"]))
    total = nodes[-1].output[0]
    scales = [x[2], *(x[3:4] if len(x) > 3 and x[3] else [])]
    nodes.append(make_node("LayerNormalization", [total, *scales], ["y"], axis=-1, epsilon=epsilon))
    return [*nodes, make_node("Identity", [total], ["y3"])]


def _same(op_type: str) -> Body:
    """An operator that the standard took over, with the same attributes."""

    def nodes(x: list[str], attrs: dict[str, Any], ranks: Sequence[int]) -> list[NodeProto]:
        given = {name: attrs.pop(name) for name in list(attrs)}
        return [make_node(op_type, x, ["y"], **given)]

    return nodes


_BODIES: dict[str, Body] = {
    "FusedConv": _fused_conv,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "LayerNormalization": _same("LayerNormalization"),
    "SimplifiedLayerNormalization": _same("RMSNormalization"),
    "SkipLayerNormalization": _skip_layer_norm,
    "Trilu": _same("Trilu"),
}
