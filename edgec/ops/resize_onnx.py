"""ONNX's Resize and Upsample, read as the resize op that they are; TFLite's form of it
where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import floor

import numpy as np

from edgec.ir import OnnxNode, OpDef, Sample, TensorType, Value
from edgec.ops.common import axis_of, ints
from edgec.ops.linear_maps import resized
from edgec.ops.resampling import (
    MODES,
    TFLITE_MODES,
    Axis,
    coordinates,
    nearest,
    same_places,
)
from edgec.ops.resize import Resize, ResizeBilinear, ResizeCubic, ResizeNearest
from edgec.ops.shape import from_nhwc, to_nhwc

Scales = list[float]

_OF_ONE_MODE = (
    "nearest_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "keep_aspect_ratio_policy",
)
"""Exporters write these whatever the mode: they are read where the mode has a use for
them.
"""


@dataclass(frozen=True)
class OnnxResize(OpDef):
    """Resize (opset 10 and up) and Upsample of images."""

    kind = "resize"
    onnx = ("Resize", "Upsample")

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """NCHW, or NHWC where the last but one and two dimensions are what changes."""
        x = node.input(0)
        node.attrs.ignore(*_OF_ONE_MODE)
        sizes, scales = _target(node, x.type)
        changed = [
            i
            for i, (d, s) in enumerate(zip(x.type.shape, sizes, strict=True))
            if d != s or scales[i] not in (0, 1)
        ]
        if not changed:
            node.attrs.ignore("mode", "coordinate_transformation_mode", "antialias")
            return x
        if (made := _by_matrices(node, sizes, scales)) is not None:
            return made
        first = 1 if x.type.rank == 4 and set(changed) <= {1, 2} and 1 in changed else 2
        if x.type.rank != 4 or not set(changed) <= {first, first + 1}:
            raise ValueError(
                f"{x.type} to {sizes}; edgec resizes height and width of images"
            )
        pair = slice(first, first + 2)
        axes = [
            Axis(*a)
            for a in zip(
                x.type.shape[pair], sizes[pair], [""] * 2, scales[pair], strict=True
            )
        ]
        spec = _spec(node, axes)
        if isinstance(spec, ResizeBilinear) and x.type.is_quantized:
            spec = replace(spec, cut=True, uint8=x in node.uint8)
        if first == 1:
            return node.build.add(spec, [x], node.name)
        return from_nhwc(
            node.build, node.build.add(spec, [to_nhwc(node.build, x)], node.name)
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None: it is read, and never part of a graph."""
        return iter(())


def _by_matrices(node: OnnxNode, sizes: list[int], scales: Scales) -> Value | None:
    """With a filter, or of a part of the image: what no resize op does."""
    shape = node.input(0).type.shape
    filtered = node.attrs.get("antialias", 0) and any(
        s < d for d, s in zip(shape, sizes, strict=True)
    )
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        given = node.const(1)
        rank = len(shape)
        assert given is not None
        axes = [axis_of(a, rank) for a in node.attrs.get("axes") or range(rank)]
        roi = np.array([0.0] * rank + [1.0] * rank)
        roi[axes], roi[[rank + a for a in axes]] = (
            given[: len(axes)],
            given[len(axes) :],
        )
        return resized(node, sizes, scales, roi)
    return resized(node, sizes, scales, None) if filtered else None


def _target(node: OnnxNode, x: TensorType) -> tuple[list[int], Scales]:
    """The output's shape, and the scales that the coordinates divide by (0: the ratio
    of sizes).
    """
    axes = [axis_of(a, x.rank) for a in node.attrs.get("axes") or range(x.rank)]
    dims = [x.shape[a] for a in axes]
    sizes, scales = _given(node)
    if sizes is not None:
        policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
        scales = [0.0] * len(sizes)
        if policy != "stretch":
            ratios = [s / d for s, d in zip(sizes, dims, strict=True)]
            scales = [min(ratios) if policy == "not_larger" else max(ratios)] * len(
                sizes
            )
            sizes = [floor(scales[0] * d + 0.5) for d in dims]
    else:
        assert scales is not None
        sizes = [
            int(np.floor(np.float32(d) * np.float32(s)))
            for d, s in zip(dims, scales, strict=True)
        ]
    shape = list(x.shape)
    divisors = [0.0] * x.rank
    for axis, size, scale in zip(axes, sizes, scales, strict=True):
        shape[axis] = size
        exact = np.float32(size) / np.float32(x.shape[axis]) == np.float32(scale)
        divisors[axis] = 0.0 if exact else scale
    return shape, divisors


def _given(node: OnnxNode) -> tuple[list[int] | None, Scales | None]:
    """The sizes or the scales of the node, which opsets give in different places."""
    if node.op_type == "Upsample" and node.opset < 9:
        return None, [float(s) for s in node.attrs["scales"]]
    simple = node.opset < 11
    scales = node.const(1 if simple else 2)
    sizes = None if simple else ints(node.const(3))
    if sizes:
        return sizes, None
    if scales is None or scales.size == 0:
        raise ValueError("neither scales nor sizes are given")
    return None, [float(s) for s in scales.reshape(-1)]


def _spec(node: OnnxNode, axes: list[Axis]) -> Resize:
    """The op of the node's mode."""
    old = node.opset < 11
    kind = node.attrs.get("mode", "nearest")
    mode = "onnx_" + (
        "asymmetric"
        if old
        else node.attrs.get("coordinate_transformation_mode", "half_pixel")
    )
    if mode not in MODES:
        raise ValueError(f"coordinate_transformation_mode {mode.removeprefix('onnx_')}")
    axes = [replace(a, mode=mode) for a in axes]
    size = (axes[0].out, axes[1].out)
    scale = (axes[0].scale, axes[1].scale)
    if kind == "nearest":
        # opset 10 left the rounding open; onnxruntime rounds down when it enlarges and
        # up when it shrinks
        if old:
            rounding = "floor"
        else:
            rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
        if old and any(a.out < a.size for a in axes):
            rounding = "ceil"
        same = _tflite_mode(
            axes,
            lambda a, b: bool((nearest(a, rounding) == nearest(b, rounding)).all()),
        )
        if same:
            return ResizeNearest(size, same)
        return ResizeNearest(size, mode, scale, rounding)
    if kind in ("linear", "bilinear"):
        same = _tflite_mode(axes, _same_line)
        return ResizeBilinear(size, same) if same else ResizeBilinear(size, mode, scale)
    if kind == "cubic":
        outside = bool(node.attrs.get("exclude_outside", 0))
        return ResizeCubic(
            size, mode, scale, node.attrs.get("cubic_coeff_a", -0.75), outside
        )
    raise ValueError(f"mode {kind}")


def _tflite_mode(axes: list[Axis], same: Callable[[Axis, Axis], bool]) -> str | None:
    """TFLite's name for what an ONNX mode does to these sizes."""
    fits = (
        m
        for m in TFLITE_MODES
        if all(same(a, replace(a, mode=m, scale=0.0)) for a in axes)
    )
    return next(fits, None)


def _same_line(a: Axis, b: Axis) -> bool:
    """Whether two modes interpolate at the same places."""
    return same_places(
        *(np.clip(coordinates(axis), 0, axis.size - 1) for axis in (a, b))
    )
