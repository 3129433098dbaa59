"""Borders around a tensor: constant, mirrored, repeated or wrapped around.

Semantics: numpy.pad; ONNX Pad; TFLite PAD, PADV2 and MIRROR_PAD.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from edgec.ir.c_structs import PadFoldParams, PadParams
from edgec.ir.opdef import Arg
from edgec.ops.common import (
    ARITHMETIC_KERNELS,
    INTEGERS,
    axis_of,
    ints,
    plain_suffix,
)
from edgec.ops.fixed_point import round_half_away
from edgec.ops.shape import element_strides
from edgec.ops.slice import Range, slice_axes

_PAD = KernelFamily(Kernel("pad", "ek_pad.h"), (*ARITHMETIC_KERNELS, "s8"))

_PAD_FOLD = KernelFamily(Kernel("pad_fold", "ek_pad.h"), (*ARITHMETIC_KERNELS, "s8"))

MODES = ("constant", "reflect", "symmetric", "edge", "wrap")
"""Names of the borders as numpy.pad has them: reflect does not repeat the edge element,
symmetric does.
"""

TFLITE_MAX_RANK = 5
"""Dimensions of TFLite's PAD kernels."""

MIRROR_MODES = ("reflect", "symmetric")
"""In the order of TFLite's MirrorPadMode."""
MAX_RANK = 6
"""Dimensions of the structs ek_pad_t and ek_pad_fold_t."""


@dataclass(frozen=True)
class Pad(OpDef):
    """A tensor with a border.

    Attributes:
        pads: (before, after) elements on each axis
        mode: one of `MODES`
        value: the real that a constant border holds
    """

    pads: tuple[tuple[int, int], ...]
    mode: str = "constant"
    value: float = 0.0

    kind = "pad"
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.KEEPS
    onnx = ("Pad",)
    tflite = ("PAD", "PADV2", "MIRROR_PAD")
    edgetpu_versions = {"PAD": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def keeps_channels(self, op: Op) -> bool:
        """Return whether no channels are added."""
        return self.pads[-1] == (0, 0) and super().keeps_channels(op)

    def keeps_factor(self) -> bool:
        """Return whether the border has the factor of the image."""
        return self.mode != "constant" or self.value == 0

    def border(self) -> float | None:
        """Return the number of a constant border; None for one of the image's own."""
        is_constant = self.mode == "constant" and any(map(any, self.pads))
        return self.value if is_constant else None

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x with its borders.

        Raises ValueError for an unknown mode, pads that do not fit, and a border that
        the elements cannot hold.
        """
        data = x[0]
        self._check(data)

        shape: list[int] = []
        for size, (before, after) in zip(data.shape, self.pads, strict=True):
            shape.append(before + size + after)
        return (data.with_shape(tuple(shape)),)

    def _check(self, data: TensorType) -> None:
        """Raise ValueError unless the border fits the tensor."""
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode} is not one of {', '.join(MODES)}")

        is_rank_fitting = len(self.pads) == data.rank <= MAX_RANK
        if not is_rank_fitting or any(min(pair) < 0 for pair in self.pads):
            raise ValueError(
                f"pads {self.pads} do not fit {data} (of up to {MAX_RANK} dimensions)"
            )

        # Only floats and quantized integers, which saturate, stand for infinity.
        is_real = data.dtype == "float32" or data.is_quantized
        if math.isinf(self.value) and not is_real:
            raise ValueError(f"{data} has no infinity")

        if self.mode != "constant" and data.size == 0:
            raise ValueError(f"{data} has no element to repeat")

    def element(self, t: TensorType) -> float | int:
        """Return `value` as an element of the tensor; infinities saturate in integers.

        Of a quantized tensor it is the nearest integer at its scale, saturated.
        """
        if t.dtype == "float32":
            return self.value

        info = np.iinfo(np.uint8 if t.dtype == "bool" else t.np_dtype)
        if math.isinf(self.value):
            return int(info.max if self.value > 0 else info.min)

        # A real becomes the nearest integer at the tensor's scale.
        steps = self.value
        zero_point = 0
        if t.is_quantized:
            steps = self.value / t.scale
            zero_point = t.zero_point

        element = int(round_half_away(np.array(steps))) + zero_point

        return int(np.clip(element, info.min, info.max))

    def moves(self) -> bool:
        """Return whether the border has only reals of the tensor, zero or infinity."""
        return self.mode != "constant" or self.value == 0 or math.isinf(self.value)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy.pad; a border of 0 holds the zero point in int8."""
        if self.mode == "constant":
            element = self.element(yt[0])
            return [np.pad(x[0], self.pads, constant_values=element)]

        return [np.pad(x[0], self.pads, mode=self.mode)]  # type: ignore[call-overload]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """Return the same borders on the permuted axes."""
        pads = tuple(self.pads[axis] for axis in perm)
        return Pad(pads, self.mode, self.value)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Pad; negative pads crop.

        Pads and value are attributes before opset 11, inputs from there on; opset 18
        added the axes.
        """
        x = node.input(0)
        rank = x.type.rank
        if node.opset < 11:
            flat_pads = node.attrs.get("pads")
            constant = node.attrs.get("value", 0.0)
        else:
            flat_pads = ints(node.const(1))
            constant = node.const(2)

        if flat_pads is None:
            raise ValueError("pads are missing")

        # All starts stand before all ends.
        axes = ints(node.const(3)) if node.opset >= 18 else None
        count = len(flat_pads) // 2
        pairs = dict.fromkeys(range(rank), (0, 0))
        for i, axis in enumerate(range(count) if axes is None else axes):
            pairs[axis_of(axis, rank)] = (flat_pads[i], flat_pads[i + count])

        # Constants of quantized tensors are integers of the file.
        value = _real_value(node, x, constant)
        x = _cropped(node, x, pairs)
        pads = tuple((max(0, lo), max(0, hi)) for lo, hi in pairs.values())

        # Only the borders that are left after cropping.
        spec = cls(pads, node.attrs.get("mode", "constant"), value)

        return node.build.add(spec, [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read PAD (zeros), PADV2 (a constant) and MIRROR_PAD."""
        x = op.input(0)
        pads = tuple((int(lo), int(hi)) for lo, hi in op.const(1).reshape(-1, 2))

        # Only MIRROR_PAD has another mode.
        mode = "constant"
        value = 0.0
        if op.name == "MIRROR_PAD":
            mode = MIRROR_MODES[op.options.mode]
        elif op.name == "PADV2":
            value = float(op.const(2).reshape(()))
            if x.type.is_quantized:
                value = (value - x.type.zero_point) * x.type.scale

        op.build.write(cls(pads, mode, value), [x], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return PAD, PADV2 or MIRROR_PAD; version 2 introduced int8.

        None for the modes edge and wrap, for ranks above 5 and for unsigned integers of
        more than 8 bits, which TFLite lacks.
        """
        x = op.inputs[0]
        pads = np.array(self.pads, np.int32)
        version = 2 if x.type.dtype == "int8" else 1
        if self.mode in ("edge", "wrap") or x.type.rank > TFLITE_MAX_RANK:
            return None
        if x.type.dtype in ("uint16", "uint32", "uint64"):
            return None

        if self.mode != "constant":
            fields = {"mode": MIRROR_MODES.index(self.mode)}
            options = ("MirrorPadOptions", fields)
            return TfliteCode("MIRROR_PAD", options, version, (x, pads))

        if self.value == 0:
            return TfliteCode("PAD", ("PadOptions", {}), version, (x, pads))

        # PADV2 takes the border as a scalar tensor of the input's type.
        element = np.array(self.element(x.type), x.type.np_dtype)
        border_type = TensorType((), x.type.dtype, x.type.quant)
        border = Value(f"{op.output.name}/border", border_type, element)

        return TfliteCode("PADV2", ("PadV2Options", {}), version, (x, pads, border))

    def c(self, op: Op) -> KernelCall:
        """Return ek_pad_<type>, which fills and copies, or ek_pad_fold_<type>.

        A border that is not constant is a gather with folded indices.
        """
        x = op.inputs[0].type
        y = op.output.type
        missing = MAX_RANK - x.rank

        # Axes that the tensor lacks have a size of 1 and no border.
        before = [0] * missing + [lo for lo, _ in self.pads]
        in_dims = [1] * missing + list(x.shape)
        if self.mode != "constant":
            fold = PadFoldParams(
                x_dim=in_dims,
                dim=[1] * missing + list(y.shape),
                before=before,
                mode=f"EK_PAD_{self.mode.upper()}",
            )
            kernel = _PAD_FOLD.of(plain_suffix(x))
            return KernelCall.of(kernel, op.inputs[0], op.output, fold)

        strides = [0] * missing + element_strides(y.shape)
        starts = [lo * stride for lo, stride in zip(before, strides, strict=True)]
        element = self.element(y)
        # C has no literal of the least int64.
        if element == np.iinfo(np.int64).min:
            element = float(element)
        spec = PadParams(
            value=element,
            size=y.size,
            dim=in_dims,
            stride=strides,
            offset=sum(starts),
        )

        return KernelCall.of(_PAD.of(plain_suffix(x)), op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield images and channels, and every mode.

        Each in float and int8, and one of integers.
        """
        s8 = TensorType((1, 3, 4, 5), "int8", Quant.per_tensor(0.1, 3))
        image = ((0, 0), (1, 2), (0, 3), (0, 0))
        channels = ((0, 0), (0, 0), (0, 0), (2, 4))
        cases = {
            "image": cls(image),
            "channels": cls(channels),
            "value": cls(image, "constant", -1.7),
            "reflect": cls(image, "reflect"),
            "symmetric": cls(image, "symmetric"),
            "edge": cls(image, "edge"),
            "wrap": cls(image, "wrap"),
            "infinity": cls(image, "constant", -math.inf),
        }
        for label, spec in cases.items():
            yield Sample(spec, (Arg(TensorType(s8.shape)),), label=label)
            yield Sample(spec, (Arg(s8),), label=f"{label}_s8")

        for dtype in INTEGERS:
            line = Arg(TensorType((3,), dtype))
            for mode in ("constant", "reflect"):
                spec = cls(((1, 2),), mode, 7.0 if mode == "constant" else 0.0)
                yield Sample(spec, (line,), label=f"{dtype}_{mode}")

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
        outer_pads = self.pads[:-3]
        if any(any(pair) for pair in outer_pads):
            return f"pads {[list(pair) for pair in self.pads]}"
        return None


def _real_value(node: OnnxNode, x: Value, constant: Array | float | None) -> float:
    """Return the real of a Pad's constant, 0 when it is absent.

    Beside a quantized tensor the constant is one of the file's integers, which are
    greater by 128 where the file has uint8.
    """
    if constant is None:
        value = 0.0
    else:
        value = float(np.asarray(constant).reshape(()))

    if not x.type.is_quantized:
        return value

    shift = 128 if x in node.uint8 else 0

    return (value - shift - x.type.zero_point) * x.type.scale


def _cropped(node: OnnxNode, x: Value, pairs: Mapping[int, tuple[int, int]]) -> Value:
    """Return `x` without the elements that negative pads cut off."""
    if all(min(pair) >= 0 for pair in pairs.values()):
        return x

    # A negative pad is a slice.
    ranges: dict[int, Range] = {}
    for axis, (before, after) in pairs.items():
        size = x.type.shape[axis]
        first = max(0, -before)
        last = size - max(0, -after)
        ranges[axis] = (first, last - first, 1)

    spec = slice_axes(x.type, ranges)
    return node.build.add(spec, [x], node.name)
