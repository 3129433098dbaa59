"""TFLite's windows over volumes, and MediaPipe's pools that say where a maximum was:
read as other ops.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from edgec.ir import Builder, OnnxNode, TfliteOp, Value
from edgec.ir.attributes import Attributes
from edgec.ops.activation import Clamp
from edgec.ops.arithmetic import FloorDiv, FloorMod, Maximum
from edgec.ops.binary import Add, Mul
from edgec.ops.cast import Cast
from edgec.ops.common import with_float_weights
from edgec.ops.compare import Greater, Where
from edgec.ops.composed import Composed
from edgec.ops.conv import Conv2D
from edgec.ops.fixed_point import ACTIVATIONS, TFLITE_ACTIVATIONS
from edgec.ops.scatter import ScatterElements
from edgec.ops.shape import Reshape, Transpose, from_nhwc, transpose
from edgec.ops.window import same_pads
from edgec.ops.windows_nd import SlidingWindow

Pair = tuple[int, int]
_LARGEST = 1024
"""Elements of a window: each is once more in the graph."""


@dataclass(frozen=True)
class Conv3D(Composed):
    """A convolution of volumes [N,D,H,W,C] with weights [D,H,W,C,O]; floats alone, as
    in TFLite.
    """

    kind = "conv3d"
    tflite = ("CONV_3D",)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """As ONNX's, of volumes with channels first."""
        b = op.build
        o = op.options
        name = op.outputs[0].name
        x, w, *bias = with_float_weights(op, op.input(0))
        attrs = {
            "strides": (o.strideD, o.strideH, o.strideW),
            "dilations": (o.dilationDFactor, o.dilationHFactor, o.dilationWFactor),
            "auto_pad": ("SAME_UPPER", "VALID")[o.padding],
            "group": x.type.shape[4] // w.type.shape[3],
        }
        inputs = [
            transpose(b, x, (0, 4, 1, 2, 3)),
            transpose(b, w, (4, 3, 0, 1, 2)),
            *bias,
        ]
        y = Conv2D.from_onnx(
            OnnxNode("Conv", name, Attributes(attrs), [*inputs], 1, 1, b)
        )
        act = TFLITE_ACTIVATIONS[o.fusedActivationFunction]
        if act != "none":
            y = b.add(Clamp(*ACTIVATIONS[act]), [y], name)
        b.write(Transpose((0, 2, 3, 4, 1)), [y], op.outputs)


@dataclass(frozen=True)
class _CustomPoolOptions:
    """TfLitePoolParams: the bytes that stand for a custom pool's options. kernel,
    stride: height, width.
    """

    same: bool
    stride: Pair
    kernel: Pair

    @classmethod
    def of(cls, op: TfliteOp) -> _CustomPoolOptions:
        padding, sw, sh, kw, kh, act = struct.unpack("<6i", bytes(op.options)[:24])
        if act:
            raise ValueError(f"a fused activation ({act}) is not supported")
        if min(sw, sh, kw, kh) < 1 or kw * kh > _LARGEST:
            raise ValueError(f"a window of {kh}x{kw} with strides {sh}x{sw}")
        return cls(padding == 1, (sh, sw), (kh, kw))

    def pads(self, size: Pair) -> tuple[Pair, Pair]:
        """Around an image, before and after each dimension."""
        if not self.same:
            return (0, 0), (0, 0)
        top, bottom, left, right = same_pads(size, self.kernel, self.stride, (1, 1))
        return (top, bottom), (left, right)


@dataclass(frozen=True)
class MaxPoolingWithArgmax2D(Composed):
    """The largest element of every window, and its number in the window plus 0.1, a
    float: MediaPipe's.
    """

    kind = "max_pooling_with_argmax_2d"
    tflite = ("custom MaxPoolingWithArgmax2D",)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The elements of the window one after the other; of equal ones the first."""
        b, x, (values, indices), pool = (
            op.build,
            op.input(0),
            op.outputs,
            _CustomPoolOptions.of(op),
        )
        (_, h, w, _), (_, *out, _) = x.type.shape, values.type.shape
        windows = SlidingWindow(
            (h, w),
            pool.kernel,
            pool.stride,
            (1, 1),
            pool.pads((h, w)),
            (out[0], out[1]),
        )
        padded = windows.padded(b, from_nhwc(b, x), -np.inf, values.name)
        best = None
        where = None
        for i, at in enumerate(windows.taps()):
            tap = windows.tap(b, padded, at, values.name)
            if best is None or where is None:
                best = tap
                where = b.const(np.full(tap.type.shape, 0.1, np.float32), indices.name)
                continue
            larger = b.add(Greater(), [tap, best], indices.name)
            place = b.const(np.array(i + 0.1, np.float32), indices.name)
            where = b.add(Where(), [larger, place, where], indices.name)
            best = b.add(Maximum(), [best, tap], values.name)
        assert best is not None
        assert where is not None
        for v, y in ((best, values), (where, indices)):
            b.write(Transpose((0, 2, 3, 1)), [v], [y])


@dataclass(frozen=True)
class MaxUnpooling2D(Composed):
    """Elements put back where MaxPoolingWithArgmax2D found them, zeros between."""

    kind = "max_unpooling_2d"
    tflite = ("custom MaxUnpooling2D",)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """One scatter.

        MediaPipe's indices, floats, count within a window; TensorFlow's, int32, within
        an image.
        """
        b = op.build
        x = op.input(0)
        index = op.input(1)
        out = op.outputs[0]
        n, h, w, c = x.type.shape
        size = out.type.shape[1:3]
        batch, y, at, channel = np.indices((n, h, w, c))
        place = Cast("int64")
        if index.type.dtype == "float32":
            pool = _CustomPoolOptions.of(op)
            if size != (h * pool.kernel[0], w * pool.kernel[1]) or any(
                s > k for s, k in zip(pool.stride, pool.kernel, strict=True)
            ):
                raise ValueError(
                    f"{x.type} to {out.type} by windows {pool.kernel} with strides "
                    f"{pool.stride}"
                )
            rows = y * pool.stride[0]
            columns = at * pool.stride[1]
            first = ((batch * size[0] + rows) * size[1] + columns) * c + channel
            index = cls._within(
                b, b.add(place, [index], out.name), pool.kernel[1], size[1], c
            )
        else:
            first = batch * size[0] * size[1] * c
            index = b.add(place, [index], out.name)
        where = b.add(
            Add(), [index, b.const(first.astype(np.int64), "windows")], out.name
        )
        zeros = b.const(np.zeros(out.type.size, np.float32), f"{out.name}_zeros")
        flat = [b.add(Reshape((x.type.size,)), [v], out.name) for v in (where, x)]
        b.write(
            Reshape(out.type.shape),
            [b.add(ScatterElements("none", 0), [zeros, *flat], out.name)],
            [out],
        )

    @staticmethod
    def _within(
        b: Builder, index: Value, kernel: int, width: int, channels: int
    ) -> Value:
        """Elements from the first of a window to that of a number, in an image of this
        width.
        """

        def whole(number: int) -> Value:
            return b.const(np.array(number, np.int64), "n")

        rows = b.add(FloorDiv(), [index, whole(kernel)])
        columns = b.add(FloorMod(), [index, whole(kernel)])
        down = b.add(Mul(), [rows, whole(width * channels)])
        return b.add(Add(), [down, b.add(Mul(), [columns, whole(channels)])])
