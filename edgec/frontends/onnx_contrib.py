"""Operators outside of the standard, each composed of standard ones.

Some are of onnxruntime's own domains and written by its optimiser; others are
experimental ones that ONNX took back in version 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, NodeProto, TensorProto, numpy_helper
from onnx.helper import get_attribute_value, make_node

from edgec.frontends.onnx_file import DOMAINS
from edgec.ir import TensorType

Types = Sequence[TensorType | None]
"""Types of the inputs of a node, None for absent ones."""

_MICROSOFT = "com.microsoft"
NHWC_DOMAIN = "com.ms.internal.nhwc"
"""onnxruntime's domain of standard operators on images whose channels come last."""
_OPSET = 23
"""The operator set of the bodies: the first with RMSNormalization."""


def is_contributed(node: NodeProto) -> bool:
    """Return whether a node's operator is one of them."""
    return node.op_type in _bodies(node)


def _bodies(node: NodeProto) -> Mapping[str, Body]:
    """Return the bodies of the operators of a node's domain.

    They are empty for an unknown domain.
    """
    if node.domain == _MICROSOFT:
        return _OF_MICROSOFT
    if node.domain == NHWC_DOMAIN:
        return _CHANNELS_LAST
    return _OF_NO_VERSION if node.domain in DOMAINS else {}


def contributed(node: NodeProto, types: Types) -> FunctionProto:
    """Return the body of such an operator.

    types: of its inputs, None for absent ones. Raises ValueError for an unknown
    attribute.
    """
    attrs: dict[str, Any] = {}
    for a in node.attribute:
        attrs[a.name] = _plain(get_attribute_value(a))
    inputs = [f"x{i}" if name else "" for i, name in enumerate(node.input)]
    nodes = _bodies(node)[node.op_type](inputs, attrs, types)
    outputs = ["y", *(f"y{i}" for i in range(1, len(node.output)))]
    # The body has taken the attributes it knows.
    for name in attrs:
        raise ValueError(f"edgec does not know the attribute {name} of {node.op_type}")
    # A function's inputs have names even where the call leaves them out.
    formal = [name or f"absent{i}" for i, name in enumerate(inputs)]
    imports = [
        onnx.helper.make_opsetid("", _OPSET),
        onnx.helper.make_opsetid(_MICROSOFT, 1),
    ]
    return onnx.helper.make_function(
        node.domain, node.op_type, formal, outputs, nodes, imports
    )


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


Body = Callable[[list[str], dict[str, Any], Types], list[NodeProto]]
"""A function that returns nodes which write `y`.

Its arguments are the names of the inputs, the attributes, and the types of the inputs.
It removes the attributes that it knows.
"""


def _fused_conv(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return Conv, the sum with Z, and an activation.

    Z and the activation are optional.
    """
    act = attrs.pop("activation", "")
    parameters = attrs.pop("activation_params", [])
    # All other attributes belong to the activation.
    convs = {name: attrs.pop(name) for name in list(attrs) if name in _OF_CONV}
    nodes = [make_node("Conv", x[:3], ["conv"], **convs)]
    if len(x) > 3 and x[3]:
        nodes.append(make_node("Add", ["conv", x[3]], ["sum"]))
    return [*nodes, *_activation(act, parameters, nodes[-1].output[0])]


_OF_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_PARAMETERS = {
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Elu": ("alpha",),
}


def _activation(name: str, parameters: list[float], x: str) -> list[NodeProto]:
    """Return the activation of a fused convolution, Identity without a name."""
    if not name:
        return [make_node("Identity", [x], ["y"])]
    if name == "Clip":
        names = ("low", "high")
        bounds = [_constant(n, v) for n, v in zip(names, parameters, strict=True)]
        return [*bounds, make_node("Clip", [x, *names], ["y"])]
    attrs = dict(zip(_PARAMETERS.get(name, ()), parameters, strict=False))
    return [make_node(name, [x], ["y"], **attrs)]


def _fused_matmul(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return alpha * A' · B', where A' and B' may be transposed."""
    if attrs.pop("transBatchA", 0) or attrs.pop("transBatchB", 0):
        raise ValueError("a batch axis inside the matrices is not supported")
    transposed = (attrs.pop("transA", 0), attrs.pop("transB", 0))
    nodes: list[NodeProto] = []
    names: list[str] = []
    for i, (name, swap) in enumerate(zip(x, transposed, strict=False)):
        rank = len(_shape(types, i))
        # A vector has nothing to transpose.
        if not swap or rank < 2:
            names.append(name)
            continue
        perm = [*range(rank - 2), rank - 1, rank - 2]
        names.append(f"{name}_t")
        nodes.append(make_node("Transpose", [name], [f"{name}_t"], perm=perm))

    nodes.append(make_node("MatMul", names, ["product"]))
    nodes.append(_constant("alpha", attrs.pop("alpha", 1.0)))
    nodes.append(make_node("Mul", ["product", "alpha"], ["y"]))
    return nodes


def _gelu(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return GELU by the error function, with an optional bias.

    The bias is added to the input.
    """
    if len(x) > 1 and x[1]:
        return [make_node("Add", x[:2], ["sum"]), make_node("Gelu", ["sum"], ["y"])]
    return [make_node("Gelu", x[:1], ["y"])]


def _fast_gelu(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return GELU by tanh, with an optional bias."""
    nodes = _gelu(x, attrs, types)
    # The last node is the Gelu.
    nodes[-1].attribute.append(onnx.helper.make_attribute("approximate", "tanh"))
    return nodes


def _quick_gelu(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return x * sigmoid(alpha * x).

    It approximates GELU, by default with alpha 1.702.
    """
    return [
        _constant("alpha", attrs.pop("alpha", 1.702)),
        make_node("Mul", [x[0], "alpha"], ["scaled"]),
        make_node("Sigmoid", ["scaled"], ["gate"]),
        make_node("Mul", [x[0], "gate"], ["y"]),
    ]


def _skip_layer_norm(
    x: list[str], attrs: dict[str, Any], types: Types
) -> list[NodeProto]:
    """Return LayerNormalization of the sum of two inputs and a bias.

    The fourth output is that sum.
    """
    scale, offset, bias = ([*x, "", ""])[2:5]
    epsilon = attrs.pop("epsilon", 1e-12)
    scales = [scale, offset] if offset else [scale]
    operands = ["y3", *scales]
    return [
        *_skip_sum(x[:2], bias),
        make_node("LayerNormalization", operands, ["y"], axis=-1, epsilon=epsilon),
    ]


def _skip_simplified_layer_norm(
    x: list[str], attrs: dict[str, Any], types: Types
) -> list[NodeProto]:
    """Return RMSNormalization of the sum of two inputs and a bias.

    The fourth output is that sum.
    """
    scale, bias = ([*x, ""])[2:4]
    epsilon = attrs.pop("epsilon", 1e-12)
    operands = ["y3", scale]
    return [
        *_skip_sum(x[:2], bias),
        make_node("RMSNormalization", operands, ["y"], axis=-1, epsilon=epsilon),
    ]


def _skip_sum(x: list[str], bias: str) -> list[NodeProto]:
    """Return nodes that write the sum of two inputs and an optional bias as `y3`."""
    if not bias:
        return [make_node("Add", x, ["y3"])]
    return [make_node("Add", x, ["sum"]), make_node("Add", ["sum", bias], ["y3"])]


def _simplified_layer_norm(
    x: list[str], attrs: dict[str, Any], types: Types
) -> list[NodeProto]:
    """Return RMSNormalization; the second output is the inverse root that it divides by.

    It is 1 / √(mean of x² + epsilon), over the axes from `axis` on.
    """
    rank = len(_shape(types, 0))
    axis = attrs.pop("axis", -1)
    epsilon = attrs.pop("epsilon", 1e-5)
    # The precision of the sums, which are float32 here.
    attrs.pop("stash_type", 1)
    axes = list(range(axis % rank, rank))
    return [
        make_node("RMSNormalization", x[:2], ["y"], axis=axis, epsilon=epsilon),
        _constant("axes", axes),
        _constant("epsilon", float(epsilon)),
        make_node("Mul", [x[0], x[0]], ["squares"]),
        make_node("ReduceMean", ["squares", "axes"], ["mean"], keepdims=1),
        make_node("Add", ["mean", "epsilon"], ["positive"]),
        make_node("Sqrt", ["positive"], ["root"]),
        make_node("Reciprocal", ["root"], ["y1"]),
    ]


def _matmul_bits(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return the product with weights [N, K] of 2, 4 or 8 bits, and the sum with a bias.

    The weights are [N, blocks, bytes]: a block along K has a scale and a zero point.
    """
    bits = attrs.pop("bits", 4)
    block = _needed(attrs, "block_size")
    depth = _needed(attrs, "K")
    rows = _needed(attrs, "N")
    # It says how exact the sums of onnxruntime are.
    attrs.pop("accuracy_level", 0)
    zero, order, bias = ([*x, "", "", ""])[3:6]
    if bits not in (2, 4, 8):
        raise ValueError(f"weights of {bits} bits")
    if order:
        raise ValueError("its weights have an order of their own (g_idx)")

    # Bytes hold a whole number of weights of a block, but not of zero points.
    blocks = -(-depth // block)
    nodes = _unpacked(x[1], bits, (rows, blocks, block), "weights")
    if not zero:
        nodes.append(_constant("zeros", float(1 << (bits - 1))))
    elif _is_packed(types[3]):
        nodes += _unpacked(zero, bits, (rows, blocks, 1), "zeros")
    else:
        nodes.append(_constant("each", [rows, blocks, 1]))
        nodes.append(make_node("Reshape", [zero, "each"], ["zeros"]))

    nodes += [
        _constant("by_block", [rows, blocks, 1]),
        make_node("Reshape", [x[2], "by_block"], ["scales"]),
        make_node("Sub", ["weights", "zeros"], ["centred"]),
        make_node("Mul", ["centred", "scales"], ["reals"]),
        _constant("flat", [rows, blocks * block]),
        make_node("Reshape", ["reals", "flat"], ["padded"]),
        *_first("padded", depth, "matrix"),
        make_node("Transpose", ["matrix"], ["columns"], perm=[1, 0]),
        make_node("MatMul", [x[0], "columns"], ["product"]),
    ]
    if bias:
        return [*nodes, make_node("Add", ["product", bias], ["y"])]
    return [*nodes, make_node("Identity", ["product"], ["y"])]


def _is_packed(zero: TensorType | None) -> bool:
    """Return whether zero points are bytes, and no floats."""
    return zero is not None and zero.dtype == "uint8"


def _unpacked(
    x: str, bits: int, shape: tuple[int, int, int], name: str
) -> list[NodeProto]:
    """Return nodes that write numbers of some bits, the low ones of a byte first.

    The bytes are those of the rows of a matrix; what is left of a row's last byte is
    dropped. The result are floats of the given shape.
    """
    rows, blocks, block = shape
    part = make_node("Constant", [], [f"{name}_mask"], value=_byte((1 << bits) - 1))
    nodes = [
        part,
        _constant(f"{name}_bytes", [rows, -1, 1]),
        make_node("Reshape", [x, f"{name}_bytes"], [f"{name}_byte"]),
    ]
    parts: list[str] = []
    for shift in range(0, 8, bits):
        by = f"{name}_{shift}"
        nodes += [
            make_node("Constant", [], [f"{by}_bits"], value=_byte(shift)),
            make_node(
                "BitShift",
                [f"{name}_byte", f"{by}_bits"],
                [f"{by}_moved"],
                direction="RIGHT",
            ),
            make_node("BitwiseAnd", [f"{by}_moved", f"{name}_mask"], [by]),
        ]
        parts.append(by)

    return [
        *nodes,
        make_node("Concat", parts, [f"{name}_parts"], axis=2),
        _constant(f"{name}_row", [rows, -1]),
        make_node("Reshape", [f"{name}_parts", f"{name}_row"], [f"{name}_rows"]),
        *_first(f"{name}_rows", blocks * block, f"{name}_used"),
        _constant(f"{name}_shape", shape),
        make_node("Reshape", [f"{name}_used", f"{name}_shape"], [f"{name}_whole"]),
        make_node("Cast", [f"{name}_whole"], [name], to=TensorProto.FLOAT),
    ]


def _byte(value: int) -> TensorProto:
    """Return a uint8 scalar."""
    return numpy_helper.from_array(np.array(value, np.uint8))


def _first(x: str, count: int, name: str) -> list[NodeProto]:
    """Return nodes that write the first columns of a matrix."""
    return [
        _constant(f"{name}_start", [0]),
        _constant(f"{name}_end", [count]),
        _constant(f"{name}_axis", [1]),
        make_node("Slice", [x, f"{name}_start", f"{name}_end", f"{name}_axis"], [name]),
    ]


def _shape(types: Types, i: int) -> tuple[int, ...]:
    """Return the shape of an input, () for an absent one."""
    type_ = types[i]
    return () if type_ is None else type_.shape


def _same(op_type: str) -> Body:
    """Return the body of an operator that the standard took over.

    Its inputs and attributes are the same.
    """

    def nodes(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
        given = {name: attrs.pop(name) for name in list(attrs)}
        return [make_node(op_type, x, ["y"], **given)]

    return nodes


def _channels_last(op_type: str) -> Body:
    """Return the body of a standard operator on [N, …, C].

    Its other inputs, as the weights of a convolution, are those of the standard.
    """

    def nodes(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
        given = {name: attrs.pop(name) for name in list(attrs)}
        rank = len(_shape(types, 0))
        first = [0, rank - 1, *range(1, rank - 1)]
        last = [0, *range(2, rank), 1]
        return [
            make_node("Transpose", x[:1], ["image"], perm=first),
            make_node(op_type, ["image", *x[1:]], ["result"], **given),
            make_node("Transpose", ["result"], ["y"], perm=last),
        ]

    return nodes


_CHANNELS_LAST: Mapping[str, Body] = {
    name: _channels_last(name)
    for name in ("AveragePool", "Conv", "GlobalAveragePool", "MaxPool")
}


_OF_MICROSOFT: Mapping[str, Body] = {
    "FusedConv": _fused_conv,
    "FusedMatMul": _fused_matmul,
    "TransposeMatMul": _fused_matmul,
    "Gelu": _gelu,
    "BiasGelu": _gelu,
    "FastGelu": _fast_gelu,
    "QuickGelu": _quick_gelu,
    "LayerNormalization": _same("LayerNormalization"),
    "SimplifiedLayerNormalization": _simplified_layer_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_norm,
    "NhwcMaxPool": _channels_last("MaxPool"),
    "MatMulNBits": _matmul_bits,
    "Trilu": _same("Trilu"),
}


def _needed(attrs: dict[str, Any], name: str) -> Any:
    if name not in attrs:
        raise ValueError(f"the attribute {name} is missing")
    return attrs.pop(name)


def _constant(name: str, value: float | Sequence[int]) -> NodeProto:
    if isinstance(value, float):
        return make_node("Constant", [], [name], value_float=value)
    return make_node("Constant", [], [name], value_ints=value)


def _affine(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return alpha * x + beta.

    Both attributes are required.
    """
    return [
        _constant("alpha", _needed(attrs, "alpha")),
        _constant("beta", _needed(attrs, "beta")),
        make_node("Mul", [x[0], "alpha"], ["scaled"]),
        make_node("Add", ["scaled", "beta"], ["y"]),
    ]


def _image_scaler(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return scale * x + a bias for each channel of NCHW."""
    bias = _needed(attrs, "bias")
    if len(_shape(types, 0)) != 4 or len(bias) != _shape(types, 0)[1]:
        raise ValueError(
            f"{len(bias)} biases for a value of shape {list(_shape(types, 0))}, "
            "not one for each channel of NCHW"
        )
    return [
        _constant("scale", attrs.pop("scale", 1.0)),
        make_node("Constant", [], ["biases"], value_floats=bias),
        _constant("columns", [len(bias), 1, 1]),
        make_node("Reshape", ["biases", "columns"], ["bias"]),
        make_node("Mul", [x[0], "scale"], ["scaled"]),
        make_node("Add", ["scaled", "bias"], ["y"]),
    ]


def _crop(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
    """Return NCHW without its border [left, top, right, bottom].

    With a scale [height, width], the result has this size instead, from the left and
    top border on.
    """
    border = _needed(attrs, "border")
    size = attrs.pop("scale", None)
    if len(_shape(types, 0)) != 4 or len(border) != 4 or len(size or (0, 0)) != 2:
        raise ValueError(
            f"border {border} and scale {size} of a value of shape {list(_shape(types, 0))}: "
            "4, 2 and 4 numbers"
        )
    left, top, right, bottom = border
    _, _, height, width = _shape(types, 0)
    if size:
        ends = [top + size[0], left + size[1]]
    else:
        ends = [height - bottom, width - right]

    rows_fit = 0 <= top < ends[0] <= height
    if not rows_fit or not 0 <= left < ends[1] <= width:
        raise ValueError(
            f"border {border} and scale {size} leave nothing of {height} x {width}, "
            "or reach beyond it"
        )
    return [
        _constant("starts", [top, left]),
        _constant("ends", ends),
        _constant("axes", [2, 3]),
        make_node("Slice", [x[0], "starts", "ends", "axes"], ["y"]),
    ]


def _of_scaled(op_type: str) -> Body:
    """Return the body alpha * f(beta * x) of the function `op_type`."""

    def nodes(x: list[str], attrs: dict[str, Any], types: Types) -> list[NodeProto]:
        return [
            _constant("alpha", _needed(attrs, "alpha")),
            _constant("beta", _needed(attrs, "beta")),
            make_node("Mul", [x[0], "beta"], ["scaled"]),
            make_node(op_type, ["scaled"], ["one"]),
            make_node("Mul", ["one", "alpha"], ["y"]),
        ]

    return nodes


_OF_NO_VERSION: Mapping[str, Body] = {
    "Affine": _affine,
    "Crop": _crop,
    "DynamicSlice": _same("Slice"),
    "ImageScaler": _image_scaler,
    "ParametricSoftplus": _of_scaled("Softplus"),
    "ScaledTanh": _of_scaled("Tanh"),
    "SimplifiedLayerNormalization": _simplified_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_norm,
}
"""Operators of the standard's domain that no version of it has.

onnxruntime writes two of its own there.
"""
