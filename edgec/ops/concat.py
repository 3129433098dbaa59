"""Tensors joined along an axis.

Semantics: ONNX Concat, TFLite CONCATENATION and PACK (reference/concatenation.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    ChannelFlow,
    Kernel,
    KernelCall,
    KernelFamily,
    OnnxNode,
    Op,
    OpDef,
    Pointer,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import ConcatRescaleParams
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of
from edgec.ops.fixed_point import round_half_away
from edgec.ops.fused_activation import write_activated
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, size_evidence
from edgec.ops.shape import Reshape

# Bytes are copied whatever their type, so that the kernels have no types.
CONCAT = KernelFamily(Kernel("concat", "ek_concat.h"), ("",)).of()
"""Copies rows of bytes to a part of the rows of the result."""

_CONCAT_RESCALE = KernelFamily(Kernel("concat_rescale", "ek_concat.h"), ("",)).of()


@dataclass(frozen=True)
class Concat(OpDef):
    """The inputs one after the other along an axis, as numpy.concatenate.

    The quantizer gives all of them one scale. Models that came as uint8 may join unlike
    scales: then each element is brought to the output's scale in float32, as TFLite's
    uint8 kernel does (its int8 kernel refuses).

    Attributes:
        axis: of the output, counted from the front
    """

    axis: int

    kind = "concat"
    any_elements: ClassVar[bool] = True
    onnx = ("Concat",)
    tflite = ("CONCATENATION", "PACK")
    edgetpu_versions = {"CONCATENATION": Versions(2), "PACK": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES

    def move_channels(self, op: Op, channels: Sequence[Array | None]) -> Array | None:
        """Return the channels of all inputs, which must be joined along their axis."""
        computed = [x for x in channels if x is not None]
        is_last = self.axis == op.output.type.rank - 1
        if not is_last or len(computed) < len(channels):
            return None

        return np.concatenate(computed)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type with the sizes along the axis added up.

        Raises ValueError when other dimensions or the element types differ.
        """
        first = x[0]
        if not 0 <= self.axis < first.rank:
            raise ValueError(f"axis {self.axis} of {first}")

        # All dimensions but the one along the axis.
        others = {(t.shape[: self.axis], t.shape[self.axis + 1 :]) for t in x}
        ranks = {t.rank for t in x}
        dtypes = {t.dtype for t in x}
        if max(len(others), len(ranks), len(dtypes)) > 1:
            raise ValueError(
                f"{', '.join(map(str, x))} do not join along axis {self.axis}"
            )

        shape = list(first.shape)
        shape[self.axis] = sum(t.shape[self.axis] for t in x)

        return (first.with_shape(tuple(shape)),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.concatenate of the inputs at the output's scale."""
        parts: list[Array] = []
        for array, t in zip(x, xt, strict=True):
            if unlike(t, yt[0]):
                parts.append(_rescale(array, t, yt[0]))
            else:
                parts.append(array)

        return [np.concatenate(parts, self.axis)]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """Return the join along the permuted axis."""
        return Concat(perm.index(self.axis))

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Concat, along axis 1 unless it is given (before opset 4).

        It has any number of inputs.
        """
        count = len(node.inputs)
        inputs = [node.input(i) for i in range(count)]

        # All inputs have one rank.
        rank = inputs[0].type.rank
        axis = axis_of(node.attrs.get("axis", 1), rank)
        return node.build.add(cls(axis), inputs, node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read CONCATENATION, and PACK, which joins along a new axis.

        LiteRT refuses the fused activation that the schema has.
        """
        inputs = op.present()
        shape = op.outputs[0].type.shape
        axis = axis_of(op.options.axis, len(shape))

        # PACK has a new axis, along which each input has a size of 1.
        if op.name == "PACK":
            op.ignore("valuesCount")
            part = Reshape((*shape[:axis], 1, *shape[axis + 1 :]))
            inputs = [op.build.add(part, [v], f"{v.name}_part") for v in inputs]

        write_activated(op, cls(axis), inputs)

    def to_tflite(self, op: Op) -> TfliteCode:
        """Return CONCATENATION; version 2 introduced int8.

        PACK is written as a reshape of each input, and this.
        """
        fields = {"axis": self.axis, "fusedActivationFunction": 0}
        version = 2 if op.output.type.dtype == "int8" else 1
        return TfliteCode("CONCATENATION", ("ConcatenationOptions", fields), version)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether scales are unlike, which only TFLite's uint8 kernel joins."""
        return any(unlike(v.type, op.output.type) for v in op.inputs)

    def calls(self, op: Op) -> tuple[KernelCall, ...]:
        """Return a call for each input that copies its rows into the output's rows.

        Row and pitch are in bytes, or in elements when a call rescales.
        """
        y = op.output.type
        outer = prod(y.shape[: self.axis])
        inner = prod(y.shape[self.axis + 1 :])

        # A row of an input is a part of a row of the output.
        pitch = y.shape[self.axis] * inner
        itemsize = y.np_dtype.itemsize

        calls: list[KernelCall] = []
        offset = 0
        for value in op.inputs:
            row = value.type.shape[self.axis] * inner
            place = Pointer(op.output, offset)
            offset += row
            if unlike(value.type, y):
                scale, bias = _affine(value.type, y)
                zero = y.zero_point + 128
                spec = ConcatRescaleParams(
                    scale=float(scale), bias=float(bias), zero=zero
                )
                operands = (value, place, outer, row, pitch, spec)
                calls.append(KernelCall.of(_CONCAT_RESCALE, *operands))

            # An input without elements adds nothing.
            elif row:
                bytes_ = (row * itemsize, pitch * itemsize)
                calls.append(KernelCall.of(CONCAT, value, place, outer, *bytes_))

        return tuple(calls)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every axis, two and three inputs, equal and unlike scales, integers."""
        quant = Quant.per_tensor(0.1, 3)
        for axis, sizes in ((3, (3, 5, 2)), (1, (2, 1)), (2, (1, 4))):
            shapes: list[tuple[int, ...]] = []
            for size in sizes:
                shape = [1, 2, 4, 3]
                shape[axis] = size
                shapes.append(tuple(shape))
            reals = tuple(Arg(TensorType(shape)) for shape in shapes)
            yield Sample(cls(axis), reals, label=f"axis{axis}_float32")
            s8 = tuple(Arg(TensorType(shape, "int8", quant)) for shape in shapes)
            yield Sample(cls(axis), s8, label=f"axis{axis}_int8")

        # One input has the output's scale and is copied as it is.
        unlike_args: list[Arg] = []
        for scale, zero_point in ((0.1, 3), (0.07, -5), (0.1, 4), (0.23, 3)):
            unlike_quant = Quant.per_tensor(scale, zero_point)
            unlike_args.append(Arg(TensorType((1, 16, 16), "int8", unlike_quant)))

        yield Sample(cls(2), tuple(unlike_args), quant, "unlike")

        integers = (Arg(TensorType((2,), "int64")), Arg(TensorType((3,), "int64")))
        yield Sample(cls(0), integers, label="s64")

    @edgetpu_rule(
        fix="join two tensors, or pad with zeros instead of joining a constant"
    )
    def _constant_part(self, op: Op) -> str | None:
        """CONCATENATION with a constant: two inputs, and the constant all zero."""
        for value in op.inputs:
            if value.const is None:
                continue
            zero = value.type.zero_point if value.type.is_quantized else 0
            if len(op.inputs) != 2 or (value.const != zero).any():
                return f"{value.name} is constant, of {len(op.inputs)} inputs"

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
        if not one_row(y):
            return None

        evidence = f"output {list(y.shape)} has {y.size} elements"

        return size_evidence(y.size, ONE_ROW_MAPPED, _ONE_ROW_REFUSED, evidence)


_ONE_ROW_REFUSED = 262_395
"""Elements of the smallest output seen refused. Real logs refuse the joined heads of
detectors: [1,3087,85], [1,144,8400], [1,25200,85].
"""


def unlike(x: TensorType, y: TensorType) -> bool:
    """Return whether the elements of two types stand for different reals."""
    return x.is_quantized and (x.scale, x.zero_point) != (y.scale, y.zero_point)


def _affine(x: TensorType, y: TensorType) -> tuple[np.float32, np.float32]:
    """Return scale and bias, in float32, from a uint8 input to steps of the output.

    scale_x / scale_y by way of 1 / scale_y, and -zero_x * scale, as TFLite's
    ConcatenationWithScaling computes them.
    """
    inverse_output_scale = np.float32(1) / np.float32(y.scale)
    scale = np.float32(x.scale) * inverse_output_scale
    zero_point = np.float32(-(x.zero_point + 128))

    return scale, zero_point * scale


def _rescale(a: Array, x: TensorType, y: TensorType) -> Array:
    """Return the int8 elements of an input at the output's scale.

    Source: ConcatenationWithScaling of tensorflow/lite/kernels/internal/reference:
    float32, on the uint8 integers.
    """
    scale, bias = _affine(x, y)
    uint8 = (a.astype(np.int32) + 128).astype(np.float32)
    real = (uint8 * scale + bias).astype(np.float32)
    q = round_half_away(real).astype(np.int64) + y.zero_point + 128

    return (np.clip(q, 0, 255) - 128).astype(np.int8)
