"""TFLite's convolution of volumes and MediaPipe's pools with indices, as other ops.

Semantics: TFLite CONV_3D; MediaPipe's custom ops MaxPoolingWithArgmax2D and
MaxUnpooling2D (mediapipe/util/tflite/operations).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from edgec.ir import Array, Builder, OnnxNode, TensorType, TfliteOp, Value
from edgec.ir.attributes import Attributes
from edgec.ops.arithmetic import FloorDiv, FloorMod, Maximum
from edgec.ops.binary import Add, Mul
from edgec.ops.cast import Cast
from edgec.ops.common import with_float_weights
from edgec.ops.compare import Greater, Where
from edgec.ops.compositions import Composed
from edgec.ops.conv import Conv2D
from edgec.ops.fused_activation import write_activated
from edgec.ops.scatter import ScatterElements
from edgec.ops.shape import Reshape, Transpose, from_nhwc, transpose
from edgec.ops.window import same_pads
from edgec.ops.windows_nd import SlidingWindow

Pair = tuple[int, int]
"""(vertical, horizontal), in pixels."""
MAX_WINDOW_ELEMENTS = 1024
"""The largest window of a custom pool: each element is a slice of the graph."""


@dataclass(frozen=True)
class Conv3D(Composed):
    """A convolution of volumes [N, D, H, W, C] with weights [D, H, W, C, O].

    It has floats alone, as in TFLite.
    """

    kind = "conv3d"
    tflite = ("CONV_3D",)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read CONV_3D as ONNX's Conv of volumes with the channels first."""
        b = op.build
        options = op.options
        name = op.outputs[0].name
        x, weights, *bias = with_float_weights(op, op.input(0))
        attrs = {
            "strides": (options.strideD, options.strideH, options.strideW),
            "dilations": (
                options.dilationDFactor,
                options.dilationHFactor,
                options.dilationWFactor,
            ),
            "auto_pad": ("SAME_UPPER", "VALID")[options.padding],
            "group": x.type.shape[4] // weights.type.shape[3],
        }

        # ONNX has the channels before the volume.
        image = transpose(b, x, (0, 4, 1, 2, 3))
        kernel = transpose(b, weights, (4, 3, 0, 1, 2))
        inputs: list[Value | None] = [image, kernel, *bias]
        node = OnnxNode("Conv", name, Attributes(attrs), inputs, 1, 1, b)
        y = Conv2D.from_onnx(node)

        # ONNX's Conv has no activation.
        write_activated(op, Transpose((0, 2, 3, 4, 1)), [y])


@dataclass(frozen=True)
class _CustomPoolOptions:
    """The options of MediaPipe's custom pools: the C struct TfLitePoolParams.

    Attributes:
        same: whether the padding is SAME (1), not VALID (2)
        stride, kernel: (vertical, horizontal), in pixels
    """

    same: bool
    stride: Pair
    kernel: Pair

    @classmethod
    def of(cls, op: TfliteOp) -> _CustomPoolOptions:
        """Return the options of a custom operator.

        The struct is int32 padding, stride x, stride y, width, height, activation.
        Raises ValueError for an activation and for windows that edgec does not read.
        """
        fields = struct.unpack("<6i", bytes(op.options)[:24])
        padding, stride_x, stride_y, width, height, act = fields
        if act:
            raise ValueError(f"a fused activation ({act}) is not supported")

        # The struct comes from a file and may hold anything.
        is_positive = min(stride_x, stride_y, width, height) >= 1
        if not is_positive or width * height > MAX_WINDOW_ELEMENTS:
            raise ValueError(
                f"a window of {height}x{width} with strides {stride_y}x{stride_x}"
            )

        return cls(padding == 1, (stride_y, stride_x), (height, width))

    def pads(self, size: Pair) -> tuple[Pair, Pair]:
        """Return the (before, after) pads of each dimension of an image.

        size: (height, width) of the image.
        """
        if not self.same:
            return (0, 0), (0, 0)

        pads = same_pads(size, self.kernel, self.stride, (1, 1))
        top, bottom, left, right = pads

        return (top, bottom), (left, right)


@dataclass(frozen=True)
class MaxPoolingWithArgmax2D(Composed):
    """The largest element of each window, and its number in the window.

    The number is a float32, the element's row-major place plus 0.1, as MediaPipe has
    it.
    """

    kind = "max_pooling_with_argmax_2d"
    tflite = ("custom MaxPoolingWithArgmax2D",)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the pool as a chain of maxima over the window's elements.

        Of equal elements the first counts.
        """
        b = op.build
        x = op.input(0)
        values, indices = op.outputs
        pool = _CustomPoolOptions.of(op)
        _, height, width, _ = x.type.shape
        _, out_height, out_width, _ = values.type.shape
        windows = SlidingWindow(
            size=(height, width),
            kernel=pool.kernel,
            stride=pool.stride,
            dilation=(1, 1),
            pads=pool.pads((height, width)),
            out=(out_height, out_width),
        )
        padded = windows.padded(b, from_nhwc(b, x), -np.inf, values.name)

        taps = enumerate(windows.taps())
        _, first = next(taps)
        best = windows.tap(b, padded, first, values.name)
        first_places = np.full(best.type.shape, 0.1, np.float32)
        best_place = b.const(first_places, indices.name)
        for i, at in taps:
            tap = windows.tap(b, padded, at, values.name)

            # A strict comparison, so that the first of equal elements counts.
            is_larger = b.add(Greater(), [tap, best], indices.name)
            place = b.const(np.array(i + 0.1, np.float32), indices.name)
            chosen = [is_larger, place, best_place]
            best_place = b.add(Where(), chosen, indices.name)
            best = b.add(Maximum(), [best, tap], values.name)

        to_nhwc = Transpose((0, 2, 3, 1))
        b.write(to_nhwc, [best], [values])
        b.write(to_nhwc, [best_place], [indices])


@dataclass(frozen=True)
class MaxUnpooling2D(Composed):
    """The inverse of MaxPoolingWithArgmax2D: elements put back, zeros elsewhere."""

    kind = "max_unpooling_2d"
    tflite = ("custom MaxUnpooling2D",)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the op as one scatter into zeros.

        MediaPipe's indices, floats, count within a window; TensorFlow's, int32, within
        an image. The number of the first element of the window or image is added.
        """
        b = op.build
        x = op.input(0)
        index = op.input(1)
        out = op.outputs[0]
        name = out.name
        if index.type.dtype == "float32":
            pool = _CustomPoolOptions.of(op)
            cls._check_size(op, pool)
            firsts = cls._window_starts(x.type, out.type, pool.stride)
            whole = b.add(Cast("int64"), [index], name)
            _, _, width, channels = out.type.shape
            index = cls._within(b, whole, pool.kernel[1], width, channels)
        else:
            _, height, width, channels = out.type.shape
            batch = np.indices(x.type.shape)[0]
            firsts = batch * height * width * channels
            index = b.add(Cast("int64"), [index], name)

        # Added to the place within the window or image.
        starts = b.const(firsts.astype(np.int64), "windows")
        places = b.add(Add(), [index, starts], name)
        zeros = b.const(np.zeros(out.type.size, np.float32), f"{name}_zeros")
        flatten = Reshape((x.type.size,))
        flat_places = b.add(flatten, [places], name)
        flat_x = b.add(flatten, [x], name)
        scatter = ScatterElements("none", 0)
        scattered = b.add(scatter, [zeros, flat_places, flat_x], name)
        b.write(Reshape(out.type.shape), [scattered], [out])

    @staticmethod
    def _check_size(op: TfliteOp, pool: _CustomPoolOptions) -> None:
        """Raise ValueError unless the output is the input times the window.

        Windows must not leave pixels between them either.
        """
        x = op.input(0).type
        out = op.outputs[0].type

        # Every window must have its own pixels.
        size = (x.shape[1] * pool.kernel[0], x.shape[2] * pool.kernel[1])
        has_gaps = any(s > k for s, k in zip(pool.stride, pool.kernel, strict=True))
        if out.shape[1:3] != size or has_gaps:
            raise ValueError(
                f"{x} to {out} by windows {pool.kernel} with strides {pool.stride}"
            )

    @staticmethod
    def _window_starts(x: TensorType, out: TensorType, stride: Pair) -> Array:
        """Return for each input element the flat place of its window's first pixel."""
        _, height, width, channels = out.shape
        batch, row, column, channel = np.indices(x.shape)

        # Images lie one after the other, rows in them, pixels in these.
        first_row = batch * height + row * stride[0]
        first_pixel = first_row * width + column * stride[1]
        first_element = first_pixel * channels + channel
        return np.asarray(first_element)

    @staticmethod
    def _within(
        b: Builder,
        index: Value,
        kernel: int,
        width: int,
        channels: int,
    ) -> Value:
        """Return the elements of the output between a window's first pixel and `index`.

        index: row-major number in a window of `kernel` columns. width: of the image.
        """

        def constant(number: int) -> Value:
            return b.const(np.array(number, np.int64), "n")

        # Row and column of the element in its window.
        rows = b.add(FloorDiv(), [index, constant(kernel)])
        columns = b.add(FloorMod(), [index, constant(kernel)])
        down = b.add(Mul(), [rows, constant(width * channels)])
        right = b.add(Mul(), [columns, constant(channels)])

        return b.add(Add(), [down, right])
