"""ONNX's Resize and Upsample, read as resize ops (in TFLite's mode if one is equal)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import floor

import numpy as np

from edgec.ir import Array, OnnxNode, OpDef, Rounding, Sample, TensorType, Value
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
from edgec.ops.resize import Resize, ResizeBilinear, ResizeNearest
from edgec.ops.resize_cubic import ResizeCubic
from edgec.ops.shape import from_nhwc, to_nhwc

Scales = list[float]
"""Output size / input size along each axis."""

_ATTRIBUTES_OF_ONE_MODE = (
    "nearest_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "keep_aspect_ratio_policy",
)
"""Attributes that exporters write whatever the mode is: they are read where the mode
has a use for them.
"""


@dataclass(frozen=True)
class OnnxResize(OpDef):
    """Reads Resize (opset 10 and up) and Upsample of images; never part of a graph."""

    kind = "resize"
    onnx = ("Resize", "Upsample")

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the node as a resize op, as matrices, or as nothing.

        Images are NCHW, or NHWC where height and width are what changes. An integer
        image is computed as onnxruntime's integer kernels do.
        """
        b = node.build
        x = node.input(0)
        node.attrs.ignore(*_ATTRIBUTES_OF_ONE_MODE)

        # Sizes of all axes, as the node may name some alone.
        target = _ResizeTarget.of(node)
        changed = target.changed_axes(x.type)
        if not changed:
            node.attrs.ignore("mode", "coordinate_transformation_mode", "antialias")
            return x

        matrices = _by_matrices(node, target)
        if matrices is not None:
            return matrices

        # Axis 1 is the height of an NHWC image, and the channels of an NCHW one.
        height = 1 if 1 in changed else 2
        width = height + 1
        if x.type.rank != 4 or not changed <= {height, width}:
            raise ValueError(
                f"{x.type} to {target.sizes}; edgec resizes height and width of images"
            )

        # The kernels resize two axes at once.
        spec = _spec(node, [target.axis(x.type, height), target.axis(x.type, width)])
        if isinstance(spec, ResizeBilinear) and x.type.is_quantized:
            rounding = Rounding.of_onnx(x in node.uint8)
            spec = replace(spec, rounding=rounding, of_integers=True)

        if height == 1:
            return b.add(spec, [x], node.name)

        y = b.add(spec, [to_nhwc(b, x)], node.name)

        return from_nhwc(b, y)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


def _by_matrices(node: OnnxNode, target: _ResizeTarget) -> Value | None:
    """Return the resize as a matrix for each axis; None where a resize op has it.

    Matrices serve antialiased reductions and resizes of a region of the image.
    """
    shape = node.input(0).type.shape
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return resized(node, target.sizes, target.scales, _region(node))

    # A filter has no effect on an enlargement.
    shrinks = any(s < d for d, s in zip(shape, target.sizes, strict=True))
    if node.attrs.get("antialias", 0) and shrinks:
        return resized(node, target.sizes, target.scales, None)

    return None


def _region(node: OnnxNode) -> Array:
    """Return the region of a tf_crop_and_resize: starts, then ends of all axes.

    The input has those of `axes`; other axes are taken whole.
    """
    rank = node.input(0).type.rank
    bounds = node.const(1)
    assert bounds is not None
    axes = [axis_of(a, rank) for a in node.attrs.get("axes") or range(rank)]
    region = np.array([0.0] * rank + [1.0] * rank)
    for i, axis in enumerate(axes):
        region[axis] = bounds[i]
        region[rank + axis] = bounds[len(axes) + i]

    return region


@dataclass(frozen=True)
class _ResizeTarget:
    """The target of a resize, with an entry for each axis.

    Attributes:
        sizes: elements of the output
        scales: divisors of coordinates, 0 for the ratio of the sizes
    """

    sizes: list[int]
    scales: Scales

    @classmethod
    def of(cls, node: OnnxNode) -> _ResizeTarget:
        """Return the target of a node, which has sizes or scales of some axes."""
        x = node.input(0).type
        axes = [axis_of(a, x.rank) for a in node.attrs.get("axes") or range(x.rank)]
        dims = [x.shape[axis] for axis in axes]
        sizes, scales = _sizes_or_scales(node)
        if sizes is not None:
            sizes, scales = _with_aspect_ratio(node, sizes, dims)
        else:
            assert scales is not None
            sizes = [_scaled_size(d, s) for d, s in zip(dims, scales, strict=True)]

        # Axes that are not named stay as they are.
        shape = list(x.shape)
        divisors = [0.0] * x.rank
        for axis, size, scale in zip(axes, sizes, scales, strict=True):
            # A scale that is the ratio of the sizes needs no mention.
            ratio = np.float32(size) / np.float32(x.shape[axis])
            divisors[axis] = 0.0 if ratio == np.float32(scale) else scale
            shape[axis] = size

        return cls(shape, divisors)

    def changed_axes(self, x: TensorType) -> set[int]:
        """Return the axes along which the resize is not the identity.

        A scale other than the ratio of the sizes moves the coordinates.
        """
        changed: set[int] = set()
        for axis, size in enumerate(x.shape):
            if self.sizes[axis] != size or self.scales[axis] not in (0, 1):
                changed.add(axis)

        return changed

    def axis(self, x: TensorType, axis: int) -> Axis:
        """Return one axis of the resize, without its mode."""
        return Axis(x.shape[axis], self.sizes[axis], "", self.scales[axis])


def _scaled_size(size: int, scale: float) -> int:
    """Return floor(size * scale) in float32, as onnxruntime computes it."""
    return int(np.floor(np.float32(size) * np.float32(scale)))


def _with_aspect_ratio(
    node: OnnxNode,
    sizes: list[int],
    dims: list[int],
) -> tuple[list[int], Scales]:
    """Return the sizes and scales by ONNX's keep_aspect_ratio_policy.

    "stretch" keeps the sizes; "not_larger" and "not_smaller" give all axes the smallest
    or the largest ratio.
    """
    policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return sizes, [0.0] * len(sizes)

    ratios = [size / d for size, d in zip(sizes, dims, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)

    return [floor(scale * d + 0.5) for d in dims], [scale] * len(sizes)


def _sizes_or_scales(node: OnnxNode) -> tuple[list[int] | None, Scales | None]:
    """Return (sizes, None) or (None, scales) of a node.

    Scales are an attribute of Upsample before opset 9, input 1 before opset 11, and
    input 2 from there on, where input 3 has the sizes.
    """
    if node.op_type == "Upsample" and node.opset < 9:
        return None, [float(s) for s in node.attrs["scales"]]

    if node.opset < 11:
        scales = node.const(1)
    else:
        scales = node.const(2)
        sizes = ints(node.const(3))
        if sizes:
            return sizes, None

    # Resize may have an empty tensor in place of an absent one.
    if scales is None or scales.size == 0:
        raise ValueError("neither scales nor sizes are given")

    return None, [float(s) for s in scales.reshape(-1)]


def _spec(node: OnnxNode, axes: list[Axis]) -> Resize:
    """Return the resize op of the node's mode, for the vertical and horizontal axis.

    Raises ValueError for modes that edgec does not have.
    """
    kind = node.attrs.get("mode", "nearest")
    coordinate_mode = "asymmetric"
    if node.opset >= 11:
        attribute = "coordinate_transformation_mode"
        coordinate_mode = node.attrs.get(attribute, "half_pixel")

    mode = f"onnx_{coordinate_mode}"
    if mode not in MODES:
        raise ValueError(f"coordinate_transformation_mode {coordinate_mode}")

    # The coordinates decide if TFLite has the same resize.
    axes = [replace(axis, mode=mode) for axis in axes]
    if kind == "nearest":
        return _nearest_spec(node, axes)

    if kind in ("linear", "bilinear"):
        return _linear_spec(axes)

    if kind == "cubic":
        return _cubic_spec(node, axes)

    raise ValueError(f"mode {kind}")


def _nearest_spec(node: OnnxNode, axes: list[Axis]) -> ResizeNearest:
    """Return the op of nearest neighbours, in TFLite's mode if it picks the same."""
    # Opset 10 left the rounding open; onnxruntime rounds down when it enlarges and up
    # when it shrinks.
    if node.opset >= 11:
        rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
    elif any(axis.out < axis.size for axis in axes):
        rounding = "ceil"
    else:
        rounding = "floor"

    def picks_same(a: Axis, b: Axis) -> bool:
        return bool((nearest(a, rounding) == nearest(b, rounding)).all())

    vertical, horizontal = axes
    size = (vertical.out, horizontal.out)
    tflite_mode = _tflite_mode(axes, picks_same)
    if tflite_mode:
        return ResizeNearest(size, tflite_mode)

    scale = (vertical.scale, horizontal.scale)

    return ResizeNearest(size, vertical.mode, scale, rounding)


def _linear_spec(axes: list[Axis]) -> ResizeBilinear:
    """Return the bilinear op, in TFLite's mode if it has the same places.

    The mode of ONNX is kept where TFLite has no equal.
    """
    vertical, horizontal = axes
    size = (vertical.out, horizontal.out)
    tflite_mode = _tflite_mode(axes, _has_same_places)
    if tflite_mode:
        return ResizeBilinear(size, tflite_mode)

    return ResizeBilinear(size, vertical.mode, (vertical.scale, horizontal.scale))


def _cubic_spec(node: OnnxNode, axes: list[Axis]) -> ResizeCubic:
    """Return the op of cubic convolution.

    TFLite has no cubic resize.
    """
    vertical, horizontal = axes
    return ResizeCubic(
        size=(vertical.out, horizontal.out),
        mode=vertical.mode,
        scale=(vertical.scale, horizontal.scale),
        coefficient=node.attrs.get("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.attrs.get("exclude_outside", 0)),
    )


def _tflite_mode(axes: list[Axis], same: Callable[[Axis, Axis], bool]) -> str | None:
    """Return TFLite's mode that does the same to these sizes, None if there is none.

    same: whether two axes of different modes give the same result.
    """
    for mode in TFLITE_MODES:
        if all(same(axis, replace(axis, mode=mode, scale=0.0)) for axis in axes):
            return mode

    return None


def _has_same_places(a: Axis, b: Axis) -> bool:
    """Return whether two modes interpolate at the same places inside the image.

    Places are in pixels of the input, clipped to its centres.
    """
    # Places outside see the edge pixel in every mode.
    places_a = np.clip(coordinates(a), 0, a.size - 1)
    places_b = np.clip(coordinates(b), 0, b.size - 1)
    return same_places(places_a, places_b)
