"""Ops that only rename or reorder elements: reshape (a view) and transpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Pointer,
    Quant,
    QuantRule,
    Sample,
    Struct,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, ints, suffix
from edgec.ops.limits import within

_TRANSPOSE = (82_944, 102_400)
_RESHAPE = (110_000, 230_400)
_RESHAPE_HEAD = (408_000, 1_632_000)
"""Elements of the largest int8 TRANSPOSE and RESHAPE that compiler v16 was seen to map
(rounded up a little), and of the smallest that it refused. Its log of a YOLOv8n of 192
pixels has all operators mapped, among them the TRANSPOSE of a head of [1,24,24,144],
and at 640 pixels refuses those of 102400 elements and more.
"""


@dataclass(frozen=True)
class Reshape(OpDef):
    """The same elements in the same order under another shape."""

    shape: tuple[int, ...]

    kind = "reshape"
    onnx = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
    tflite = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
    edgetpu_versions = {
        name: Versions(1) for name in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
    }
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True
    view: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """`shape`, which must hold as many elements."""
        if prod(self.shape) != x[0].size:
            raise ValueError(f"{x[0]} does not fit the shape {list(self.shape)}")
        quant = x[0].quant and x[0].quant.reshaped(x[0].shape, self.shape)
        return (TensorType(self.shape, x[0].dtype, quant),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """No element changes."""
        return [x[0].reshape(self.shape)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Reshape, Flatten, Squeeze, Unsqueeze with constant shapes and axes; Identity
        and Dropout as themselves.
        """
        x = node.input(0)
        if node.op_type == "Dropout":
            _check_inference(node)
        y = node.build.add(cls(_onnx_shape(node, x.type.shape)), [x], node.name)
        if node.op_type == "Dropout" and node.n_outputs > 1:
            return [
                y,
                node.build.const(np.ones(x.type.shape, bool), f"{node.name}_mask"),
            ]
        return y

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """RESHAPE to its constant shape (-1 is computed); else the declared output
        shape is the shape.
        """
        shape = op.outputs[0].type.shape
        if op.name == "RESHAPE" and len(op.inputs) > 1 and op.inputs[1]:
            given = op.inputs[1].const
        else:
            given = None
        if given is not None and given.ndim == 1:
            shape = _computed([int(d) for d in given], op.input(0).type.size)
        # the input and the declared shape say the same
        op.ignore("newShape", "squeezeDims")
        op.build.write(cls(shape), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """RESHAPE with its shape as a constant tensor."""
        options = ("ReshapeOptions", {"newShape": list(self.shape)})
        return TfliteCode(
            "RESHAPE", options, 1, (op.inputs[0], np.array(self.shape, np.int32))
        )

    def c(self, op: Op) -> KernelCall:
        """A copy; the memory planner usually makes it a view, and then this is not
        called.
        """
        x = op.inputs[0]
        return KernelCall.of("ek_copy", x, op.output, x.type.nbytes)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Float and int8."""
        yield Sample(cls((2, 6)), (Arg(TensorType((1, 3, 4))),))
        yield Sample(
            cls((1, 12)),
            (Arg(TensorType((1, 2, 2, 3), "int8", Quant.per_tensor(0.5, 1))),),
            label="s8",
        )

    @edgetpu_rule(
        fix="keep the tensor as it is on the Edge TPU and reshape it on the CPU, "
        "or use a smaller image"
    )
    def _reshape_size(self, op: Op) -> str | None:
        """RESHAPE: at most 110000 elements (408000 where [h, w, a*b] becomes [h*w, a,
        b]); refused from 230400 on.
        """
        x = op.inputs[0].type
        before, after = ([d for d in shape if d > 1] for shape in (x.shape, self.shape))
        head = len(before) == len(after) == 3 and after[0] == before[0] * before[1]
        if before == after:
            return None
        seen = f"{list(x.shape)} to {list(self.shape)} moves {x.size} elements"
        return within(x.size, *(_RESHAPE_HEAD if head else _RESHAPE), seen)


def _onnx_shape(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output shape of the ONNX ops that reshape."""
    if node.op_type in ("Identity", "Dropout"):
        return shape
    if node.op_type == "Flatten":
        # may be the rank: everything is then one row for each element
        axis = node.attrs.get("axis", 1)
        axis = len(shape) if axis == len(shape) else axis_of(axis, len(shape))
        return (prod(shape[:axis]), prod(shape[axis:]))
    if node.op_type == "Reshape":
        return _resolve(node, shape)
    axes = node.attrs.get("axes") if node.opset < 13 else ints(node.const(1))
    if node.op_type == "Squeeze":
        if axes is not None:
            drop = {axis_of(a, len(shape)) for a in axes}
        else:
            drop = {i for i, d in enumerate(shape) if d == 1}
        return tuple(d for i, d in enumerate(shape) if i not in drop)
    rank = len(shape) + len(axes or [])
    inserted = {axis_of(a, rank) for a in axes or []}
    dims = iter(shape)
    return tuple(1 if i in inserted else next(dims) for i in range(rank))


def _check_inference(node: OnnxNode) -> None:
    """Raise ValueError for a Dropout in training mode (an input since opset 12), which
    drops elements at random.
    """
    node.attrs.ignore("ratio", "seed")
    training, ratio = (
        (node.const(2), node.const(1)) if node.optional(2) is not None else (None, None)
    )
    if training is not None and training.any() and (ratio is None or ratio.any()):
        raise ValueError("training_mode; export the model for inference")


def _resolve(node: OnnxNode, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The target of an ONNX Reshape: 0 keeps the dimension (unless allowzero), -1 is
    computed.
    """
    target = node.const(1) if node.opset >= 5 else np.array(node.attrs["shape"])
    assert target is not None
    dims = [int(d) for d in target.reshape(-1)]
    if not node.attrs.get("allowzero", 0):
        dims = [shape[i] if d == 0 else d for i, d in enumerate(dims)]
    return _computed(dims, prod(shape))


def _computed(dims: Sequence[int], size: int) -> tuple[int, ...]:
    """The dimensions with -1 replaced by what is left of the elements."""
    known = prod(d for d in dims if d != -1)
    return tuple((size // known if known else 0) if d == -1 else d for d in dims)


@dataclass(frozen=True)
class Transpose(OpDef):
    """out.shape[i] = in.shape[perm[i]], as numpy.transpose."""

    perm: tuple[int, ...]

    kind = "transpose"
    onnx = ("Transpose",)
    tflite = ("TRANSPOSE",)
    edgetpu_versions = {"TRANSPOSE": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The dimensions in the order of `perm`."""
        if sorted(self.perm) != list(range(x[0].rank)):
            raise ValueError(f"perm {self.perm} does not fit {x[0]}")
        strides = element_strides(x[0].shape)
        merge_dims([x[0].shape[p] for p in self.perm], [strides[p] for p in self.perm])
        quant = x[0].quant and x[0].quant.permuted(self.perm)
        return (TensorType(tuple(x[0].shape[p] for p in self.perm), x[0].dtype, quant),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.transpose."""
        return [np.ascontiguousarray(x[0].transpose(self.perm))]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Without `perm` the dimensions are reversed."""
        x = node.input(0)
        perm = node.attrs.get("perm") or range(x.type.rank)[::-1]
        return node.build.add(cls(tuple(int(p) for p in perm)), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """TRANSPOSE with a constant permutation."""
        op.build.write(
            cls(tuple(int(p) for p in op.const(1))), [op.input(0)], op.outputs
        )

    def to_tflite(self, op: Op) -> TfliteCode:
        """TRANSPOSE; version 2 is int8."""
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        return TfliteCode(
            "TRANSPOSE",
            ("TransposeOptions", {}),
            version,
            (op.inputs[0], np.array(self.perm, np.int32)),
        )

    def c(self, op: Op) -> KernelCall:
        """A strided gather."""
        x = op.inputs[0].type
        strides = element_strides(x.shape)
        return gather(
            op, [x.shape[p] for p in self.perm], [strides[p] for p in self.perm]
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Image layouts and a swap."""
        yield Sample(cls((0, 3, 1, 2)), (Arg(TensorType((1, 4, 5, 3))),))
        yield Sample(
            cls((0, 2, 3, 1)),
            (Arg(TensorType((1, 4, 5, 3), "int8", Quant.per_tensor(0.5, 1))),),
            label="s8",
        )
        yield Sample(
            cls((1, 0)),
            (Arg(TensorType((4, 5), "int8", Quant.per_tensor(0.5, 1))),),
            label="s8_2d",
        )
        yield Sample(
            cls((0, 1, 4, 2, 3)),
            (Arg(TensorType((1, 2, 3, 4, 5), "int32")),),
            label="s32_5d",
        )
        for dtype, quant in (("float32", None), ("int8", Quant.per_tensor(0.5, 1))):
            yield Sample(
                cls((0, 3, 1, 2)),
                (Arg(TensorType((2, 15, 21, 70), dtype, quant)),),
                label=f"{dtype}_tiles",
            )

    @edgetpu_rule(
        fix="keep the tensor as it is on the Edge TPU and transpose it on the CPU, "
        "or use a smaller image"
    )
    def _transpose_size(self, op: Op) -> str | None:
        """TRANSPOSE: at most 82944 elements; refused from 102400 on."""
        x = op.inputs[0].type
        return within(
            x.size, *_TRANSPOSE, f"input {list(x.shape)} has {x.size} elements"
        )


def element_strides(shape: Sequence[int]) -> list[int]:
    """Elements between neighbours along each dimension of a dense tensor."""
    return [prod(shape[i + 1 :]) for i in range(len(shape))]


def merge_dims(
    dims: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The same walk through memory in six dimensions: 1s dropped, neighbours that lie
    behind each other joined.

    Raises ValueError when more than six remain.
    """
    walk: list[tuple[int, int]] = []
    for d, s in zip(dims, strides, strict=True):
        if d == 1:
            continue
        if walk and walk[-1][1] == d * s:
            walk[-1] = (walk[-1][0] * d, s)
        else:
            walk.append((d, s))
    if len(walk) > 6:
        raise ValueError(
            f"{len(walk)} dimensions move independently; edgec compiles up to 6"
        )
    walk = [(1, 0)] * (6 - len(walk)) + walk
    return [d for d, _ in walk], [s for _, s in walk]


def gather(
    op: Op, dims: Sequence[int], strides: Sequence[int], offset: int = 0
) -> KernelCall:
    """The call that writes the output densely from input elements `offset` + the sum of
    stride * index.
    """
    x = op.inputs[0]
    dim, stride = merge_dims(dims, strides)
    spec = Struct("ek_gather_t", dim=dim, stride=stride)
    return KernelCall.of(
        f"ek_gather_{suffix(x.type)}", Pointer(x, offset), op.output, spec
    )


def reshape_to(b: Builder, x: Value, out: Value) -> None:
    """Write `x` into a value of the file that may have another shape."""
    b.write(Reshape(out.type.shape), [x], [out])


def transpose(b: Builder, x: Value, perm: tuple[int, ...]) -> Value:
    """`x` transposed; a constant at once."""
    if x.const is not None:
        quant = x.type.quant and x.type.quant.permuted(perm)
        return b.const(np.ascontiguousarray(x.const.transpose(perm)), x.name, quant)
    return b.add(Transpose(perm), [x], x.name)


def to_nhwc(b: Builder, x: Value) -> Value:
    """An NCHW image as NHWC."""
    return transpose(b, x, (0, 2, 3, 1))


def from_nhwc(b: Builder, x: Value) -> Value:
    """An NHWC image as NCHW."""
    return transpose(b, x, (0, 3, 1, 2))
