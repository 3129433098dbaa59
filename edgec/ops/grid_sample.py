"""Sampling of an image at computed places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    Struct,
    TensorType,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.common import real_types
from edgec.ops.resampling import cubic_weight
from edgec.ops.shape import Reshape, from_nhwc, to_nhwc
from edgec.ops.slice import Slice
from edgec.ops.unary import Abs, Round

_TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
_ONNX_MODES = {"linear": "bilinear", "cubic": "bicubic"}
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75
_F = np.float32
_BEYOND = 4
"""A place this many pixels outside sees nothing but border; farther ones are brought
here.
"""


@dataclass(frozen=True)
class GridSample(OpDef):
    """Image [N,H,W,C] at the places [N,OH,OW,2] of a grid (x before y, -1..1 over the
    image) → [N,OH,OW,C].

    With `align_corners` -1 and 1 are the centres of the corner pixels, else their outer
    edges. Rounding is half to even, as torch and onnxruntime have it.
    """

    mode: str = "bilinear"
    padding: str = "zeros"
    align_corners: bool = False

    kind = "grid_sample"
    onnx = ("GridSample",)

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N,OH,OW,C]."""
        image, grid = x
        if (
            image.rank != 4
            or grid.rank != 4
            or grid.shape[3] != 2
            or grid.shape[0] != image.shape[0]
        ):
            raise ValueError(f"image {image} and grid {grid} do not fit")
        if 0 in image.shape[1:3]:
            raise ValueError(f"{image} has no place to sample")
        if self.mode not in _TAPS or self.padding not in _PADDINGS:
            raise ValueError(f"mode {self.mode} with {self.padding} around")
        real_types(self, image, grid, int8=False)
        return (TensorType((*grid.shape[:3], image.shape[3])),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32, a sum over the taps of both axes."""
        image, grid = x
        columns, wx = self._axis(grid[..., 0], image.shape[2])
        rows, wy = self._axis(grid[..., 1], image.shape[1])
        batch = np.arange(image.shape[0])[:, None, None]
        y = np.zeros(yt[0].shape, _F)
        for i, j in np.ndindex(_TAPS[self.mode], _TAPS[self.mode]):
            y = y + image[batch, rows[i], columns[j]] * (wy[i] * wx[j])[..., None]
        return [y]

    def _axis(self, v: Array, size: int) -> tuple[Array, Array]:
        """Indices and weights [taps, N, OH, OW] along one axis."""
        n = _F(size)
        if self.align_corners:
            place = (v + _F(1)) * _F(0.5) * (n - _F(1))
        else:
            place = ((v + _F(1)) * n - _F(1)) * _F(0.5)
        place = np.rint(place) if self.mode == "nearest" else place
        place = self._bounded(place.astype(_F), size)
        first = np.floor(place)
        taps = np.arange(_TAPS[self.mode]).reshape(-1, *(1,) * v.ndim) - (
            self.mode == "bicubic"
        )
        index = first + taps.astype(_F)
        distance = np.abs(place - index)
        if self.mode == "bicubic":
            weight = cubic_weight(distance, _CUBIC)
        else:
            weight = _F(1) - distance
        inside = (index >= 0) & (index < size)
        if self.padding == "zeros":
            weight = np.where(inside, weight, _F(0))
        elif self.padding == "reflection":
            index = self._reflected(index, size)
        return np.clip(index, 0, size - 1).astype(np.int64), weight.astype(_F)

    def _bounded(self, place: Array, size: int) -> Array:
        """A place that can be turned into an index; not-a-number becomes the lower
        bound.
        """
        if self.padding == "reflection":
            place = self._reflected(place, size)
        low = _F(-_BEYOND)
        high = _F(size - 1 + _BEYOND)
        return np.where(place > low, np.minimum(place, high), low).astype(_F)

    def _reflected(self, place: Array, size: int) -> Array:
        """Folded back at the centres or the outer edges of the border pixels, as often
        as needed.
        """
        low, high = (
            (_F(0), _F(size - 1)) if self.align_corners else (_F(-0.5), _F(size - 0.5))
        )
        span = high - low
        if span == 0:
            return np.zeros_like(place)
        beyond = np.where(
            place < low, low - place, np.maximum(place - high, _F(0))
        ).astype(_F)
        with np.errstate(invalid="ignore"):  # places may be infinite or not a number
            turns = np.trunc(beyond / span)
            rest = beyond - turns * span
            even = turns % 2 == 0
        from_low = np.where(even, low + rest, high - rest)
        from_high = np.where(even, high - rest, low + rest)
        return np.where(
            place < low, from_low, np.where(place > high, from_high, place)
        ).astype(_F)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """The image NCHW, the grid as it is."""
        mode = node.attrs.get("mode", "bilinear" if node.opset < 20 else "linear")
        spec = cls(
            _ONNX_MODES.get(mode, mode),
            node.attrs.get("padding_mode", "zeros"),
            bool(node.attrs.get("align_corners", 0)),
        )
        image = node.input(0)
        grid = node.input(1)
        if image.type.rank == 5:
            return _in_volume(node.build, spec, image, grid, node.name)
        if image.type.rank != 4:
            raise ValueError(
                f"image has shape {list(image.type.shape)}; "
                "edgec compiles two or three spatial dimensions"
            )
        return from_nhwc(
            node.build,
            node.build.add(spec, [to_nhwc(node.build, image), grid], node.name),
        )

    def c(self, op: Op) -> KernelCall:
        """ek_grid_sample_f32."""
        (n, ih, iw, ch), (_, oh, ow, _) = (
            op.inputs[0].type.shape,
            op.inputs[1].type.shape,
        )
        spec = Struct(
            "ek_grid_sample_t",
            n=n,
            ih=ih,
            iw=iw,
            c=ch,
            pixels=oh * ow,
            taps=_TAPS[self.mode],
            padding=f"EK_GRID_{self.padding.upper()}",
            align=self.align_corners,
        )
        return KernelCall.of("ek_grid_sample_f32", *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Every mode, padding and alignment, on places far outside too."""
        for mode in _TAPS:
            for padding in _PADDINGS:
                for align in (False, True):
                    image = TensorType((2, 4, 5, 3))
                    grid = TensorType((2, 6, 7, 2))
                    label = f"{mode}_{padding}_{'aligned' if align else 'edges'}"
                    yield Sample(
                        cls(mode, padding, align), (Arg(image), Arg(grid)), label=label
                    )


def _in_volume(
    b: Builder, spec: GridSample, volume: Value, grid: Value, name: str
) -> Value:
    """[N,C,D,H,W] at [N,OD,OH,OW,3]: every plane sampled, times its weight at the
    place's depth, added up.
    """
    if spec.mode == "bicubic" or spec.padding == "reflection":
        raise ValueError(
            f"mode {spec.mode} with {spec.padding} around, of three spatial dimensions"
        )
    n, c, depth, height, width = volume.type.shape
    _, od, oh, ow, _ = grid.type.shape

    def part(first: int, count: int) -> Value:
        cut = b.add(
            Slice((0, 0, 0, 0, first), (n, od, oh, ow, count), (1,) * 5), [grid], name
        )
        return b.add(Reshape((n, od * oh, ow, count)), [cut], name)

    flat = part(0, 2)
    z = part(2, 1)
    factor, shift = (
        ((depth - 1) / 2, (depth - 1) / 2)
        if spec.align_corners
        else (depth / 2, (depth - 1) / 2)
    )
    z = b.add(Mul(), [z, b.const(np.array(factor, _F), "factor")], name)
    z = b.add(Add(), [z, b.const(np.array(shift, _F), "shift")], name)
    if spec.mode == "nearest":
        z = b.add(Round(), [z], name)
    if spec.padding == "border":
        z = b.add(Clamp(0.0, float(depth - 1)), [z], name)
    total: Value | None = None
    for d in range(depth):
        far = b.add(
            Abs(), [b.add(Sub(), [z, b.const(np.array(d, _F), "plane")], name)], name
        )
        near = b.add(
            Sub(),
            [b.const(np.array(1, _F), "one"), b.add(Clamp(None, 1.0), [far], name)],
            name,
        )
        plane = b.add(
            Slice((0, 0, d, 0, 0), (n, c, 1, height, width), (1,) * 5), [volume], name
        )
        image = to_nhwc(b, b.add(Reshape((n, c, height, width)), [plane], name))
        one = b.add(Mul(), [b.add(spec, [image, flat], name), near], name)
        total = one if total is None else b.add(Add(), [total, one], name)
    assert total is not None
    return b.add(Reshape((n, c, od, oh, ow)), [from_nhwc(b, total)], name)
