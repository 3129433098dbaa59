"""Resizing of NHWC images: nearest neighbour, bilinear, cubic.

All places and weights are computed at compile time (see `resampling`). Semantics: ONNX
Resize as onnxruntime computes it; TFLite RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR
(reference/resize_nearest_neighbor.h, resize_bilinear.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from edgec.ir import (
    Array,
    ChannelFlow,
    CStruct,
    Kernel,
    KernelCall,
    KernelFamily,
    KernelRounding,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Rounding,
    Sample,
    Table,
    TensorType,
    TfliteCode,
    TfliteOp,
    Uncertain,
    Versions,
    edgetpu_rule,
)
from edgec.ir.c_structs import (
    ResizeBilinearEvenParams,
    ResizeBilinearFixedParams,
    ResizeBilinearRealParams,
    ResizeNearestParams,
)
from edgec.ir.opdef import Arg
from edgec.ir.types import dequantize
from edgec.ops.common import REAL_KERNELS, real_types, rounded_even, suffix
from edgec.ops.limits import size_evidence
from edgec.ops.resampling import (
    ALIGNED_HALF_PIXEL,
    FIXED_ONE,
    MODES,
    ROUNDINGS,
    TFLITE_FLAGS,
    TFLITE_MODES,
    Axis,
    Neighbours,
    blend,
    blend_reals,
    linear,
    linear_clipped,
    linear_cut,
    linear_fixed,
    nearest,
    overshoots,
)
from edgec.ops.window import Pair

_RESIZE_NEAREST = KernelFamily(Kernel("resize_nearest", "ek_resize.h"), ("",)).of()

RESIZE_BILINEAR = KernelFamily(
    Kernel("resize_bilinear", "ek_resize.h"),
    (*REAL_KERNELS, "s8", "u8"),
    even=("s8",),
    cut=("s8", "u8"),
)


@dataclass(frozen=True)
class Resize(OpDef):
    """An image [N, H, W, C] resized to [N, *size, C].

    Attributes:
        size: pixels (height, width) of the output
        mode: coordinates of an output pixel in the input, a key of `resampling.MODES`
        scale: factors (vertical, horizontal) as an ONNX model gives them; 0: the ratio
            of the sizes
    """

    size: Pair
    mode: str = "half_pixel"
    scale: tuple[float, float] = (0.0, 0.0)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the image type with the new size.

        Raises ValueError for other ranks than 4, for empty images and unknown modes.
        """
        if x[0].rank != 4 or min(*self.size, *x[0].shape[1:3]) < 1:
            raise ValueError(
                f"{x[0]} to {self.size[0]}x{self.size[1]}; an image has rank 4"
            )

        if self.mode not in MODES:
            raise ValueError(
                f"coordinate mode {self.mode} is not one of {', '.join(MODES)}"
            )

        n, _, _, channels = x[0].shape

        return (replace(x[0], shape=(n, *self.size, channels)),)

    def axes(self, x: TensorType) -> tuple[Axis, Axis]:
        """Return the vertical and the horizontal axis."""
        # Images are [N, H, W, C].
        _, height, width, _ = x.shape
        rows, columns = self.size
        scale_y, scale_x = self.scale
        vertical = Axis(height, rows, self.mode, scale_y)
        horizontal = Axis(width, columns, self.mode, scale_x)

        return vertical, horizontal

    def dims(self, op: Op) -> dict[str, int]:
        """Return the sizes that the struct of every resize kernel has."""
        n, height, width, channels = op.inputs[0].type.shape
        return {
            "n": n,
            "ih": height,
            "iw": width,
            "c": channels,
            "oh": self.size[0],
            "ow": self.size[1],
        }

    def tflite_options(self) -> dict[str, bool] | None:
        """Return the flags of TFLite's options; None for modes that it lacks."""
        if self.mode not in TFLITE_FLAGS:
            return None

        aligns_corners, has_half_pixels = TFLITE_FLAGS[self.mode]

        return {"alignCorners": aligns_corners, "halfPixelCenters": has_half_pixels}


@dataclass(frozen=True)
class _TfliteResize(Resize):
    """A resize that TFLite has too."""

    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.KEEPS
    homogeneous: ClassVar[bool] = True
    options: ClassVar[str]
    """Name of TFLite's options table."""

    def moves(self) -> bool:
        """Return whether pixels are copied."""
        return self.kind == "resize_nearest"

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator, whose declared output has the size."""
        size, mode = _tflite_size_mode(op)
        op.build.write(cls(size, mode), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; None for modes that TFLite lacks.

        Version 2 introduced int8. Version 3 introduced half pixel centres, and for
        nearest neighbours also aligned corners.
        """
        flags = self.tflite_options()
        if flags is None:
            return None

        x = op.inputs[0]
        is_nearest = self.kind == "resize_nearest"
        needs_version_3 = flags["halfPixelCenters"]
        if is_nearest and flags["alignCorners"]:
            needs_version_3 = True

        version = 2 if x.type.dtype == "int8" else 1
        if needs_version_3:
            version = 3

        # The output's size is a constant tensor.
        size = np.array(self.size, np.int32)

        return TfliteCode(self.tflite[0], (self.options, flags), version, (x, size))


@dataclass(frozen=True)
class ResizeNearest(_TfliteResize):
    """A resize that copies the nearest pixel.

    Attributes:
        nearest_mode: as in ONNX, for the modes that only ONNX has
    """

    nearest_mode: str = "floor"

    kind = "resize_nearest"
    any_elements: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True
    tflite = ("RESIZE_NEAREST_NEIGHBOR",)
    edgetpu_versions = {"RESIZE_NEAREST_NEIGHBOR": Versions(3)}
    options = "ResizeNearestNeighborOptions"

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the image type with the new size.

        Raises ValueError for an unknown mode.
        """
        if self.nearest_mode not in ROUNDINGS:
            raise ValueError(
                f"nearest_mode {self.nearest_mode} is not one of {', '.join(ROUNDINGS)}"
            )

        return super().infer(*x)

    def indices(self, x: TensorType) -> tuple[Array, Array]:
        """Return the input row of each output row, and the column of each column.

        They are int32 tables of the C file.
        """
        vertical, horizontal = self.axes(x)
        rows = nearest(vertical, self.nearest_mode)
        columns = nearest(horizontal, self.nearest_mode)
        return rows, columns

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's integer indexing."""
        rows, columns = self.indices(xt[0])
        y = x[0][:, rows][:, :, columns]

        return [np.ascontiguousarray(y)]

    def c(self, op: Op) -> KernelCall:
        """Return ek_resize_nearest, which copies pixels as bytes."""
        x = op.inputs[0].type
        rows, columns = self.indices(x)
        dims = self.dims(op)

        # A pixel is copied as bytes, whatever its type.
        dims["c"] *= x.np_dtype.itemsize
        spec = ResizeNearestParams(
            **dims,
            rows=Table(rows, "rows"),
            columns=Table(columns, "columns"),
        )

        return KernelCall.of(_RESIZE_NEAREST, op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield TFLite's modes up and down, and ONNX's roundings.

        Each in float and int8, though the kernel copies bytes.
        """
        for mode, size in product(TFLITE_FLAGS, (*_SAMPLE_SIZES, (4, 5))):
            label = f"{mode}_{size[0]}x{size[1]}"
            yield from _samples(cls(size, mode), label)

        for rounding in ROUNDINGS:
            spec = cls((7, 9), "onnx_half_pixel", nearest_mode=rounding)
            yield from _samples(spec, rounding)

    @edgetpu_rule(fix="export the model with one of the two")
    def _nearest_corners(self, op: Op) -> str | None:
        """RESIZE_NEAREST_NEIGHBOR: corners are not aligned between half pixels (no such
        resize was seen).
        """
        is_both = self.mode == ALIGNED_HALF_PIXEL
        return Uncertain(f"mode {self.mode}") if is_both else None

    @edgetpu_rule(
        fix="enlarge a smaller image on the Edge TPU, or leave the last enlargement to "
        "the CPU"
    )
    def _nearest_size(self, op: Op) -> str | None:
        """RESIZE_NEAREST_NEIGHBOR: the output has at most 819200 elements."""
        y = op.output.type
        evidence = f"output {list(y.shape)} has {y.size} elements"
        return size_evidence(y.size, _NEAREST_MAPPED, None, evidence)


@dataclass(frozen=True)
class ResizeBilinear(_TfliteResize):
    """A resize by the two by two pixels around a place, weighted by distance.

    y = Σ x[i, j] (1 - |v - i|)(1 - |h - j|). TFLite's int8 kernel has weights in
    1/1024, its uint8 kernel float32 sums of the integers + 128. onnxruntime sums reals
    and rounds them half to even where a file has scales around its Resize.

    Attributes:
        rounding: the arithmetic of int8
    """

    rounding: Rounding = Rounding.TFLITE
    of_integers: bool = False
    """Whether onnxruntime's Resize reads the integers themselves: weights in 1/1024,
    and the sum of the file's integers cut off towards zero.
    """

    kind = "resize_bilinear"
    tflite = ("RESIZE_BILINEAR",)
    edgetpu_versions = {"RESIZE_BILINEAR": Versions(3)}
    options = "ResizeBilinearOptions"

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the image type with the new size.

        Raises ValueError but for reals, and for corners aligned between half pixels,
        which neither TFLite nor ONNX has.
        """
        real_types(self, x[0])
        if self.mode == ALIGNED_HALF_PIXEL:
            raise ValueError("align_corners together with half_pixel_centers")
        return super().infer(*x)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read RESIZE_BILINEAR, whose declared output has the size.

        The mode follows from two flags of the options.
        """
        size, mode = _tflite_size_mode(op)
        spec = cls(size, mode, rounding=op.rounding)
        op.build.write(spec, [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return RESIZE_BILINEAR.

        None where TFLite's int8 kernel would read beyond the image.
        """
        x = op.inputs[0].type
        is_int8_kernel = self.rounding is not Rounding.TFLITE_UINT8
        is_fixed_point = x.dtype == "int8" and is_int8_kernel
        has_tflite_mode = self.mode in TFLITE_MODES
        axes = self.axes(x) if is_fixed_point and has_tflite_mode else ()
        if any(overshoots(axis) for axis in axes):
            return None

        return super().to_tflite(op)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """Return whether sums round as only the uint8 kernel rounds them."""
        is_int8 = op.output.type.dtype == "int8"
        return is_int8 and self.rounding is Rounding.TFLITE_UINT8

    def as_tflite(self) -> OpDef:
        """Return the resize that rounds as TFLite's int8 kernel does."""
        if not self.rounding.is_onnxruntime:
            return self
        return replace(self, rounding=Rounding.TFLITE, of_integers=False)

    def tables(self, x: TensorType) -> tuple[Neighbours, Neighbours]:
        """Return the neighbours and weights of the rows, and of the columns.

        The arithmetic of the element type and of the runtime decides the weights' form.
        """
        is_int8 = x.dtype == "int8"

        # uint8 models have float32 weights.
        neighbours = linear
        if is_int8 and self.of_integers:
            neighbours = linear_cut
        elif is_int8 and self.rounding.is_onnxruntime:
            neighbours = linear_clipped
        elif is_int8 and self.rounding is Rounding.TFLITE:
            neighbours = linear_fixed

        vertical, horizontal = self.axes(x)

        return neighbours(vertical), neighbours(horizontal)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute float32 in the order of TFLite's reference kernel, int8 exactly.

        TFLite's int8 sum is rounded half away from zero.
        """
        rows, columns = self.tables(xt[0])
        if xt[0].dtype == "float32":
            return [blend(x[0], rows, columns, np.float32(1))]

        if self.of_integers:
            return [self._ref_integers(x[0], rows, columns)]

        if self.rounding.is_onnxruntime:
            reals = blend_reals(dequantize(x[0], xt[0]), rows, columns)
            steps = reals / np.float32(yt[0].scale)
            return [rounded_even(steps, yt[0], (-128, 127)).astype(np.int8)]

        if self.rounding is Rounding.TFLITE_UINT8:
            return [self._ref_uint8(x[0], rows, columns)]

        total = blend(x[0].astype(np.int64), rows, columns, np.int64(FIXED_ONE))

        # Both weights count in 1/1024.
        unit = FIXED_ONE**2
        half = np.where(total > 0, unit // 2, -unit // 2)

        return [np.trunc((total + half) / unit).astype(np.int8)]

    def _ref_integers(self, x: Array, rows: Neighbours, columns: Neighbours) -> Array:
        """Return the sums of integers cut off towards zero, as onnxruntime."""
        offset = self.rounding.offset

        # The elements as the file has them.
        integers = x.astype(np.int64) + offset
        total = blend(integers, rows, columns, np.int64(FIXED_ONE))
        y = np.trunc(total / FIXED_ONE**2) - offset

        return np.asarray(y.astype(np.int8))

    def _ref_uint8(self, x: Array, rows: Neighbours, columns: Neighbours) -> Array:
        """Return the float32 sums of uint8 integers, half up, as TFLite."""
        # The elements as the file has them.
        integers = (x.astype(np.int32) + 128).astype(np.float32)

        # The half and the cut together round half up.
        total = blend(integers, rows, columns, np.float32(1)) + np.float32(0.5)
        y = np.trunc(total).astype(np.int32) - 128
        return np.asarray(y.astype(np.int8))

    def c(self, op: Op) -> KernelCall:
        """Return ek_resize_bilinear_<type>, with a name for each int8 arithmetic.

        They are even_s8, cut_s8, cut_u8 and u8.
        """
        x = op.inputs[0].type
        rows, columns = self.tables(x)
        fields: dict[str, Any] = {
            **self.dims(op),
            "y0": Table(rows.low, "y0"),
            "y1": Table(rows.high, "y1"),
            "fy": Table(rows.weight, "fy"),
            "x0": Table(columns.low, "x0"),
            "x1": Table(columns.high, "x1"),
            "fx": Table(columns.weight, "fx"),
        }
        is_int8 = x.dtype == "int8"
        if is_int8 and self.rounding.is_onnxruntime and not self.of_integers:
            scaled = ResizeBilinearEvenParams(
                **fields,
                zero=x.zero_point,
                scale=float(x.scale),
            )
            kernel = RESIZE_BILINEAR.of("s8", KernelRounding.EVEN)
            return KernelCall.of(kernel, op.inputs[0], op.output, scaled)

        type_name = "u8" if self.rounding.is_uint8 and is_int8 else suffix(x)
        is_cut = is_int8 and self.of_integers
        rounding = KernelRounding.CUT if is_cut else KernelRounding.TFLITE

        # The type of the weights decides the struct.
        spec: CStruct
        if rows.weight.dtype == np.int32:
            spec = ResizeBilinearFixedParams(**fields)
        else:
            spec = ResizeBilinearRealParams(**fields)

        kernel = RESIZE_BILINEAR.of(type_name, rounding)

        return KernelCall.of(kernel, op.inputs[0], op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield TFLite's modes up and down with each arithmetic, and a mode of ONNX."""
        x = Arg(TensorType((1, 4, 5, 7), "int8", Quant.per_tensor(0.1, 3)))
        for mode in TFLITE_MODES:
            for size in _SAMPLE_SIZES:
                label = f"{mode}_{size[0]}x{size[1]}"
                yield from _samples(cls(size, mode), label)

            uint8 = cls((9, 13), mode, rounding=Rounding.TFLITE_UINT8)
            yield Sample(uint8, (x,), label=f"{mode}_uint8")

            for size in ((8, 10), (9, 13), (3, 2)):
                label = f"{mode}_{size[0]}x{size[1]}"
                specs = {
                    "even": cls(size, mode, rounding=Rounding.ONNXRUNTIME),
                    "cut": cls(
                        size, mode, rounding=Rounding.ONNXRUNTIME, of_integers=True
                    ),
                    "cut_uint8": cls(
                        size,
                        mode,
                        rounding=Rounding.ONNXRUNTIME_UINT8,
                        of_integers=True,
                    ),
                }
                for name, spec in specs.items():
                    yield Sample(spec, (x,), label=f"{label}_{name}")

        yield from _samples(cls((7, 9), "onnx_pytorch_half_pixel"), "pytorch")

    @edgetpu_rule(fix="export the model with half-pixel centres (align_corners=False)")
    def _bilinear_corners(self, op: Op) -> str | None:
        """RESIZE_BILINEAR: corners may be aligned only where the size stays (no other
        such resize was seen mapped).
        """
        x = op.inputs[0].type.shape
        y = op.output.type.shape
        if self.mode != "align_corners" or x == y:
            return None

        return Uncertain(f"align_corners, {x[1]}x{x[2]} to {y[1]}x{y[2]}")

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
        evidence = f"{x[1]}x{x[2]} to {y[1]}x{y[2]}"

        # Height and width.
        if any(y[i] < x[i] for i in (1, 2)):
            return Uncertain(evidence)

        for i in (1, 2):
            refusal = size_evidence(y[i], 2 * x[i], 15 * x[i], evidence)
            if refusal:
                return refusal

        return None

    @edgetpu_rule(
        fix="end the Edge TPU part at a smaller image and let the CPU do the last "
        "enlargement"
    )
    def _bilinear_size(self, op: Op) -> str | None:
        """RESIZE_BILINEAR: the output has at most 524288 elements; refused from 5000211
        on.
        """
        y = op.output.type
        evidence = f"output {list(y.shape)} has {y.size} elements"

        return size_evidence(y.size, *_BILINEAR_LIMITS, evidence)


_NEAREST_MAPPED = 819_200
"""Elements of the largest RESIZE_NEAREST_NEIGHBOR seen mapped, [1,80,80,128]."""
_BILINEAR_LIMITS = (524_288, 5_000_211)
"""(mapped, refused): about 128x128x32, which users report as mapped, and
[1,513,513,19], which was refused. Enlargements by 2 were seen mapped, by 15 and 33
refused.
"""

_SAMPLE_SIZES: tuple[Pair, ...] = ((8, 10), (3, 2), (7, 9), (1, 1))
"""Sizes of the samples, whose input has 4x5 pixels."""


def _tflite_size_mode(op: TfliteOp) -> tuple[Pair, str]:
    """Return the size and the mode of a TFLite resize."""
    shape = op.outputs[0].type.shape
    size = (shape[1], shape[2])

    flags = (bool(op.options.alignCorners), bool(op.options.halfPixelCenters))
    mode = next(mode for mode in TFLITE_FLAGS if TFLITE_FLAGS[mode] == flags)

    return size, mode


def _samples(spec: Resize, label: str) -> Iterator[Sample]:
    """Yield a resize of a float and of an int8 image.

    The int8 one is a batch of two.
    """
    reals = Arg(TensorType((1, 4, 5, 3)))
    yield Sample(spec, (reals,), label=label)

    quantized = Arg(TensorType((2, 4, 5, 3), "int8", Quant.per_tensor(0.1, 3)))
    yield Sample(spec, (quantized,), label=f"{label}_s8")
