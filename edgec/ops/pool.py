"""Sliding-window maximum and average of NHWC images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
from edgec.ir.types import dequantize
from edgec.ops.common import kernel_suffix
from edgec.ops.fixed_point import (
    ACTIVATIONS,
    TFLITE_ACTIVATIONS,
    activation_range,
    clamp_float,
    tflite_activation,
)
from edgec.ops.ranks import of_one_row, pool_in_planes
from edgec.ops.reduce import Mean
from edgec.ops.shape import from_nhwc, to_nhwc
from edgec.ops.window import (
    Pads,
    Pair,
    onnx_pads,
    out_size,
    pad_image,
    pair,
    patches,
    tflite_padding,
    tflite_pads,
)
from edgec.ops.windows_nd import (
    SlidingWindow,
    average_by_taps,
    max_by_taps,
)


@dataclass(frozen=True)
class _PoolOp(OpDef):
    """y[n, i, j, c] over the window that starts at (i, j) * stride - pads; padding
    never enters a maximum.
    """

    kernel: Pair = (2, 2)
    stride: Pair = (2, 2)
    pads: Pads = (0, 0, 0, 0)
    act: str = "none"

    quant: ClassVar[QuantRule] = QuantRule.SAME
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, OH, OW, C]; every window must touch the image."""
        image = x[0]
        if image.rank != 4 or 0 in image.shape[1:3]:
            raise ValueError(f"image must have rank 4 and pixels, not {image}")
        t, b, left, r = self.pads
        h = out_size(image.shape[1], self.kernel[0], self.stride[0], 1, t, b)
        w = out_size(image.shape[2], self.kernel[1], self.stride[1], 1, left, r)
        if min(h, w) < 1:
            raise ValueError(
                f"window {self.kernel} is larger than the padded image {image.shape[1:3]}"
            )
        if t >= self.kernel[0] or left >= self.kernel[1]:
            raise ValueError(
                f"window {self.kernel} can lie in the padding {self.pads} alone"
            )
        return (image.with_shape((image.shape[0], h, w, image.shape[3])),)

    def windows(self, x: Array, value: float) -> Array:
        """[N, OH, OW, C, KH, KW] of the image padded with `value`."""
        return patches(pad_image(x, self.pads, value), self.kernel, self.stride)

    def moves(self) -> bool:
        """Maxima."""
        return self.kind == "max_pool2d" and self.act == "none"

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value | list[Value]:
        """Image pools; the windows that ceil_mode adds become padding at the end."""
        x = node.input(0)
        if x.type.rank == 3:
            return of_one_row(node, cls.from_onnx)
        real = x.type.is_quantized or x.type.dtype == "float32"
        if (
            x.type.rank != 4
            or not real
            or node.n_outputs > 1
            or any(d != 1 for d in node.attrs.get("dilations", ()))
        ):
            return cls.otherwise(node)
        node.attrs.ignore("storage_order")  # of the indices
        size = (x.type.shape[2], x.type.shape[3])
        kernel = pair(node.attrs["kernel_shape"])
        stride = pair(node.attrs.get("strides"))
        pads = onnx_pads(node, size, kernel, stride)
        # beside auto_pad=VALID ceil_mode counts as ONNX's shape inference and
        # onnxruntime count it
        ceil = bool(node.attrs.get("ceil_mode", 0)) and not str(
            node.attrs.get("auto_pad", "")
        ).startswith("SAME")
        spec = cls.with_onnx_attrs(
            cls(
                kernel, stride, _ceil_pads(size, kernel, stride, pads) if ceil else pads
            ),
            node,
        )
        if ceil and spec.pads != pads and getattr(spec, "count_pads", False):
            return cls.otherwise(node)
        return from_nhwc(
            node.build, node.build.add(spec, [to_nhwc(node.build, x)], node.name)
        )

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """A pool that is none of the images that the kernels take."""
        raise NotImplementedError(cls.kind)

    @classmethod
    def with_onnx_attrs(cls, spec: _PoolOp, node: OnnxNode) -> _PoolOp:
        """The attributes that only one of the pools has."""
        return spec

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """MAX_POOL_2D and AVERAGE_POOL_2D."""
        x = op.input(0).type
        o = op.options
        kernel = (o.filterHeight, o.filterWidth)
        stride = (o.strideH, o.strideW)
        pads = tflite_pads(o, (x.shape[1], x.shape[2]), kernel)
        spec = cls(kernel, stride, pads, TFLITE_ACTIVATIONS[o.fusedActivationFunction])
        op.build.write(spec.with_tflite_attrs(op), [op.input(0)], op.outputs)

    def with_tflite_attrs(self, op: TfliteOp) -> _PoolOp:
        """The attributes that only one of the pools has."""
        return self

    def tflite_padding(self, op: Op) -> int | None:
        """TFLite's padding enum; None when it has no such padding."""
        x = op.inputs[0].type
        return tflite_padding(
            self.pads, (x.shape[1], x.shape[2]), self.kernel, self.stride
        )

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Version 2 is int8; explicit padding has no form."""
        x = op.inputs[0].type
        padding = self.tflite_padding(op)
        if padding is None:
            return None
        options: dict[str, Any] = {
            "padding": padding,
            "strideH": self.stride[0],
            "strideW": self.stride[1],
            "filterHeight": self.kernel[0],
            "filterWidth": self.kernel[1],
            "fusedActivationFunction": tflite_activation(self.act, op.output.type),
        }
        return TfliteCode(
            self.tflite[0], ("Pool2DOptions", options), 2 if x.dtype == "int8" else 1
        )

    def c(self, op: Op) -> KernelCall:
        """ek_<max|average>_pool2d_<type>."""
        x = op.inputs[0].type
        y = op.output.type
        low, high = (
            activation_range(self.act, y) if y.is_quantized else ACTIVATIONS[self.act]
        )
        shape = Struct(
            "ek_pool_t",
            n=x.shape[0],
            ih=x.shape[1],
            iw=x.shape[2],
            c=x.shape[3],
            oh=y.shape[1],
            ow=y.shape[2],
            kh=self.kernel[0],
            kw=self.kernel[1],
            sh=self.stride[0],
            sw=self.stride[1],
            pt=self.pads[0],
            pl=self.pads[2],
            **self.c_fields(y),
            low=low,
            high=high,
        )
        name = kernel_suffix(y, getattr(self, "even", False))
        return KernelCall.of(f"ek_{self.kind}_{name}", op.inputs[0], op.output, shape)

    def c_fields(self, y: TensorType) -> dict[str, int | float]:
        """What the struct holds for one of the pools only."""
        return {}

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Overlap, padding, strides, activations, a global window; float and int8."""
        for label, spec, size in (
            ("2x2", cls(), (1, 6, 4, 3)),
            ("3x3", cls((3, 3), (1, 1), (1, 1, 1, 1), "relu"), (1, 5, 5, 20)),
            ("stride", cls((3, 2), (2, 1), (0, 1, 0, 1), "relu6"), (2, 6, 5, 4)),
            ("global", cls((7, 5), (1, 1)), (1, 7, 5, 9)),
        ):
            yield Sample(spec, (Arg(TensorType(size)),), label=label)
            x = TensorType(size, "int8", Quant.per_tensor(0.05, -9))
            yield Sample(spec, (Arg(x),), label=f"{label}_s8")

    @edgetpu_rule(fix="keep the activation as an operation of its own")
    def _no_fused_activation(self, op: Op) -> str | None:
        """Pooling must have no fused activation."""
        return None if self.act == "none" else f"activation {self.act}"

    @edgetpu_rule(
        fix="pad by a separate operation, or choose a size that the stride divides"
    )
    def _same_or_valid_padding(self, op: Op) -> str | None:
        """Padding must be none (VALID) or make ceil(size / stride) windows fit, the odd
        element after (SAME).
        """
        return f"pads {self.pads}" if self.tflite_padding(op) is None else None


def _ceil_pads(size: Pair, kernel: Pair, stride: Pair, pads: Pads) -> Pads:
    """Padding at the end so that the last, partial window of ceil_mode fits; none that
    would start past the image.
    """
    ends: list[int] = []
    for axis in (0, 1):
        before = pads[2 * axis]
        after = pads[2 * axis + 1]
        rest = size[axis] + before + after - kernel[axis]
        count = -(-rest // stride[axis]) + 1
        if (count - 1) * stride[axis] >= size[axis] + before:
            count -= 1
        ends += [
            before,
            max(after, (count - 1) * stride[axis] + kernel[axis] - size[axis] - before),
        ]
    return (ends[0], ends[1], ends[2], ends[3])


@dataclass(frozen=True)
class MaxPool2D(_PoolOp):
    """The largest element of each window."""

    kind = "max_pool2d"
    onnx = ("MaxPool",)
    tflite = ("MAX_POOL_2D",)
    edgetpu_versions = {"MAX_POOL_2D": Versions(2)}

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Three dimensions, dilation, indices."""
        windows = SlidingWindow.of(
            node, node.input(0).type.shape[2:], node.attrs["kernel_shape"]
        )
        if (
            node.n_outputs > 1
            or any(d != 1 for d in windows.dilation)
            or len(windows.size) != 3
        ):
            return max_by_taps(node, windows, node.n_outputs > 1)
        return pool_in_planes(node, windows, cls.from_onnx)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Tap by tap, which is faster than one maximum over a six-dimensional view."""
        lowest = -np.inf if x[0].dtype.kind == "f" else np.iinfo(x[0].dtype).min
        windows = self.windows(x[0], lowest)
        y = windows[..., 0, 0].copy()
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                np.maximum(y, windows[..., i, j], out=y)
        if yt[0].is_quantized:
            return [
                np.clip(y, *activation_range(self.act, yt[0])).astype(yt[0].np_dtype)
            ]
        return [clamp_float(y, self.act)]


_WHOLE = Mean((1, 2), keep_dims=True, even=True)


@dataclass(frozen=True)
class AveragePool2D(_PoolOp):
    """The mean of each window's elements: of those inside the image, or with
    `count_pads` of all, padding being 0.

    int8 sums are divided with ties away from zero; with `uint8` (the op was uint8 in
    the file) with ties upwards.
    """

    count_pads: bool = False
    uint8: bool = False
    even: bool = False
    """Whether int8 is what onnxruntime has: the mean of the reals in float32, rounded
    with ties to even; of a whole image that of `Mean`.
    """

    kind = "average_pool2d"
    onnx = ("AveragePool",)
    tflite = ("AVERAGE_POOL_2D",)
    edgetpu_versions = {"AVERAGE_POOL_2D": Versions(2)}

    @classmethod
    def otherwise(cls, node: OnnxNode) -> Value | list[Value]:
        """Three dimensions, dilation, partial windows in which padding counts."""
        windows = SlidingWindow.of(
            node, node.input(0).type.shape[2:], node.attrs["kernel_shape"]
        )
        if (
            len(windows.size) == 3
            and not any(map(any, windows.pads))
            and set(windows.dilation) == {1}
        ):
            node.attrs.ignore("count_include_pad")
            return pool_in_planes(node, windows, cls.from_onnx)
        return average_by_taps(node, windows)

    def is_mean(self, x: TensorType) -> bool:
        """Whether it is one mean of the whole image.

        In int8 `Mean` is that too, with a scale of its own.
        """
        return self.kernel == x.shape[1:3] and not any(self.pads) and self.act == "none"

    def counts(self, x: TensorType) -> Array:
        """[1, OH, OW, 1]: how many elements each window holds."""
        ones = np.ones((1, x.shape[1], x.shape[2], 1), np.int64)
        return np.asarray(self.windows(ones, 1 if self.count_pads else 0).sum((4, 5)))

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Float sums in float32; int8 sums exact. TFLite's reference AveragePool."""
        count = self.counts(xt[0])
        if not yt[0].is_quantized:
            total = self.windows(x[0], 0).sum((4, 5), dtype=np.float32)
            return [
                clamp_float(
                    (total / count.astype(np.float32)).astype(np.float32), self.act
                )
            ]
        if self.even and self.is_mean(xt[0]):
            return _WHOLE.ref(x, xt, yt)
        if self.even:
            return [self._even(x[0], xt[0], yt[0], count.astype(np.float32))]
        zero = yt[0].zero_point if self.count_pads else 0
        total = self.windows(x[0].astype(np.int64), zero).sum((4, 5))
        upwards = (total + count // 2) // count
        away = np.sign(total) * ((np.abs(total) + count // 2) // count)
        y = upwards if self.uint8 else away
        return [np.clip(y, *activation_range(self.act, yt[0])).astype(yt[0].np_dtype)]

    def _even(self, x: Array, xt: TensorType, yt: TensorType, count: Array) -> Array:
        """Sums row by row; the zero point, of uint8 if it was that, is a part of what
        is rounded.
        """
        windows = self.windows(dequantize(x, xt), 0)
        total = windows[..., 0, 0].copy()
        for i, j in list(np.ndindex(*self.kernel))[1:]:
            total += windows[..., i, j]
        steps = (total / count) / np.float32(yt.scale) + np.float32(
            yt.zero_point + self._shift
        )
        y = np.rint(steps).astype(np.int64) - self._shift
        return np.asarray(
            np.clip(y, *activation_range(self.act, yt)).astype(yt.np_dtype)
        )

    @property
    def _shift(self) -> int:
        return 128 if self.uint8 else 0

    @classmethod
    def with_onnx_attrs(cls, spec: _PoolOp, node: OnnxNode) -> _PoolOp:
        """count_include_pad matters only when there is padding."""
        count = bool(node.attrs.get("count_include_pad", 0)) and any(spec.pads)
        return replace(spec, count_pads=count)  # type: ignore[call-arg]

    def with_tflite_attrs(self, op: TfliteOp) -> _PoolOp:
        """Which of the two roundings."""
        return replace(self, uint8=op.uint8)

    def tflite_needs_uint8(self, op: Op) -> bool:
        """The rounding."""
        return self.uint8 and not self.even

    def as_tflite(self) -> OpDef:
        """Its int8 kernel."""
        return replace(self, even=False, uint8=False) if self.even else self

    def tflite_padding(self, op: Op) -> int | None:
        """TFLite leaves padding out of the mean."""
        return None if self.count_pads else super().tflite_padding(op)

    def c(self, op: Op) -> KernelCall:
        """That of a mean where it is one to onnxruntime."""
        if self.even and self.is_mean(op.inputs[0].type):
            return _WHOLE.c(op)
        return super().c(op)

    def c_fields(self, y: TensorType) -> dict[str, int | float]:
        """Both attributes, and what counted padding is."""
        zero = y.zero_point if self.count_pads and y.is_quantized else 0
        if self.even and y.is_quantized:
            even = {"scale": float(y.scale), "shift": self._shift}
            return {"count_pads": int(self.count_pads), "pad": y.zero_point, **even}
        return {
            "count_pads": int(self.count_pads),
            "round_up": int(self.uint8),
            "pad": zero,
        }

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Also padding that counts."""
        yield from super().samples()
        spec = cls((3, 3), (1, 1), (1, 1, 1, 1), count_pads=True)
        for type_ in (
            TensorType((1, 4, 5, 6)),
            TensorType((1, 4, 5, 6), "int8", Quant.per_tensor(0.05, -9)),
        ):
            yield Sample(spec, (Arg(type_),), label=f"count_pads_{type_.dtype}")
        x = TensorType((1, 7, 5, 9), "int8", Quant.per_tensor(0.05, -9))
        for uint8 in (False, True):
            for label, spec in (
                ("even", cls((7, 5), (1, 1))),
                ("even_pads", cls((2, 2), (1, 1), (1, 1, 1, 1))),
                (
                    "even_count_pads",
                    cls((2, 4), (1, 1), (1, 1, 1, 1), "relu", count_pads=True),
                ),
            ):
                yield Sample(
                    replace(spec, even=True, uint8=uint8),
                    (Arg(x),),
                    label=f"{label}{'_u8' * uint8}",
                )
        spec = cls((3, 3), (1, 1), (1, 1, 1, 1), uint8=True)
        yield Sample(
            spec,
            (Arg(TensorType((1, 8, 8, 16), "int8", Quant.per_tensor(0.05, -9))),),
            label="u8",
        )
