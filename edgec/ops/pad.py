"""Borders around a tensor: constant, mirrored, repeated or wrapped around."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
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
from edgec.ops.fixed_point import round_half_away
from edgec.ops.shape import element_strides
from edgec.ops.slice import slice_axes

MODES = ("constant", "reflect", "symmetric", "edge", "wrap")
"""As numpy.pad calls them: reflect does not repeat the edge element, symmetric does."""

_TFLITE_MAX_RANK = 5
_MAX_RANK = 6


@dataclass(frozen=True)
class Pad(OpDef):
    """`pads` (before, after) elements on each axis; `value` is the real that a constant
    border holds.
    """

    pads: tuple[tuple[int, int], ...]
    mode: str = "constant"
    value: float = 0.0

    kind = "pad"
    onnx = ("Pad",)
    tflite = ("PAD", "PADV2", "MIRROR_PAD")
    edgetpu_versions = {"PAD": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Every dimension with its borders."""
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode} is none of {', '.join(MODES)}")
        if (
            len(self.pads) != x[0].rank
            or x[0].rank > _MAX_RANK
            or any(p < 0 for pair in self.pads for p in pair)
        ):
            raise ValueError(
                f"pads {self.pads} do not fit {x[0]} (of up to {_MAX_RANK} dimensions)"
            )
        if math.isinf(self.value) and x[0].dtype != "float32" and not x[0].is_quantized:
            raise ValueError(f"{x[0]} has no infinity")
        if self.mode != "constant" and x[0].size == 0:
            raise ValueError(f"{x[0]} has no element to repeat")
        return (
            x[0].with_shape(
                tuple(
                    b + d + a for d, (b, a) in zip(x[0].shape, self.pads, strict=True)
                )
            ),
        )

    def element(self, t: TensorType) -> float | int:
        """`value` as an element of the tensor; infinities saturate in integers."""
        if t.dtype == "float32":
            return self.value
        info = np.iinfo(t.np_dtype) if t.dtype != "bool" else np.iinfo(np.uint8)
        if math.isinf(self.value):
            return int(info.max if self.value > 0 else info.min)
        real = self.value / t.scale if t.is_quantized else self.value
        zero = t.zero_point if t.is_quantized else 0
        return int(
            np.clip(int(round_half_away(np.array(real))) + zero, info.min, info.max)
        )

    def moves(self) -> bool:
        """Where the border holds no other value."""
        return self.mode != "constant" or self.value == 0 or math.isinf(self.value)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy.pad; int8 borders hold the zero point for 0."""
        if self.mode == "constant":
            return [np.pad(x[0], self.pads, constant_values=self.element(yt[0]))]
        return [np.pad(x[0], self.pads, mode=self.mode)]  # type: ignore[call-overload]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """The same borders on permuted axes."""
        return Pad(tuple(self.pads[p] for p in perm), self.mode, self.value)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Attributes before opset 11, inputs from there on, `axes` from 18 on.

        Negative pads cut off.
        """
        x = node.input(0)
        given = node.attrs.get("pads") if node.opset < 11 else ints(node.const(1))
        if given is None:
            raise ValueError("pads are missing")
        constant = node.attrs.get("value", 0.0) if node.opset < 11 else node.const(2)
        value = 0.0 if constant is None else float(np.asarray(constant).reshape(()))
        if x.type.is_quantized:  # it is one of the file's integers
            value = (value - 128 * (x in node.uint8) - x.type.zero_point) * x.type.scale
        axes = ints(node.const(3)) if node.opset >= 18 else None
        n = len(given) // 2
        pairs = dict.fromkeys(range(x.type.rank), (0, 0))
        for i, axis in enumerate(range(n) if axes is None else axes):
            pairs[axis_of(axis, x.type.rank)] = (given[i], given[i + n])
        if any(min(p) < 0 for p in pairs.values()):
            kept = {
                i: (max(0, -b), x.type.shape[i] - max(0, -b) - max(0, -a), 1)
                for i, (b, a) in pairs.items()
            }
            x = node.build.add(slice_axes(x.type, kept), [x], node.name)
        pads = tuple((max(0, b), max(0, a)) for b, a in pairs.values())
        return node.build.add(
            cls(pads, node.attrs.get("mode", "constant"), value), [x], node.name
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """PAD (zeros), PADV2 (any constant), MIRROR_PAD."""
        x = op.input(0)
        pads = tuple((int(b), int(a)) for b, a in op.const(1).reshape(-1, 2))
        mode = "constant"
        value = 0.0
        if op.name == "MIRROR_PAD":
            mode = ("reflect", "symmetric")[op.options.mode]
        elif op.name == "PADV2":
            element = float(op.const(2).reshape(()))
            if x.type.is_quantized:
                value = (element - x.type.zero_point) * x.type.scale
            else:
                value = element
        op.build.write(cls(pads, mode, value), [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """PAD, PADV2 or MIRROR_PAD, up to rank 5; version 2 is int8.

        TFLite has no edge and wrap.
        """
        x = op.inputs[0]
        pads = np.array(self.pads, np.int32)
        version = 2 if x.type.dtype == "int8" else 1
        if self.mode in ("edge", "wrap") or x.type.rank > _TFLITE_MAX_RANK:
            return None
        if self.mode != "constant":
            options = (
                "MirrorPadOptions",
                {"mode": ("reflect", "symmetric").index(self.mode)},
            )
            return TfliteCode("MIRROR_PAD", options, version, (x, pads))
        if self.value == 0:
            return TfliteCode("PAD", ("PadOptions", {}), version, (x, pads))
        element = np.array(self.element(x.type), x.type.np_dtype)
        border = Value(
            f"{op.output.name}/border",
            TensorType((), x.type.dtype, x.type.quant),
            element,
        )
        return TfliteCode("PADV2", ("PadV2Options", {}), version, (x, pads, border))

    def c(self, op: Op) -> KernelCall:
        """Filled, then the inside copied row by row; every other border is a gather
        with folded indices.
        """
        x = op.inputs[0].type
        y = op.output.type
        lead = _MAX_RANK - x.rank
        before = [0] * lead + [b for b, _ in self.pads]
        args = (op.inputs[0], op.output)
        if self.mode != "constant":
            dims = {
                "in": [1] * lead + list(x.shape),
                "out": [1] * lead + list(y.shape),
                "before": before,
            }
            mode = f"EK_PAD_{self.mode.upper()}"
            return KernelCall.of(
                f"ek_pad_fold_{suffix(x)}",
                *args,
                Struct("ek_pad_fold_t", **dims, mode=mode),
            )
        strides = [0] * lead + element_strides(y.shape)
        spec = Struct(
            "ek_pad_t",
            value=self.element(y),
            size=y.size,
            dim=[1] * lead + list(x.shape),
            stride=strides,
            offset=sum(b * s for b, s in zip(before, strides, strict=True)),
        )
        return KernelCall.of(f"ek_pad_{suffix(x)}", *args, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Images and channels; every mode; float, int8 and integers."""
        s8 = TensorType((1, 3, 4, 5), "int8", Quant.per_tensor(0.1, 3))
        image = ((0, 0), (1, 2), (0, 3), (0, 0))
        channels = ((0, 0), (0, 0), (0, 0), (2, 4))
        for label, spec in (
            ("image", cls(image)),
            ("channels", cls(channels)),
            ("value", cls(image, "constant", -1.7)),
            ("reflect", cls(image, "reflect")),
            ("symmetric", cls(image, "symmetric")),
            ("edge", cls(image, "edge")),
            ("wrap", cls(image, "wrap")),
            ("infinity", cls(image, "constant", -math.inf)),
        ):
            yield Sample(spec, (Arg(TensorType(s8.shape)),), label=label)
            yield Sample(spec, (Arg(s8),), label=f"{label}_s8")
        yield Sample(
            cls(((1, 2),), value=7.0), (Arg(TensorType((3,), "int64")),), label="s64"
        )

    @edgetpu_rule(fix=None)
    def _zero_border(self, op: Op) -> str | None:
        """PAD: the border must be constant zero."""
        if self.mode == "constant" and self.value == 0:
            return None
        if self.mode != "constant":
            return f"mode {self.mode}"
        return f"value {self.value:g}"

    @edgetpu_rule(fix="run one image per inference")
    def _no_batch_border(self, op: Op) -> str | None:
        """PAD: not over the batch dimension."""
        ahead = self.pads[:-3]
        if any(any(p) for p in ahead):
            return f"pads {[list(p) for p in self.pads]}"
        return None
