"""Writes graphs as ONNX, apart from edgec's reader: a second opinion on what its ops mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from edgec.ir import Array, Graph, Op, TensorType

OPSET = 21
MAX_RANK = 6
"""The largest rank of tensors that onnxruntime's kernels take everywhere."""
SIMPLE_OPS = """
    abs Abs
    acos Acos
    acosh Acosh
    asin Asin
    asinh Asinh
    atan Atan
    atanh Atanh
    bitwise_and BitwiseAnd
    bitwise_not BitwiseNot
    bitwise_or BitwiseOr
    bitwise_xor BitwiseXor
    ceil Ceil
    concat Concat axis
    cos Cos
    cosh Cosh
    det Det
    equal Equal
    erf Erf
    exp Exp
    floor Floor
    gather Gather axis
    gather_elements GatherElements axis
    greater Greater
    greater_equal GreaterOrEqual
    hard_sigmoid HardSigmoid alpha beta
    hard_swish HardSwish
    is_nan IsNaN
    leaky_relu LeakyRelu alpha
    less Less
    less_equal LessOrEqual
    log Log
    logical_and And
    logical_not Not
    logical_or Or
    logical_xor Xor
    logistic Sigmoid
    maximum Max
    minimum Min
    mish Mish
    neg Neg
    pow Pow
    prelu PRelu
    reciprocal Reciprocal
    relu Relu
    round Round
    scatter_elements ScatterElements axis reduction
    scatter_nd ScatterND reduction
    selu Selu alpha gamma
    sign Sign
    sin Sin
    sinh Sinh
    softplus Softplus
    softsign Softsign
    sqrt Sqrt
    tan Tan
    tanh Tanh
    transpose Transpose perm
    where Where
"""
"""Kinds of ops with the ONNX operator of the same inputs, and attributes of that name."""
ACTIVATION_BOUNDS = {
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
    "none": (None, None),
}


class InexpressibleError(Exception):
    """ONNX has no operator for an op, or means something else at its edges."""


def simple_ops() -> dict[str, tuple[str, list[str]]]:
    """Return the ONNX operator and the attributes of each kind in SIMPLE_OPS."""
    rows = [line.split() for line in SIMPLE_OPS.strip().splitlines()]
    return {kind: (operator, attributes) for kind, operator, *attributes in rows}


class Writer:
    """Nodes and constants of an ONNX graph.

    Args:
        batch: the name of the input whose batch is open: shapes that begin with 1 are
            computed from its shape; "" if all shapes are constant
    """

    def __init__(self, batch: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.batch = batch

    def nodes_of(
        self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Add a node, and return the names of its outputs."""
        results = [f"n{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, results, **attributes))
        return results

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        return self.nodes_of(operator, *inputs, **attributes)[0]

    def const(
        self, array: Array | Sequence[int] | float, dtype: str | None = None
    ) -> str:
        """Add a constant, and return its name; whole numbers are int64."""
        name = f"c{len(self.constants)}"
        values = np.asarray(array, dtype or None, order="C")
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def shape(self, sizes: Sequence[int]) -> str:
        """Return the name of a shape, or of how often each dimension is repeated."""
        if not self.batch or not sizes or sizes[0] != 1:
            return self.const(sizes, "int64")
        whole = self.node("Shape", self.batch)
        first = self.node("Slice", whole, self.const([0]), self.const([1]))
        return self.node("Concat", first, self.const(sizes[1:], "int64"), axis=0)

    def clamp(self, x: str, low: float | None, high: float | None, dtype: str) -> str:
        """Clamp a value of an element type."""
        if low is high is None:
            return x
        t = np.dtype(dtype)
        if low is not None and t.kind != "f":
            low = max(low, np.iinfo(t).min)
        bounds = ["" if b is None else self.const(b, dtype) for b in (low, high)]
        return self.node("Clip", x, *bounds)

    def channels_first(self, x: str, rank: int = 4) -> str:
        """Move the last axis to the second place."""
        if rank < 3:
            return x
        return self.node("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])

    def channels_last(self, x: str, rank: int = 4) -> str:
        """Move the second axis to the last place."""
        if rank < 3:
            return x
        return self.node("Transpose", x, perm=[0, *range(2, rank), 1])


def to_onnx(graph: Graph, open_batch: bool = False) -> bytes | None:
    """Return the ONNX file of a graph; None if an op cannot be expressed.

    Args:
        graph: the graph
        open_batch: whether the first input with a batch of 1 has one of any size in the
            file, on which shapes depend
    """
    names = {v: f"in{i}" for i, v in enumerate(graph.inputs)}
    batches = [v for v in graph.inputs if v.type.rank > 1 and v.type.shape[0] == 1]
    batch = names[batches[0]] if open_batch and batches else ""
    w = Writer(batch)
    for op in graph.ops:
        for v in op.inputs:
            if v not in names and v.const is not None:
                names[v] = w.const(v.const)
        outputs = expressed(w, op, [names[v] for v in op.inputs])
        if outputs is None:
            return None
        names.update(zip(op.outputs, outputs, strict=True))
    for v in graph.outputs:
        if v.const is not None and v not in names:
            names[v] = w.const(v.const)
            if batch and v.type.rank:  # like the anchors of an SSD
                names[v] = w.node("Tile", names[v], w.shape([1] * v.type.rank))
    whole = helper.make_graph(
        w.nodes,
        "fuzz",
        [_info(names[v], v.type, names[v] == batch) for v in graph.inputs],
        [_info(names[v], v.type) for v in graph.outputs],
        w.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=10)
    return bytes(model.SerializeToString())


def _info(name: str, t: TensorType, open_batch: bool = False) -> onnx.ValueInfoProto:
    shape = ["batch", *t.shape[1:]] if open_batch else t.shape
    return helper.make_tensor_value_info(name, _onnx_type(t.np_dtype), shape)


def _onnx_type(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def expressed(w: Writer, op: Op, inputs: Sequence[str]) -> list[str] | None:
    """Write the nodes of one op, and return the names of its outputs.

    Returns None where ONNX has no operator for it, or means something else at its edges.
    """
    is_quantized = any(v.type.is_quantized for v in (*op.inputs, *op.outputs))
    if is_quantized or op.outputs[0].type.rank > MAX_RANK:
        return None
    if op.kind in _SIMPLE:
        operator, attributes = _SIMPLE[op.kind]
        return [
            w.node(operator, *inputs, **{a: getattr(op.spec, a) for a in attributes})
        ]
    if op.kind not in vars(OpWriter):
        return None
    try:
        outputs = getattr(OpWriter(w, op, inputs), op.kind)()
    except InexpressibleError:
        return None
    return [outputs] if isinstance(outputs, str) else list(outputs)


_SIMPLE = simple_ops()


class OpWriter:
    """Writes one op; each public method writes the kind of its name.

    A method returns the names of the outputs, and raises InexpressibleError.

    Args:
        w: takes the nodes
        op: the op
        x: the names of its inputs
    """

    def __init__(self, w: Writer, op: Op, x: Sequence[str]) -> None:
        self._w = w
        self._op = op
        self._s: Any = op.spec
        self._x = x
        self._type = op.inputs[0].type if op.inputs else op.outputs[0].type
        self._is_float = self._type.np_dtype.kind == "f"

    def _require(self, condition: object) -> None:
        if not condition:
            raise InexpressibleError

    def _activated(self, y: str) -> str:
        """Clamp a result by the activation of the op."""
        return self._w.clamp(
            y, *ACTIVATION_BOUNDS[self._s.act], self._op.output.type.dtype
        )

    def _on_image(self, operator: str, *others: str, **attributes: Any) -> str:
        """Write an operator whose first input and output are images [N, H, W, C]."""
        image = self._w.channels_first(self._x[0])
        result = self._w.node(operator, image, *others, **attributes)
        return self._w.channels_last(result)

    def add(self) -> str:
        """Write arithmetic with an activation."""
        # Integers may be divided by zero.
        self._require(self._op.kind != "div" or self._is_float)
        return self._activated(self._w.node(self._op.kind.title(), *self._x))

    sub = mul = div = add

    def not_equal(self) -> str:
        """Write a comparison that ONNX lacks."""
        return self._w.node("Not", self._w.node("Equal", *self._x))

    def relu6(self) -> str:
        """Write a clamp with fixed bounds."""
        bounds = ACTIVATION_BOUNDS[self._op.kind]
        return self._w.clamp(self._x[0], *bounds, self._op.output.type.dtype)

    relu_n1_to_1 = relu6

    def clamp(self) -> str:
        """Write a clamp whose bounds the element type has."""
        t = self._op.output.type.np_dtype
        if t.kind != "f":
            info = np.iinfo(t)
            bounds = [b for b in (self._s.low, self._s.high) if b is not None]
            self._require(
                all(b == int(b) and info.min <= b <= info.max for b in bounds)
            )
        return self._w.clamp(self._x[0], self._s.low, self._s.high, str(t))

    def rsqrt(self) -> str:
        """Write the reciprocal of a root."""
        return self._w.node("Reciprocal", self._w.node("Sqrt", *self._x))

    def square(self) -> str:
        """Write a product of a value by itself."""
        return self._w.node("Mul", self._x[0], self._x[0])

    def squared_difference(self) -> str:
        """Write the square of a difference."""
        difference = self._w.node("Sub", *self._x)
        return self._w.node("Mul", difference, difference)

    def elu(self) -> str:
        """Write Elu, or Celu if the exponent has a rate."""
        s = self._s
        if s.rate == 1:
            return self._w.node("Elu", *self._x, alpha=s.alpha)
        self._require(s.rate * s.alpha == 1)
        return self._w.node("Celu", *self._x, alpha=s.alpha)

    def gelu(self) -> str:
        """Write Gelu by the error function or by tanh."""
        kind = "tanh" if self._s.approximate else "none"
        return self._w.node("Gelu", *self._x, approximate=kind)

    def is_inf(self) -> str:
        """Write a test for infinities of either sign."""
        return self._w.node(
            "IsInf",
            *self._x,
            detect_positive=int(self._s.positive),
            detect_negative=int(self._s.negative),
        )

    def reshape(self) -> str:
        """Write a shape that may have zeros."""
        shape = self._w.shape(self._s.shape)
        return self._w.node("Reshape", *self._x, shape, allowzero=1)

    def tile(self) -> str:
        """Write a value repeated along its axes."""
        return self._w.node("Tile", *self._x, self._w.shape(self._s.repeats))

    def slice(self) -> str:
        """Write begins, ends and steps of all axes."""
        s = self._s
        self._require(s.begin)
        ends = [
            b + n * step for b, n, step in zip(s.begin, s.shape, s.step, strict=True)
        ]
        # -1 would be the last element; an end before the first one is far below.
        ends = [end if end >= 0 else -(1 << 40) for end in ends]
        columns = (s.begin, ends, range(len(s.begin)), s.step)
        numbers = [self._w.const(np.array(c, np.int64)) for c in columns]
        return self._w.node("Slice", *self._x, *numbers)

    def pad(self) -> str:
        """Write pads; onnxruntime reflects an axis only once."""
        s = self._s
        t = self._type
        self._require(s.mode in ("constant", "reflect", "edge", "wrap"))
        self._require(t.rank and t.size)
        if s.mode == "constant":
            self._require(self._is_float or s.value == int(s.value))
        else:
            self._require(all(max(p) < n for p, n in zip(s.pads, t.shape, strict=True)))
        pads = [before for before, _ in s.pads] + [after for _, after in s.pads]
        values = (self._w.const(pads, "int64"), self._w.const(s.value, t.dtype))
        return self._w.node("Pad", *self._x, *values, mode=s.mode)

    def cast(self) -> str:
        """Write a cast; ONNX does not define one of floats beyond the range of integers."""
        to_integer = np.dtype(self._s.dtype).kind in "iu"
        self._require(not (self._is_float and to_integer))
        return self._w.node("Cast", *self._x, to=_onnx_type(self._s.dtype))

    def conv2d(self) -> str:
        """Write a convolution with a stride, dilation and groups."""
        is_depthwise = self._op.kind == "depthwise_conv2d"
        channels = self._type.shape[3]
        weights = self._op.inputs[1].type.shape
        perm = [3, 0, 1, 2] if is_depthwise else [0, 3, 1, 2]
        group = channels if is_depthwise else channels // weights[3]
        return self._convolution("Conv", perm, dilations=self._s.dilation, group=group)

    depthwise_conv2d = conv2d

    def transpose_conv2d(self) -> str:
        """Write a transposed convolution."""
        return self._convolution("ConvTranspose", [3, 0, 1, 2])

    def _convolution(
        self, operator: str, perm: Sequence[int], **attributes: Any
    ) -> str:
        self._require(min(self._s.pads) >= 0 and self._type.size)
        weights = self._w.node("Transpose", self._x[1], perm=perm)
        attributes |= {"strides": self._s.stride, "pads": self._pads()}
        y = self._on_image(operator, weights, *self._x[2:], **attributes)
        return self._activated(y)

    def _pads(self) -> list[int]:
        """Return the pads in the order of ONNX: top, left, bottom, right."""
        top, bottom, left, right = self._s.pads
        return [top, left, bottom, right]

    def max_pool2d(self) -> str:
        """Write a pool; no window may lie in pads alone."""
        s = self._s
        _, bottom, _, right = s.pads
        self._require(min(s.pads) >= 0 and max(bottom, right) < min(s.kernel))
        self._require(self._type.dtype == "float32" and self._op.output.type.size)
        attributes = {
            "kernel_shape": s.kernel,
            "strides": s.stride,
            "pads": self._pads(),
        }
        if self._op.kind == "max_pool2d":
            return self._activated(self._on_image("MaxPool", **attributes))
        attributes["count_include_pad"] = int(s.count_pads)
        return self._activated(self._on_image("AveragePool", **attributes))

    average_pool2d = max_pool2d

    def fully_connected(self) -> str:
        """Write a product with transposed weights, and a sum."""
        w = self._w
        columns = self._op.inputs[1].type.shape[1]
        shape = w.const([-1 if self._type.size else 0, columns])
        rows = w.node("Reshape", self._x[0], shape, allowzero=1)
        y = w.node("MatMul", rows, w.node("Transpose", self._x[1], perm=[1, 0]))
        if len(self._x) > 2:
            y = w.node("Add", y, w.node("Reshape", self._x[2], w.const([-1])))
        shape = w.const(self._op.output.type.shape, "int64")
        return self._activated(w.node("Reshape", y, shape, allowzero=1))

    def batch_matmul(self) -> str:
        """Write a product whose factors may be transposed."""
        factors = []
        transposed = (self._s.adj_x, self._s.adj_y)
        for name, v, is_transposed in zip(
            self._x, self._op.inputs, transposed, strict=True
        ):
            n = v.type.rank
            if is_transposed:
                name = self._w.node(
                    "Transpose", name, perm=[*range(n - 2), n - 1, n - 2]
                )
            factors.append(name)
        return self._w.node("MatMul", *factors)

    def softmax(self) -> str:
        """Write a softmax with a factor before it."""
        self._require(self._type.size and self._type.rank)
        beta = self._w.const(self._s.beta, "float32")
        return self._w.node("Softmax", self._w.node("Mul", *self._x, beta), axis=-1)

    def log_softmax(self) -> str:
        """Write the logarithm of a softmax."""
        self._require(self._type.size and self._type.rank)
        return self._w.node("LogSoftmax", *self._x, axis=-1)

    def _on_channels(self, operator: str, **attributes: Any) -> str:
        """Write an operator whose channels are the second axis."""
        rank = self._type.rank
        x = self._w.channels_first(self._x[0], rank)
        y = self._w.node(operator, x, *self._x[1:], **attributes)
        return self._w.channels_last(y, rank)

    def batch_norm(self) -> str:
        """Write a normalization by constants."""
        self._require(self._type.rank >= 2 and self._type.size)
        return self._on_channels("BatchNormalization", epsilon=self._s.eps)

    def instance_norm(self) -> str:
        """Write a normalization of channels or of groups of them."""
        t = self._type
        groups = self._s.groups
        # onnxruntime subtracts the mean of one element with a rounding error.
        self._require(t.rank >= 3 and t.size > t.shape[0] * (groups or t.shape[-1]))
        attributes = {"epsilon": self._s.eps}
        if groups:
            return self._on_channels(
                "GroupNormalization", num_groups=groups, **attributes
            )
        return self._on_channels("InstanceNormalization", **attributes)

    def layer_norm(self) -> str:
        """Write a normalization of the last axes."""
        self._require(self._type.size)
        return self._w.node(
            "LayerNormalization", *self._x, axis=-self._s.axes, epsilon=self._s.eps
        )

    def local_response_norm(self) -> str:
        """Write a normalization by neighbouring channels."""
        s = self._s
        size = s.before + s.after + 1
        self._require(s.before == (size - 1) // 2)
        self._require(self._type.rank == 4 and self._type.size)
        alpha = s.alpha * size
        return self._on_channels(
            "LRN", size=size, alpha=alpha, beta=s.beta, bias=s.bias
        )

    def mean(self) -> str:
        """Write a reduction; sums of integers may overflow."""
        kind = self._op.kind
        self._require(self._s.axes and self._type.size)
        self._require(self._is_float or kind in ("reduce_max", "reduce_min"))
        operator = f"Reduce{kind.removeprefix('reduce_').title()}"
        axes = self._w.const(self._s.axes, "int64")
        return self._w.node(operator, *self._x, axes, keepdims=int(self._s.keep_dims))

    sum = reduce_max = reduce_min = reduce_prod = mean

    def arg_max(self) -> str:
        """Write the place of the largest or smallest element."""
        operator = {"arg_max": "ArgMax", "arg_min": "ArgMin"}[self._op.kind]
        last = int(self._s.last)
        y = self._w.node(
            operator, *self._x, axis=self._s.axis, keepdims=0, select_last_index=last
        )
        return self._w.node("Cast", y, to=_onnx_type(self._s.dtype))

    arg_min = arg_max

    def cum_sum(self) -> str:
        """Write running sums."""
        self._require(self._type.size)
        return self._w.node(
            "CumSum",
            *self._x,
            self._w.const(self._s.axis, "int64"),
            exclusive=int(self._s.exclusive),
            reverse=int(self._s.reverse),
        )

    def topk(self) -> list[str]:
        """Write the largest or smallest elements and their places."""
        k = self._w.const([self._s.k])
        largest = int(self._s.largest)
        return self._w.nodes_of(
            "TopK", *self._x, k, outputs=2, axis=self._s.axis, largest=largest
        )

    def gather_nd(self) -> str:
        """Write a gather by places of any integer type."""
        places = self._w.node("Cast", self._x[1], to=onnx.TensorProto.INT64)
        return self._w.node("GatherND", self._x[0], places)

    def depth_to_space(self) -> str:
        """Write blocks of channels as pixels."""
        self._require(self._type.size)
        s = self._s
        return self._on_image("DepthToSpace", blocksize=s.block, mode=s.mode)

    def space_to_depth(self) -> str:
        """Write blocks of pixels as channels."""
        self._require(self._s.mode == "DCR" and self._type.size)
        self._require(self._op.output.type.dtype == "float32")
        return self._on_image("SpaceToDepth", blocksize=self._s.block)

    def resize_nearest(self) -> str:
        """Write a resize by one of ONNX's rules for coordinates."""
        s = self._s
        y = self._op.output.type
        self._require(s.mode.startswith("onnx_") and not any(s.scale))
        self._require(y.dtype == "float32" and y.size)
        attributes: dict[str, Any] = {"mode": "linear"}
        if self._op.kind == "resize_nearest":
            attributes = {"mode": "nearest", "nearest_mode": s.nearest_mode}
        elif self._op.kind == "resize_cubic":
            attributes = {
                "mode": "cubic",
                "cubic_coeff_a": s.coefficient,
                "exclude_outside": int(s.exclude_outside),
            }
        n, height, width, channels = y.shape
        sizes = self._w.const([n, channels, height, width])
        rule = s.mode.removeprefix("onnx_")
        return self._on_image(
            "Resize", "", "", sizes, coordinate_transformation_mode=rule, **attributes
        )

    resize_bilinear = resize_cubic = resize_nearest

    def grid_sample(self) -> str:
        """Write samples at given places."""
        s = self._s
        self._require(self._op.output.type.size)
        return self._on_image(
            "GridSample",
            self._x[1],
            mode={"bilinear": "linear", "bicubic": "cubic"}.get(s.mode, s.mode),
            padding_mode=s.padding,
            align_corners=int(s.align_corners),
        )
