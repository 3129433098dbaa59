"""A graph as ONNX, written apart from edgec's reader: a second opinion on what its ops
mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from edgec.ir import Array, Graph, Op, TensorType, Value

OPSET = 21
Made = str | list[str]

SAME_NAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_and": "BitwiseAnd",
    "bitwise_not": "BitwiseNot",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "equal": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "hard_swish": "HardSwish",
    "is_nan": "IsNaN",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "log": "Log",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "logistic": "Sigmoid",
    "maximum": "Max",
    "minimum": "Min",
    "mish": "Mish",
    "neg": "Neg",
    "pow": "Pow",
    "prelu": "PRelu",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "round": "Round",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
    "det": "Det",
}
_ONE = {
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
    "none": (None, None),
}


class Writer:
    """Nodes and constants under construction.

    batch: the name of the first input, from whose shape shapes that begin with 1 are
    computed; empty: all shapes are constant.
    """

    def __init__(self, batch: str = "") -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.batch = batch

    def __call__(
        self, op_type: str, *inputs: str, outputs: int = 1, **attrs: Any
    ) -> list[str]:
        """Add a node, and return the names of its outputs."""
        names = [f"n{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attrs))
        return names

    def one(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """A node with one output."""
        return self(op_type, *inputs, **attrs)[0]

    def const(
        self, array: Array | Sequence[int] | float, dtype: str | None = None
    ) -> str:
        """A constant; whole numbers are int64."""
        name = f"c{len(self.constants)}"
        self.constants.append(
            numpy_helper.from_array(np.asarray(array, dtype or None, order="C"), name)
        )
        return name

    def shape(self, numbers: Sequence[int]) -> str:
        """A shape, or how often each dimension is repeated."""
        if not self.batch or not numbers or numbers[0] != 1:
            return self.const(np.array(numbers, np.int64))
        whole = self.one("Shape", self.batch)
        first = self.one("Slice", whole, self.const([0]), self.const([1]))
        return self.one("Concat", first, self.const([*numbers[1:]], "int64"), axis=0)

    def clamp(
        self, x: str, low: float | None, high: float | None, dtype: str = "float32"
    ) -> str:
        """Between two bounds."""
        t = np.dtype(dtype)
        low = low if low is None or t.kind == "f" else max(low, np.iinfo(t).min)
        bounds = ["" if v is None else self.const(v, dtype) for v in (low, high)]
        return x if low is high is None else self.one("Clip", x, *bounds)

    def nchw(self, x: str) -> str:
        """Of an image NHWC."""
        return self.one("Transpose", x, perm=[0, 3, 1, 2])

    def nhwc(self, x: str) -> str:
        """Of an image NCHW."""
        return self.one("Transpose", x, perm=[0, 2, 3, 1])

    def channels_first(self, x: str, rank: int) -> str:
        """The last axis second."""
        if rank < 3:
            return x
        return self.one("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])

    def channels_last(self, x: str, rank: int) -> str:
        """The second axis last."""
        return x if rank < 3 else self.one("Transpose", x, perm=[0, *range(2, rank), 1])


Rule = Callable[[Writer, Any, Op, list[str]], Made | None]
"""From a spec, its op and the names of its inputs to those of its outputs; None where
ONNX has no such form.
"""
RULES: dict[str, Rule] = {}


def _for(*kinds: str) -> Callable[[Rule], Rule]:
    def keep(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return keep


def to_onnx(graph: Graph, of_any_batch: bool = False) -> bytes | None:
    """The file of a graph all of whose ops ONNX has; None where it lacks one.

    of_any_batch: the first input with a batch of 1 has one of any size in the file, and
    shapes depend on it. An output that is an input or a constant is that in the file.
    """
    names = dict[Value, str]()
    batch = ""
    for i, v in enumerate(graph.inputs):
        names[v] = f"in{i}"
        if of_any_batch and not batch and v.type.rank > 1 and v.type.shape[0] == 1:
            batch = names[v]
    w = Writer(batch)
    for op in graph.ops:
        for v in op.inputs:
            if v not in names and v.const is not None:
                names[v] = w.const(v.const)
        made = expressed(w, op, [names[v] for v in op.inputs])
        if made is None:
            return None
        names.update(
            zip(op.outputs, [made] if isinstance(made, str) else made, strict=True)
        )
    inputs = [_info(names[v], v.type, names[v] == batch) for v in graph.inputs]
    outputs = []
    for v in graph.outputs:
        if v.const is not None and v not in names:
            names[v] = w.const(v.const)
            if batch and v.type.rank:  # as an SSD gives its anchors
                names[v] = w.one("Tile", names[v], w.shape([1] * v.type.rank))
        outputs.append(_info(names[v], v.type))
    made_of = helper.make_graph(w.nodes, "fuzz", inputs, outputs, w.constants)
    model = helper.make_model(
        made_of, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
    )
    return bytes(model.SerializeToString())


def _info(name: str, t: TensorType, of_any_batch: bool = False) -> onnx.ValueInfoProto:
    shape = ["batch", *t.shape[1:]] if of_any_batch else t.shape
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(t.np_dtype), shape
    )


def expressed(w: Writer, op: Op, x: list[str]) -> Made | None:
    """The nodes of one op; None where ONNX has none for it, or means something else at
    its edges.
    """
    if (
        any(v.type.is_quantized for v in (*op.inputs, *op.outputs))
        or not op.outputs[0].type.rank <= 6
    ):
        return None
    if op.kind in SAME_NAME:
        return w.one(SAME_NAME[op.kind], *x)
    return RULES[op.kind](w, op.spec, op, x) if op.kind in RULES else None


@_for("add", "sub", "mul", "div")
def _fused(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if op.kind == "div" and op.output.type.np_dtype.kind != "f":
        return None  # by zero
    y = w.one(op.kind.title(), *x)
    return w.clamp(y, *_ONE[s.act], op.output.type.dtype)


@_for("not_equal")
def _not_equal(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Not", w.one("Equal", *x))


@_for("relu6", "relu_n1_to_1")
def _relu_n(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.clamp(x[0], *_ONE[op.kind], op.output.type.dtype)


@_for("clamp")
def _clamp(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    t = op.output.type.np_dtype
    bounds = [b for b in (s.low, s.high) if b is not None]
    if t.kind != "f" and any(
        b != int(b) or not np.iinfo(t).min <= b <= np.iinfo(t).max for b in bounds
    ):
        return None
    return w.clamp(x[0], s.low, s.high, str(t))


@_for("rsqrt")
def _rsqrt(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Reciprocal", w.one("Sqrt", x[0]))


@_for("square")
def _square(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Mul", x[0], x[0])


@_for("squared_difference")
def _squared_difference(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    d = w.one("Sub", *x)
    return w.one("Mul", d, d)


@_for("leaky_relu", "elu")
def _alpha(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if op.kind == "elu" and s.rate != 1:
        return w.one("Celu", x[0], alpha=s.alpha) if s.rate * s.alpha == 1 else None
    return w.one(
        {"leaky_relu": "LeakyRelu", "elu": "Elu"}[op.kind], x[0], alpha=s.alpha
    )


@_for("selu")
def _selu(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Selu", x[0], alpha=s.alpha, gamma=s.gamma)


@_for("hard_sigmoid")
def _hard_sigmoid(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("HardSigmoid", x[0], alpha=s.alpha, beta=s.beta)


@_for("gelu")
def _gelu(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Gelu", x[0], approximate="tanh" if s.approximate else "none")


@_for("is_inf")
def _is_inf(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one(
        "IsInf", x[0], detect_positive=int(s.positive), detect_negative=int(s.negative)
    )


@_for("reshape")
def _reshape(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Reshape", x[0], w.shape(s.shape), allowzero=1)


@_for("transpose")
def _transpose(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Transpose", x[0], perm=list(s.perm))


@_for("concat")
def _concat(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Concat", *x, axis=s.axis)


@_for("tile")
def _tile(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Tile", x[0], w.shape(s.repeats))


@_for("slice")
def _slice(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    ends = [b + n * step for b, n, step in zip(s.begin, s.shape, s.step, strict=True)]
    ends = [e if e >= 0 else -(1 << 40) for e in ends]
    if not s.begin:
        return None
    axes = range(len(s.begin))
    return w.one(
        "Slice",
        x[0],
        *(w.const(np.array(v, np.int64)) for v in (s.begin, ends, axes, s.step)),
    )


@_for("pad")
def _pad(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    t = op.inputs[0].type
    if (
        s.mode not in ("constant", "reflect", "edge", "wrap")
        or 0 in t.shape
        or t.rank == 0
    ):
        return None
    if s.mode != "constant" and any(
        max(p) >= d for p, d in zip(s.pads, t.shape, strict=True)
    ):
        return None  # onnxruntime does not bounce twice
    if s.mode == "constant" and t.np_dtype.kind != "f" and s.value != int(s.value):
        return None
    pads = [b for b, _ in s.pads] + [a for _, a in s.pads]
    return w.one(
        "Pad",
        x[0],
        w.const(np.array(pads, np.int64)),
        w.const(s.value, t.dtype),
        mode=s.mode,
    )


@_for("cast")
def _cast(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    t = op.inputs[0].type.np_dtype
    if t.kind == "f" and np.dtype(s.dtype).kind in "iu":
        return None  # beyond the range it is not said
    return w.one("Cast", x[0], to=helper.np_dtype_to_tensor_dtype(np.dtype(s.dtype)))


@_for("conv2d", "depthwise_conv2d")
def _conv(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    image = op.inputs[0].type
    weights = op.inputs[1].type
    t, b, left, r = s.pads
    if min(s.pads) < 0 or image.size == 0:
        return None
    perm = [0, 3, 1, 2] if op.kind == "conv2d" else [3, 0, 1, 2]
    if op.kind == "conv2d":
        group = image.shape[3] // weights.shape[3]
    else:
        group = image.shape[3]
    attrs = {
        "strides": s.stride,
        "dilations": s.dilation,
        "pads": [t, left, b, r],
        "group": group,
    }
    y = w.one(
        "Conv", w.nchw(x[0]), w.one("Transpose", x[1], perm=perm), *x[2:], **attrs
    )
    return w.clamp(w.nhwc(y), *_ONE[s.act])


@_for("transpose_conv2d")
def _transpose_conv(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if min(s.pads) < 0 or op.inputs[0].type.size == 0:
        return None
    t, b, left, r = s.pads
    weights = w.one("Transpose", x[1], perm=[3, 0, 1, 2])
    y = w.one(
        "ConvTranspose",
        w.nchw(x[0]),
        weights,
        *x[2:],
        strides=s.stride,
        pads=[t, left, b, r],
    )
    return w.clamp(w.nhwc(y), *_ONE[s.act])


@_for("max_pool2d", "average_pool2d")
def _pool(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    t, b, left, r = s.pads
    if (
        min(s.pads) < 0
        or max(b, r) >= min(s.kernel)
        or op.inputs[0].type.dtype != "float32"
        or not op.output.type.size
    ):
        return None
    attrs: dict[str, Any] = {
        "kernel_shape": s.kernel,
        "strides": s.stride,
        "pads": [t, left, b, r],
    }
    if op.kind == "max_pool2d":
        y = w.one("MaxPool", w.nchw(x[0]), **attrs)
    else:
        y = w.one(
            "AveragePool", w.nchw(x[0]), count_include_pad=int(s.count_pads), **attrs
        )
    return w.clamp(w.nhwc(y), *_ONE[s.act])


@_for("fully_connected")
def _fully_connected(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    k = op.inputs[1].type.shape[1]
    rows = w.one(
        "Reshape", x[0], w.const([-1 if op.inputs[0].type.size else 0, k]), allowzero=1
    )
    y = w.one("MatMul", rows, w.one("Transpose", x[1], perm=[1, 0]))
    y = w.one("Add", y, w.one("Reshape", x[2], w.const([-1]))) if len(x) > 2 else y
    return w.clamp(
        w.one("Reshape", y, w.const(list(op.output.type.shape)), allowzero=1),
        *_ONE[s.act],
    )


@_for("batch_matmul")
def _batch_matmul(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    sides = []
    for name, v, swapped in zip(x, op.inputs, (s.adj_x, s.adj_y), strict=True):
        n = v.type.rank
        sides.append(
            w.one("Transpose", name, perm=[*range(n - 2), n - 1, n - 2])
            if swapped
            else name
        )
    return w.one("MatMul", *sides)


@_for("softmax", "log_softmax")
def _softmax(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if not op.inputs[0].type.size or op.inputs[0].type.rank == 0:
        return None
    if op.kind == "log_softmax":
        return w.one("LogSoftmax", x[0], axis=-1)
    return w.one("Softmax", w.one("Mul", x[0], w.const(s.beta, "float32")), axis=-1)


@_for("batch_norm")
def _batch_norm(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    rank = op.inputs[0].type.rank
    if rank < 2 or not op.inputs[0].type.size:
        return None
    y = w.one("BatchNormalization", w.channels_first(x[0], rank), *x[1:], epsilon=s.eps)
    return w.channels_last(y, rank)


@_for("instance_norm")
def _instance_norm(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    rank = op.inputs[0].type.rank
    t = op.inputs[0].type
    if rank < 3 or t.size <= t.shape[0] * (s.groups or t.shape[-1]):
        # onnxruntime subtracts the mean of one element with a rounding error
        return None
    image = w.channels_first(x[0], rank)
    if s.groups:
        y = w.one(
            "GroupNormalization", image, *x[1:], epsilon=s.eps, num_groups=s.groups
        )
    else:
        y = w.one("InstanceNormalization", image, *x[1:], epsilon=s.eps)
    return w.channels_last(y, rank)


@_for("layer_norm")
def _layer_norm(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if op.inputs[0].type.size:
        return w.one("LayerNormalization", *x, axis=-s.axes, epsilon=s.eps)
    return None


@_for("local_response_norm")
def _lrn(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    size = s.before + s.after + 1
    rank = op.inputs[0].type.rank
    if s.before != (size - 1) // 2 or rank != 4 or not op.inputs[0].type.size:
        return None
    y = w.one(
        "LRN",
        w.channels_first(x[0], rank),
        size=size,
        alpha=s.alpha * size,
        beta=s.beta,
        bias=s.bias,
    )
    return w.channels_last(y, rank)


@_for("mean", "sum", "reduce_max", "reduce_min", "reduce_prod")
def _reduce(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    t = op.inputs[0].type
    if (
        not s.axes
        or not t.size
        or (op.kind in ("mean", "reduce_prod", "sum") and t.np_dtype.kind != "f")
    ):
        return None
    name = {"mean": "ReduceMean", "sum": "ReduceSum"}.get(
        op.kind, op.kind.title().replace("_", "")
    )
    return w.one(
        name, x[0], w.const(np.array(s.axes, np.int64)), keepdims=int(s.keep_dims)
    )


@_for("arg_max", "arg_min")
def _arg(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    name = {"arg_max": "ArgMax", "arg_min": "ArgMin"}[op.kind]
    y = w.one(name, x[0], axis=s.axis, keepdims=0, select_last_index=int(s.last))
    return w.one("Cast", y, to=helper.np_dtype_to_tensor_dtype(np.dtype(s.dtype)))


@_for("cum_sum")
def _cum_sum(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if not op.inputs[0].type.size:
        return None
    return w.one(
        "CumSum",
        x[0],
        w.const(s.axis, "int64"),
        exclusive=int(s.exclusive),
        reverse=int(s.reverse),
    )


@_for("topk")
def _topk(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w(
        "TopK", x[0], w.const([s.k]), outputs=2, axis=s.axis, largest=int(s.largest)
    )


@_for("gather")
def _gather(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("Gather", *x, axis=s.axis)


@_for("gather_elements")
def _gather_elements(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("GatherElements", *x, axis=s.axis)


@_for("gather_nd")
def _gather_nd(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("GatherND", x[0], w.one("Cast", x[1], to=onnx.TensorProto.INT64))


@_for("scatter_elements")
def _scatter_elements(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("ScatterElements", *x, axis=s.axis, reduction=s.reduction)


@_for("scatter_nd")
def _scatter_nd(w: Writer, s: Any, op: Op, x: list[str]) -> Made:
    return w.one("ScatterND", *x, reduction=s.reduction)


@_for("depth_to_space")
def _depth_to_space(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if not op.inputs[0].type.size:
        return None
    return w.nhwc(w.one("DepthToSpace", w.nchw(x[0]), blocksize=s.block, mode=s.mode))


@_for("space_to_depth")
def _space_to_depth(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if (
        s.mode != "DCR"
        or op.output.type.dtype != "float32"
        or not op.inputs[0].type.size
    ):
        return None
    return w.nhwc(w.one("SpaceToDepth", w.nchw(x[0]), blocksize=s.block))


@_for("resize_nearest", "resize_bilinear", "resize_cubic")
def _resize(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    if (
        not s.mode.startswith("onnx_")
        or any(s.scale)
        or op.output.type.dtype != "float32"
    ):
        return None
    n, h, wd, c = op.output.type.shape
    sizes = w.const([n, c, h, wd])
    attrs: dict[str, Any] = {
        "coordinate_transformation_mode": s.mode.removeprefix("onnx_")
    }
    if op.kind == "resize_nearest":
        attrs |= {"mode": "nearest", "nearest_mode": s.nearest_mode}
    elif op.kind == "resize_bilinear":
        attrs |= {"mode": "linear"}
    else:
        attrs |= {
            "mode": "cubic",
            "cubic_coeff_a": s.coefficient,
            "exclude_outside": int(s.exclude_outside),
        }
    if op.output.type.size:
        return w.nhwc(w.one("Resize", w.nchw(x[0]), "", "", sizes, **attrs))
    return None


@_for("grid_sample")
def _grid_sample(w: Writer, s: Any, op: Op, x: list[str]) -> Made | None:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(s.mode, s.mode)
    if not op.output.type.size:
        return None
    attrs = {
        "mode": mode,
        "padding_mode": s.padding,
        "align_corners": int(s.align_corners),
    }
    return w.nhwc(w.one("GridSample", w.nchw(x[0]), x[1], **attrs))
