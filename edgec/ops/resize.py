"""Resizing of NHWC images: nearest neighbour, bilinear, cubic.

All places and weights are computed at compile time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    Struct,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Uncertain,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.common import real_types, rounded_even, suffix
from edgec.ops.limits import within
from edgec.ops.resampling import (
    FIXED_ONE,
    MODES,
    ROUNDINGS,
    TFLITE_MODES,
    Axis,
    Neighbours,
    cubic,
    linear,
    linear_clipped,
    linear_cut,
    linear_fixed,
    nearest,
    overshoots,
)
from edgec.ops.window import Pair


@dataclass(frozen=True)
class Resize(OpDef):
    """Image [N,H,W,C] to [N,*size,C]; `mode` says where an output pixel lies in the
    input (see resampling).

    `scale` is what an ONNX model gives for height and width; (0, 0) is the ratio of
    sizes.
    """

    size: Pair
    mode: str = "half_pixel"
    scale: tuple[float, float] = (0.0, 0.0)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, *size, C]."""
        if x[0].rank != 4 or min(*self.size, *x[0].shape[1:3]) < 1:
            raise ValueError(
                f"{x[0]} to {self.size[0]}x{self.size[1]}; an image has rank 4"
            )
        if self.mode not in MODES:
            raise ValueError(
                f"coordinate mode {self.mode} is none of {', '.join(MODES)}"
            )
        return (replace(x[0], shape=(x[0].shape[0], *self.size, x[0].shape[3])),)

    def axes(self, x: TensorType) -> tuple[Axis, Axis]:
        """Vertical and horizontal."""
        vertical, horizontal = (
            Axis(x.shape[i + 1], self.size[i], self.mode, self.scale[i])
            for i in range(2)
        )
        return vertical, horizontal

    def dims(self, op: Op) -> dict[str, int]:
        """The sizes that every kernel takes."""
        n, ih, iw, ch = op.inputs[0].type.shape
        return {
            "n": n,
            "ih": ih,
            "iw": iw,
            "c": ch,
            "oh": self.size[0],
            "ow": self.size[1],
        }

    def tflite_options(self) -> dict[str, bool] | None:
        """The flags of TFLite's options; None for modes that it lacks."""
        if self.mode not in TFLITE_MODES:
            return None
        return {
            "alignCorners": self.mode == "align_corners",
            "halfPixelCenters": self.mode == "half_pixel",
        }


@dataclass(frozen=True)
class _TfliteResize(Resize):
    """The two that TFLite has too."""

    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    options: ClassVar[str]

    def moves(self) -> bool:
        """Copies of pixels."""
        return self.kind == "resize_nearest"

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The flags name the mode, the declared output has the size."""
        op.build.write(cls(*_tflite_size_mode(op)), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Version 2 is int8, 3 (bilinear) has half pixel centres; nearest has both
        flags from 3 on.
        """
        options = self.tflite_options()
        if options is None:
            return None
        flags = options["halfPixelCenters"] or (
            options["alignCorners"] and self.kind == "resize_nearest"
        )
        version = 3 if flags else 2 if op.inputs[0].type.dtype == "int8" else 1
        inputs = (op.inputs[0], np.array(self.size, np.int32))
        return TfliteCode(self.tflite[0], (self.options, options), version, inputs)


@dataclass(frozen=True)
class ResizeNearest(_TfliteResize):
    """The nearest pixel; `rounding` (ONNX's nearest_mode) is for the modes that only
    ONNX has.
    """

    rounding: str = "floor"

    kind = "resize_nearest"
    tflite = ("RESIZE_NEAREST_NEIGHBOR",)
    edgetpu_versions = {"RESIZE_NEAREST_NEIGHBOR": Versions(3)}
    options = "ResizeNearestNeighborOptions"

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, *size, C]."""
        if self.rounding not in ROUNDINGS:
            raise ValueError(
                f"nearest_mode {self.rounding} is none of {', '.join(ROUNDINGS)}"
            )
        return super().infer(*x)

    def indices(self, x: TensorType) -> tuple[Array, Array]:
        """The row and the column that each output row and column copies."""
        vertical, horizontal = self.axes(x)
        return nearest(vertical, self.rounding), nearest(horizontal, self.rounding)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Pixels by index."""
        rows, columns = self.indices(xt[0])
        return [np.ascontiguousarray(x[0][:, rows][:, :, columns])]

    def c(self, op: Op) -> KernelCall:
        """Pixels as bytes."""
        x = op.inputs[0].type
        rows, columns = self.indices(x)
        dims = self.dims(op)
        dims["c"] *= x.np_dtype.itemsize
        tables = {"rows": Table(rows, "rows"), "columns": Table(columns, "columns")}
        spec = Struct("ek_resize_nearest_t", **dims, **tables)
        return KernelCall.of("ek_resize_nearest", op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """TFLite's modes up and down, ONNX's roundings."""
        for mode in TFLITE_MODES:
            for size in ((8, 10), (3, 2), (7, 9), (1, 1)):
                yield from _samples(cls(size, mode), f"{mode}_{size[0]}x{size[1]}")
        for rounding in ROUNDINGS:
            yield from _samples(
                cls((7, 9), "onnx_half_pixel", rounding=rounding), rounding
            )

    @edgetpu_rule(
        fix="enlarge a smaller image on the Edge TPU, or leave the last enlargement to "
        "the CPU"
    )
    def _nearest_size(self, op: Op) -> str | None:
        """RESIZE_NEAREST_NEIGHBOR: the output has at most 819200 elements."""
        y = op.output.type
        return within(
            y.size,
            _NEAREST_MAPPED,
            None,
            f"output {list(y.shape)} has {y.size} elements",
        )


@dataclass(frozen=True)
class ResizeBilinear(_TfliteResize):
    """The two by two pixels around the place, weighted by distance.

    int8: weights in 1/1024, as TFLite's int8 kernel; with `uint8` float32 sums of the
    integers + 128, as its uint8 kernel has them (for models that came as uint8).
    """

    uint8: bool = False
    even: bool = False
    """Whether int8 is resized as onnxruntime does it between scales: the sums of its
    reals, rounded, ties to even.
    """
    cut: bool = False
    """Whether int8 is resized as onnxruntime does it with integers: weights in 1/1024,
    the sum (with `uint8` that of the integers + 128) cut off towards zero.
    """

    kind = "resize_bilinear"
    tflite = ("RESIZE_BILINEAR",)
    edgetpu_versions = {"RESIZE_BILINEAR": Versions(3)}
    options = "ResizeBilinearOptions"

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, *size, C]."""
        real_types(self, x[0])
        return super().infer(*x)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The flags name the mode, the declared output has the size."""
        op.build.write(
            cls(*_tflite_size_mode(op), uint8=op.uint8), [op.input(0)], op.outputs
        )

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """None where TFLite's int8 kernel would read beyond the image."""
        integer = (
            op.inputs[0].type.dtype == "int8"
            and self.mode in TFLITE_MODES
            and not self.uint8
        )
        if integer and any(overshoots(a) for a in self.axes(op.inputs[0].type)):
            return None
        return super().to_tflite(op)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """The int8 kernel rounds otherwise."""
        return self.uint8 and not self.cut and op.output.type.dtype == "int8"

    def as_tflite(self) -> OpDef:
        """Its int8 kernel."""
        if self.even or self.cut:
            return replace(self, even=False, cut=False, uint8=False)
        return self

    def tables(self, x: TensorType) -> tuple[Neighbours, Neighbours]:
        """Neighbours and weights of rows and columns."""
        make = linear_fixed if x.dtype == "int8" and not self.uint8 else linear
        if x.dtype == "int8" and (self.even or self.cut):
            make = linear_cut if self.cut else linear_clipped
        vertical, horizontal = self.axes(x)
        return make(vertical), make(horizontal)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32 in the order of TFLite's reference kernel; int8 exact, then rounded
        half away from zero.
        """
        v, h = self.tables(xt[0])
        if xt[0].dtype == "float32":
            return [_blend(x[0], v, h, np.float32(1))]
        if self.even:
            total = _blend_reals(dequantize(x[0], xt[0]), v, h) / np.float32(
                yt[0].scale
            )
            return [rounded_even(total, yt[0], (-128, 127)).astype(np.int8)]
        if self.cut:
            shift = 128 * self.uint8
            total = _blend(x[0].astype(np.int64) + shift, v, h, np.int64(FIXED_ONE))
            return [(np.trunc(total / FIXED_ONE**2) - shift).astype(np.int8)]
        if self.uint8:
            y = _blend(
                (x[0].astype(np.int32) + 128).astype(np.float32), v, h, np.float32(1)
            ) + np.float32(0.5)
            return [(np.trunc(y).astype(np.int32) - 128).astype(np.int8)]
        total = _blend(x[0].astype(np.int64), v, h, np.int64(FIXED_ONE))
        half = np.where(total > 0, FIXED_ONE**2 // 2, -(FIXED_ONE**2) // 2)
        return [np.trunc((total + half) / FIXED_ONE**2).astype(np.int8)]

    def c(self, op: Op) -> KernelCall:
        """ek_resize_bilinear_<type>, or _u8 for the arithmetic of uint8 models."""
        x = op.inputs[0].type
        v, h = self.tables(x)
        tables = {
            "y0": v.low,
            "y1": v.high,
            "fy": v.weight,
            "x0": h.low,
            "x1": h.high,
            "fx": h.weight,
        }
        names = {key: Table(table, key) for key, table in tables.items()}
        kind = "fixed" if v.weight.dtype == np.int32 else "f32"
        name = "u8" if self.uint8 and x.dtype == "int8" else suffix(x)
        if x.dtype == "int8" and self.even:
            affine = {"zero": x.zero_point, "scale": float(x.scale)}
            spec = Struct(
                "ek_resize_bilinear_even_t", **self.dims(op), **names, **affine
            )
            return KernelCall.of(
                "ek_resize_bilinear_even_s8", op.inputs[0], op.output, spec
            )
        spec = Struct(f"ek_resize_bilinear_{kind}_t", **self.dims(op), **names)
        name = f"cut_{name}" if x.dtype == "int8" and self.cut else name
        return KernelCall.of(
            f"ek_resize_bilinear_{name}", op.inputs[0], op.output, spec
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """TFLite's modes up and down, in float, int8 and as uint8; a mode of ONNX's."""
        for mode in TFLITE_MODES:
            for size in ((8, 10), (3, 2), (7, 9), (1, 1)):
                yield from _samples(cls(size, mode), f"{mode}_{size[0]}x{size[1]}")
            x = TensorType((1, 4, 5, 7), "int8", Quant.per_tensor(0.1, 3))
            yield Sample(
                cls((9, 13), mode, uint8=True), (Arg(x),), label=f"{mode}_uint8"
            )
            for size in ((8, 10), (9, 13), (3, 2)):
                label = f"{mode}_{size[0]}x{size[1]}"
                yield Sample(
                    cls(size, mode, even=True), (Arg(x),), label=f"{label}_even"
                )
                yield Sample(cls(size, mode, cut=True), (Arg(x),), label=f"{label}_cut")
                yield Sample(
                    cls(size, mode, cut=True, uint8=True),
                    (Arg(x),),
                    label=f"{label}_cut_uint8",
                )
        yield from _samples(cls((7, 9), "onnx_pytorch_half_pixel"), "pytorch")

    @edgetpu_rule(fix="export the model with half-pixel centres (align_corners=False)")
    def _bilinear_corners(self, op: Op) -> str | None:
        """RESIZE_BILINEAR: corners may be aligned only where the size stays (no other
        such resize was seen mapped).
        """
        x = op.inputs[0].type.shape
        y = op.output.type.shape
        seen = f"align_corners, {x[1]}x{x[2]} to {y[1]}x{y[2]}"
        return Uncertain(seen) if self.mode == "align_corners" and x != y else None

    @edgetpu_rule(
        fix="enlarge in several steps of two, or by nearest neighbour; "
        "one pixel is better repeated (TILE)"
    )
    def _bilinear_factor(self, op: Op) -> str | None:
        """RESIZE_BILINEAR: each side at most doubles and does not shrink; growing 15
        times and more is refused.
        """
        x = op.inputs[0].type.shape
        y = op.output.type.shape
        seen = f"{x[1]}x{x[2]} to {y[1]}x{y[2]}"
        if any(y[i] < x[i] for i in (1, 2)):
            return Uncertain(seen)
        return next(
            (
                found
                for i in (1, 2)
                if (found := within(y[i], 2 * x[i], 15 * x[i], seen))
            ),
            None,
        )

    @edgetpu_rule(
        fix="end the Edge TPU part at a smaller image and let the CPU do the last "
        "enlargement"
    )
    def _bilinear_size(self, op: Op) -> str | None:
        """RESIZE_BILINEAR: the output has at most 524288 elements; refused from 5000211
        on.
        """
        y = op.output.type
        return within(
            y.size, *_BILINEAR, f"output {list(y.shape)} has {y.size} elements"
        )


_NEAREST_MAPPED = 819_200
"""Elements of the largest RESIZE_NEAREST_NEIGHBOR that was seen mapped, [1,80,80,128]."""
_BILINEAR = (524_288, 5_000_211)
"""About 128x128x32, which users report as mapped, and [1,513,513,19], which was
refused. Enlargements by 2 were seen mapped, by 15 and 33 refused.
"""


@dataclass(frozen=True)
class ResizeCubic(Resize):
    """Keys' cubic convolution over four by four pixels; float only."""

    coefficient: float = -0.75
    exclude_outside: bool = False

    kind = "resize_cubic"

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, *size, C] of floats."""
        real_types(self, x[0], int8=False)
        return super().infer(*x)

    def _taps(self, x: TensorType) -> list[tuple[Array, Array]]:
        return [cubic(a, self.coefficient, self.exclude_outside) for a in self.axes(x)]

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Columns, then rows."""
        (iy, wy), (ix, wx) = self._taps(xt[0])
        columns = np.einsum("nyxtc,xt->nyxc", x[0][:, :, ix], wx)
        return [np.einsum("nytxc,yt->nyxc", columns[:, iy], wy).astype(np.float32)]

    def c(self, op: Op) -> KernelCall:
        """Sixteen pixels and the products of their weights."""
        (iy, wy), (ix, wx) = self._taps(op.inputs[0].type)
        tables = {"iy": iy, "wy": wy, "ix": ix, "wx": wx}
        names = {key: Table(table, key) for key, table in tables.items()}
        spec = Struct("ek_resize_cubic_t", **self.dims(op), **names)
        return KernelCall.of("ek_resize_cubic_f32", op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Up, down, and without the outside."""
        for label, spec in (
            ("up", cls((8, 10), "onnx_half_pixel")),
            ("down", cls((3, 2), "onnx_align_corners")),
            ("inside", cls((7, 9), "onnx_half_pixel", exclude_outside=True)),
        ):
            yield Sample(spec, (Arg(TensorType((1, 4, 5, 3))),), label=label)


def _blend(x: Array, v: Neighbours, h: Neighbours, one: Any) -> Array:
    """The sum of four weighted pixels, in the order of TFLite's reference kernel."""
    fy = v.weight[:, None, None]
    fx = h.weight[:, None]
    top = x[:, v.low]
    bottom = x[:, v.high]
    total = top[:, :, h.low] * (one - fy) * (one - fx)
    total = total + bottom[:, :, h.low] * fy * (one - fx)
    total = total + top[:, :, h.high] * (one - fy) * fx
    result: Array = total + bottom[:, :, h.high] * fy * fx
    return result


def _blend_reals(x: Array, v: Neighbours, h: Neighbours) -> Array:
    """The same in the order of onnxruntime's: the products of the weights first, a
    row's two pixels side by side.
    """
    fy = v.weight[:, None, None]
    fx = h.weight[:, None]
    one = np.float32(1)
    top = x[:, v.low]
    bottom = x[:, v.high]
    total = ((one - fx) * (one - fy)) * top[:, :, h.low]
    total = total + (fx * (one - fy)) * top[:, :, h.high]
    total = total + ((one - fx) * fy) * bottom[:, :, h.low]
    result: Array = total + (fx * fy) * bottom[:, :, h.high]
    return result


def _tflite_size_mode(op: TfliteOp) -> tuple[Pair, str]:
    """Size and mode of a TFLite resize."""
    shape = op.outputs[0].type.shape
    o = op.options
    if o.alignCorners:
        mode = "align_corners"
    else:
        mode = "half_pixel" if o.halfPixelCenters else "asymmetric"
    return (shape[1], shape[2]), mode


def _samples(spec: Resize, label: str) -> Iterator[Sample]:
    yield Sample(spec, (Arg(TensorType((1, 4, 5, 3))),), label=label)
    yield Sample(
        spec,
        (Arg(TensorType((2, 4, 5, 3), "int8", Quant.per_tensor(0.1, 3))),),
        label=f"{label}_s8",
    )
