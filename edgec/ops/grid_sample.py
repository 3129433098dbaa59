"""Sampling of images and volumes at computed places.

Semantics: ONNX GridSample, which is PyTorch's grid_sample (spatial transformer
networks, Jaderberg et al. 2015, arXiv:1506.02025).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    TensorType,
    Value,
)
from edgec.ir.c_structs import GridSampleParams
from edgec.ir.opdef import Arg
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.common import float_kernel, real_types
from edgec.ops.resampling import cubic_weight
from edgec.ops.shape import Reshape, from_nhwc, to_nhwc
from edgec.ops.slice import Slice
from edgec.ops.unary import Abs, Round

_GRID_SAMPLE = float_kernel("grid_sample", "ek_grid_sample.h")

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""Pixels along each axis that a sample is computed from."""
_ONNX_MODES = {"linear": "bilinear", "cubic": "bicubic"}
"""Names of the modes since opset 20, and those before it."""
_PADDINGS = ("zeros", "border", "reflection")
"""ONNX's padding_mode."""
CUBIC_COEFFICIENT = -0.75
"""Coefficient of Keys' cubic kernel in PyTorch and ONNX."""
_F = np.float32
MAX_PIXELS_OUTSIDE = 4
"""Pixels outside of the image from which on a place sees only the border; farther
places are moved here, so that they can be turned into an index.
"""


@dataclass(frozen=True)
class GridSample(OpDef):
    """An image [N, H, W, C] sampled at the places [N, OH, OW, 2] of a grid.

    A place is (x, y), each -1..1 over the image; the output is [N, OH, OW, C]. Rounding
    is half to even, as PyTorch and onnxruntime round.

    Attributes:
        mode: nearest, bilinear or bicubic
        padding: border outside of the image: zeros, border (its edge) or reflection
        align_corners: whether -1 and 1 are the centres of the corner pixels, or their
            outer edges
    """

    mode: str = "bilinear"
    padding: str = "zeros"
    align_corners: bool = False

    kind = "grid_sample"
    onnx = ("GridSample",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the sampled image [N, OH, OW, C].

        Raises ValueError when image and grid do not fit, for an image without pixels
        and for unknown modes.
        """
        image, grid = x
        is_fitting = image.rank == grid.rank == 4
        is_fitting = is_fitting and grid.shape[3] == 2
        if not is_fitting or grid.shape[0] != image.shape[0]:
            raise ValueError(f"image {image} and grid {grid} do not fit")

        if 0 in image.shape[1:3]:
            raise ValueError(f"{image} has no place to sample")

        if self.mode not in TAPS or self.padding not in _PADDINGS:
            raise ValueError(f"mode {self.mode} with {self.padding} around")

        real_types(self, image, grid, int8=False)

        return (TensorType((*grid.shape[:3], image.shape[3])),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute Σ w_y[i] w_x[j] image[row i, column j] over the taps, in float32."""
        image, grid = x
        n, height, width, _ = image.shape
        columns, column_weights = self._axis(grid[..., 0], width)
        rows, row_weights = self._axis(grid[..., 1], height)

        # Each image has a grid of its own.
        batch = np.arange(n)[:, None, None]

        y = np.zeros(yt[0].shape, _F)
        taps = TAPS[self.mode]
        for i, j in np.ndindex(taps, taps):
            weight = (row_weights[i] * column_weights[j])[..., None]
            y = y + image[batch, rows[i], columns[j]] * weight

        return [y]

    def _axis(self, v: Array, size: int) -> tuple[Array, Array]:
        """Return pixel indices and weights [taps, N, OH, OW] along one axis.

        v: grid coordinates along the axis. size: pixels of the image along it.
        """
        place = self._place(v, size)

        # The first tap is the pixel at or before the place; cubic has one more before.
        first = np.floor(place)
        taps = np.arange(TAPS[self.mode]).reshape(-1, *(1,) * v.ndim)
        if self.mode == "bicubic":
            taps = taps - 1

        index = first + taps.astype(_F)

        # Weights depend on the distance between place and pixel.
        distance = np.abs(place - index)
        if self.mode == "bicubic":
            weight = cubic_weight(distance, CUBIC_COEFFICIENT)
        else:
            weight = _F(1) - distance

        # Taps outside count nothing, or are pixels inside.
        if self.padding == "zeros":
            is_inside = (index >= 0) & (index < size)
            weight = np.where(is_inside, weight, _F(0))
        elif self.padding == "reflection":
            index = self._reflected(index, size)

        return np.clip(index, 0, size - 1).astype(np.int64), weight.astype(_F)

    def _place(self, v: Array, size: int) -> Array:
        """Return grid coordinates as float32 pixels, within reach of the image.

        v: grid coordinates -1..1. size: pixels along the axis.
        """
        # From -1..1 to pixels.
        n = _F(size)
        if self.align_corners:
            place = (v + _F(1)) * _F(0.5) * (n - _F(1))
        else:
            place = ((v + _F(1)) * n - _F(1)) * _F(0.5)

        if self.mode == "nearest":
            place = np.rint(place)

        return self._bounded(place.astype(_F), size)

    def _bounded(self, place: Array, size: int) -> Array:
        """Return places that can be turned into an index.

        A place that is not a number becomes the lower bound.
        """
        if self.padding == "reflection":
            place = self._reflected(place, size)

        low = _F(-MAX_PIXELS_OUTSIDE)
        high = _F(size - 1 + MAX_PIXELS_OUTSIDE)
        bounded = np.minimum(place, high)

        return np.where(place > low, bounded, low).astype(_F)

    def _reflected(self, place: Array, size: int) -> Array:
        """Return places folded back into the image, as often as needed.

        They are folded at the centres of the border pixels with `align_corners`, else
        at their outer edges.
        """
        if self.align_corners:
            low, high = _F(0), _F(size - 1)
        else:
            low, high = _F(-0.5), _F(size - 0.5)

        span = high - low
        if span == 0:
            return np.zeros_like(place)

        is_low = place < low
        is_high = place > high
        above = np.maximum(place - high, _F(0))
        beyond = np.where(is_low, low - place, above).astype(_F)

        # Places may be infinite or not a number.
        with np.errstate(invalid="ignore"):
            turns = np.trunc(beyond / span)
            remainder = beyond - turns * span
            is_even = turns % 2 == 0

        # An even number of turns ends on the side where the place left the image.
        upwards = low + remainder
        downwards = high - remainder
        from_low = np.where(is_even, upwards, downwards)
        from_high = np.where(is_even, downwards, upwards)
        inner = np.where(is_high, from_high, place)

        return np.where(is_low, from_low, inner).astype(_F)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read GridSample: the image NCHW (or a volume NCDHW), the grid as it is.

        Opset 20 renamed the modes.
        """
        b = node.build
        mode = node.attrs.get("mode", "bilinear" if node.opset < 20 else "linear")
        spec = cls(
            mode=_ONNX_MODES.get(mode, mode),
            padding=node.attrs.get("padding_mode", "zeros"),
            align_corners=bool(node.attrs.get("align_corners", 0)),
        )
        image = node.input(0)
        grid = node.input(1)
        if image.type.rank == 5:
            return _Volume(b, spec, node.name).sample(image, grid)

        if image.type.rank != 4:
            raise ValueError(
                f"image has shape {list(image.type.shape)}; "
                "edgec compiles two or three spatial dimensions"
            )

        # The grid is [N, OH, OW, 2] in any layout.
        y = b.add(spec, [to_nhwc(b, image), grid], node.name)

        return from_nhwc(b, y)

    def c(self, op: Op) -> KernelCall:
        """Return ek_grid_sample_f32."""
        n, height, width, channels = op.inputs[0].type.shape
        _, out_height, out_width, _ = op.inputs[1].type.shape
        spec = GridSampleParams(
            n=n,
            ih=height,
            iw=width,
            c=channels,
            pixels=out_height * out_width,
            taps=TAPS[self.mode],
            padding=f"EK_GRID_{self.padding.upper()}",
            align=self.align_corners,
        )

        return KernelCall.of(_GRID_SAMPLE, *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield every mode, padding and alignment.

        The random grid has places far outside of the image too.
        """
        image = Arg(TensorType((2, 4, 5, 3)))
        grid = Arg(TensorType((2, 6, 7, 2)))
        alignments = {"edges": False, "aligned": True}
        for mode, padding, name in product(TAPS, _PADDINGS, alignments):
            spec = cls(mode, padding, alignments[name])
            label = f"{mode}_{padding}_{name}"
            yield Sample(spec, (image, grid), label=label)


@dataclass(frozen=True)
class _Volume:
    """GridSample of a volume, read as samples of its planes.

    y = Σ_d max(1 - |z - d|, 0) plane_d(x, y), where z is the place's depth in pixels.

    Attributes:
        spec: the sampling of a plane
        name: of the values of the graph
    """

    build: Builder
    spec: GridSample
    name: str

    def sample(self, volume: Value, grid: Value) -> Value:
        """Return [N, C, D, H, W] sampled at [N, OD, OH, OW, (x, y, z)]."""
        b = self.build
        spec = self.spec
        if spec.mode == "bicubic" or spec.padding == "reflection":
            raise ValueError(
                f"mode {spec.mode} with {spec.padding} around, of three spatial dimensions"
            )

        n, channels, depth, _, _ = volume.type.shape
        _, *size, _ = grid.type.shape

        # x and y sample a plane, z weights it.
        flat_grid = self._coordinates(grid, 0, 2)
        z = self._depth(self._coordinates(grid, 2, 1), depth)
        total: Value | None = None
        for number in range(depth):
            weight = self._weight(z, number)
            image = self._plane(volume, number)
            sampled = b.add(spec, [image, flat_grid], self.name)
            weighted = b.add(Mul(), [sampled, weight], self.name)
            if total is None:
                total = weighted
            else:
                total = b.add(Add(), [total, weighted], self.name)

        assert total is not None

        return b.add(Reshape((n, channels, *size)), [from_nhwc(b, total)], self.name)

    def _coordinates(self, grid: Value, first: int, count: int) -> Value:
        """Return some of the grid's coordinates as a grid [N, OD * OH, OW, count].

        The depths of the output are rows of one tall grid.
        """
        n, depth, height, width, _ = grid.type.shape
        cut = Slice(
            begin=(0, 0, 0, 0, first),
            shape=(n, depth, height, width, count),
            step=(1,) * 5,
        )
        coordinates = self.build.add(cut, [grid], self.name)
        flat = Reshape((n, depth * height, width, count))

        return self.build.add(flat, [coordinates], self.name)

    def _depth(self, z: Value, depth: int) -> Value:
        """Return the depths -1..1 of the places in planes, as `GridSample._place`."""
        b = self.build

        # The depth -1..1 is scaled as rows and columns are.
        shift = (depth - 1) / 2
        factor = shift if self.spec.align_corners else depth / 2
        z = b.add(Mul(), [z, b.const(np.array(factor, _F), "factor")], self.name)
        z = b.add(Add(), [z, b.const(np.array(shift, _F), "shift")], self.name)
        if self.spec.mode == "nearest":
            z = b.add(Round(), [z], self.name)

        if self.spec.padding == "border":
            z = b.add(Clamp(0.0, float(depth - 1)), [z], self.name)

        return z

    def _weight(self, z: Value, number: int) -> Value:
        """Return the weight 1 - min(|z - number|, 1) of a plane."""
        b = self.build
        plane = b.const(np.array(number, _F), "plane")
        difference = b.add(Sub(), [z, plane], self.name)
        distance = b.add(Abs(), [difference], self.name)
        one = b.const(np.array(1, _F), "one")

        # Planes further away than a pixel count nothing.
        clamped = b.add(Clamp(None, 1.0), [distance], self.name)

        return b.add(Sub(), [one, clamped], self.name)

    def _plane(self, volume: Value, number: int) -> Value:
        """Return a plane of the volume as an NHWC image.

        It is cut from NCDHW.
        """
        n, channels, _, height, width = volume.type.shape
        cut = Slice(
            begin=(0, 0, number, 0, 0),
            shape=(n, channels, 1, height, width),
            step=(1,) * 5,
        )
        plane = self.build.add(cut, [volume], self.name)
        flat = Reshape((n, channels, height, width))

        return to_nhwc(self.build, self.build.add(flat, [plane], self.name))
