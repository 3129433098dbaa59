"""Joining tensors along an axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
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
from edgec.ops.common import axis_of
from edgec.ops.fixed_point import round_half_away
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, within
from edgec.ops.shape import Reshape


@dataclass(frozen=True)
class Concat(OpDef):
    """The inputs one after the other along `axis`.

    The quantizer gives all of them one scale. Models that came as uint8 may join unlike
    scales: then each element is brought to the output's scale in float32, as TFLite's
    uint8 kernel does (its int8 kernel refuses).
    """

    axis: int

    kind = "concat"
    onnx = ("Concat",)
    tflite = ("CONCATENATION", "PACK")
    edgetpu_versions = {"CONCATENATION": Versions(2), "PACK": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The sum of the sizes along the axis; the others must agree."""
        if not 0 <= self.axis < x[0].rank:
            raise ValueError(f"axis {self.axis} of {x[0]}")
        rests = {(t.rank, *t.shape[: self.axis], *t.shape[self.axis + 1 :]) for t in x}
        if len(rests) > 1 or len({t.dtype for t in x}) > 1:
            raise ValueError(
                f"{', '.join(map(str, x))} do not join along axis {self.axis}"
            )
        shape = list(x[0].shape)
        shape[self.axis] = sum(t.shape[self.axis] for t in x)
        return (x[0].with_shape(tuple(shape)),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.concatenate of what was brought to one scale."""
        parts = [
            _rescale(a, t, yt[0]) if unlike(t, yt[0]) else a
            for a, t in zip(x, xt, strict=True)
        ]
        return [np.concatenate(parts, self.axis)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """The same join at the axis' new place."""
        return Concat(perm.index(self.axis))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Axis 1 unless given (before opset 4)."""
        inputs = [node.input(i) for i in range(len(node.inputs))]
        return node.build.add(
            cls(axis_of(node.attrs.get("axis", 1), inputs[0].type.rank)),
            inputs,
            node.name,
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """CONCATENATION; PACK joins along a new axis."""
        inputs = op.present()
        out = op.outputs[0]
        axis = axis_of(op.options.axis, out.type.rank)
        if op.name == "PACK":
            op.ignore("valuesCount")
            part = Reshape((*out.type.shape[:axis], 1, *out.type.shape[axis + 1 :]))
            inputs = [op.build.add(part, [v], f"{v.name}_part") for v in inputs]
        elif op.options.fusedActivationFunction:
            raise ValueError("a fused activation")
        op.build.write(cls(axis), inputs, op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """CONCATENATION; version 2 is int8."""
        options = (
            "ConcatenationOptions",
            {"axis": self.axis, "fusedActivationFunction": 0},
        )
        return TfliteCode(
            "CONCATENATION", options, 2 if op.output.type.dtype == "int8" else 1
        )

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Only the uint8 kernel joins unlike scales."""
        return any(unlike(v.type, op.output.type) for v in op.inputs)

    def calls(self, op: Op) -> tuple[KernelCall, ...]:
        """Each input is a block of rows with the output's row as its pitch."""
        y = op.output.type
        outer = prod(y.shape[: self.axis])
        inner = prod(y.shape[self.axis + 1 :])
        pitch = y.shape[self.axis] * inner
        at = 0
        calls = list[KernelCall]()
        for v in op.inputs:
            row = v.type.shape[self.axis] * inner
            place = Pointer(op.output, at)
            if unlike(v.type, y):
                scale, bias = _affine(v.type, y)
                q = Struct(
                    "ek_concat_t", scale=scale, bias=bias, zero=y.zero_point + 128
                )
                calls.append(
                    KernelCall.of("ek_concat_rescale", v, place, outer, row, pitch, q)
                )
            elif row:
                size = y.np_dtype.itemsize
                calls.append(
                    KernelCall.of(
                        "ek_concat", v, place, outer, row * size, pitch * size
                    )
                )
            at += row
        return tuple(calls)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every axis, two and three inputs, equal and unlike scales, integers."""
        q = Quant.per_tensor(0.1, 3)
        for axis, sizes in ((3, (3, 5, 2)), (1, (2, 1)), (2, (1, 4))):
            for dtype in ("float32", "int8"):
                shapes = [
                    (*(1, 2, 4, 3)[:axis], n, *(1, 2, 4, 3)[axis + 1 :]) for n in sizes
                ]
                args = tuple(
                    Arg(TensorType(s, dtype, q if dtype == "int8" else None))
                    for s in shapes
                )
                yield Sample(cls(axis), args, label=f"axis{axis}_{dtype}")
        scales = ((0.1, 3), (0.07, -5), (0.1, 4), (0.23, 3))
        args = tuple(
            Arg(TensorType((1, 16, 16), "int8", Quant.per_tensor(*s))) for s in scales
        )
        yield Sample(cls(2), args, q, "unlike")
        yield Sample(
            cls(0),
            (Arg(TensorType((2,), "int64")), Arg(TensorType((3,), "int64"))),
            label="s64",
        )

    @edgetpu_rule(
        fix="join two tensors, or pad with zeros instead of joining a constant"
    )
    def _constant_part(self, op: Op) -> str | None:
        """CONCATENATION with a constant: two inputs, and the constant all zero."""
        for v in op.inputs:
            zero = v.type.zero_point if v.type.is_quantized else 0
            if v.const is not None and (len(op.inputs) != 2 or (v.const != zero).any()):
                return f"{v.name} is constant, of {len(op.inputs)} inputs"
        return None

    @edgetpu_rule(
        fix="join before the heads are flattened, or end the Edge TPU part at the "
        "separate heads"
    )
    def _concat_length(self, op: Op) -> str | None:
        """CONCATENATION: at most 185094 elements of one row, as [1, n, m]; refused from
        262395 on. Images: any size.
        """
        y = op.output.type
        seen = f"output {list(y.shape)} has {y.size} elements"
        if one_row(y):
            return within(y.size, ONE_ROW_MAPPED, _ONE_ROW_REFUSED, seen)
        return None


_ONE_ROW_REFUSED = 262_395
"""Real logs refuse the joined heads of detectors: [1,3087,85], [1,144,8400],
[1,25200,85].
"""


def unlike(x: TensorType, y: TensorType) -> bool:
    """Whether elements of the two types stand for different reals."""
    return x.is_quantized and (x.scale, x.zero_point) != (y.scale, y.zero_point)


def _affine(x: TensorType, y: TensorType) -> tuple[np.float32, np.float32]:
    """Scale and bias (both float32) from an input, as uint8, to steps of the output."""
    scale = np.float32(x.scale) * (np.float32(1) / np.float32(y.scale))
    return scale, np.float32(-(x.zero_point + 128)) * scale


def _rescale(a: Array, x: TensorType, y: TensorType) -> Array:
    """ConcatenationWithScaling of tensorflow/lite/kernels/internal/reference: float32,
    on the uint8 integers.
    """
    scale, bias = _affine(x, y)
    real = ((a.astype(np.int32) + 128).astype(np.float32) * scale + bias).astype(
        np.float32
    )
    q = round_half_away(real).astype(np.int64) + y.zero_point + 128
    return (np.clip(q, 0, 255) - 128).astype(np.int8)
