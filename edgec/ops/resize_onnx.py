"""ONNX's Resize and Upsample, read as resize ops (in TFLite's mode if one is equal)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import floor, prod

import numpy as np

from edgec.ir import Array, OnnxNode, OpDef, Rounding, Sample, TensorType, Value
from edgec.ops.cast import in_floats
from edgec.ops.common import axis_of, ints
from edgec.ops.linear_maps import resized
from edgec.ops.ranks import as_image
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
from edgec.ops.resize_integers import ResizeIntegers
from edgec.ops.shape import Reshape, transpose
from edgec.ops.unary import Round

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
    """Reads Resize (opset 10 and up) and Upsample; never part of a graph."""

    kind = "resize"
    onnx = ("Resize", "Upsample")

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read the node as resize ops, as matrices, or as nothing.

        Of integers, onnxruntime's kernels copy the nearest element, or cut the sum off
        whose floats or fixed-point numbers ResizeIntegers has. Where it has no kernel,
        floats are rounded, as ONNX's reference does.
        """
        x = node.input(0)
        node.attrs.ignore(*_ATTRIBUTES_OF_ONE_MODE)

        # Sizes of all axes, as the node may name some alone.
        target = _ResizeTarget.of(node)
        changed = target.changed_axes(x.type)
        if not changed:
            node.attrs.ignore("mode", "coordinate_transformation_mode", "antialias")
            return x

        kind = node.attrs.get("mode", "nearest")
        images = _Images.of(x.type.rank, changed, target)
        by_matrices = _has_matrices(node, target)
        is_linear = kind in ("linear", "bilinear")
        is_one_sum = is_linear and len(images.pairs) == 1
        is_direct = not by_matrices and (kind == "nearest" or is_one_sum)
        # Of several sums, only the last one is cut off.
        if x.type.dtype == "float32" or is_direct:
            return _resized(node, target, images)

        def read(real: Value) -> Value:
            inputs = [real, *node.inputs[1:]]
            y = _resized(replace(node, inputs=inputs), target, images)
            if is_linear and not by_matrices:
                return y
            return node.build.add(Round(), [y], node.name)

        return in_floats(node, x, read)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


def _resized(node: OnnxNode, target: _ResizeTarget, images: _Images) -> Value:
    """Return the resized tensor, by a matrix for each axis or by its images.

    Matrices serve antialiased reductions and resizes of a region of the image.
    """
    if _has_matrices(node, target):
        return resized(node, target.sizes, target.scales, _region(node))
    return images.resized(node)


def _has_matrices(node: OnnxNode, target: _ResizeTarget) -> bool:
    """Return whether the node has a region or a filter, which no resize op has."""
    if _has_region(node):
        return True

    # A filter has no effect on an enlargement.
    shape = node.input(0).type.shape
    shrinks = any(s < d for d, s in zip(shape, target.sizes, strict=True))

    return bool(node.attrs.get("antialias", 0)) and shrinks


def _has_region(node: OnnxNode) -> bool:
    """Return whether the node resizes a region of its input."""
    return node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"


def _region(node: OnnxNode) -> Array | None:
    """Return the region of a tf_crop_and_resize: starts, then ends of all axes.

    The input has those of `axes`; other axes are taken whole. None without a region.
    """
    if not _has_region(node):
        return None

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

    def permuted(self, order: Sequence[int]) -> _ResizeTarget:
        """Return the target of a tensor whose axes have another order."""
        sizes = [self.sizes[axis] for axis in order]
        scales = [self.scales[axis] for axis in order]
        return _ResizeTarget(sizes, scales)

    def with_row(self) -> _ResizeTarget:
        """Return the target of [N, C, L] as that of an image of one row."""
        sizes = [*self.sizes[:2], 1, *self.sizes[2:]]
        scales = [*self.scales[:2], 0.0, *self.scales[2:]]
        return _ResizeTarget(sizes, scales)


@dataclass(frozen=True)
class _Images:
    """The images of a tensor, as resize ops compute two neighbouring axes at once.

    Attributes:
        order: axes of the tensor as the images have them, channels last
        has_row: whether [N, C, L] is first made an image of one row
        target: sizes and scales in this order
        pairs: the axes of each resize op, two or one, counted in this order
    """

    order: tuple[int, ...]
    has_row: bool
    target: _ResizeTarget
    pairs: list[tuple[int, ...]]

    @classmethod
    def of(cls, rank: int, changed: set[int], target: _ResizeTarget) -> _Images:
        """Return the images of a tensor of which some axes change.

        Axis 1 is the height of an NHWC image, and the channels of an NCHW one.
        """
        if rank < 3 or not changed.isdisjoint((0, 1)):
            axes = [1, 2] if rank == 4 and changed <= {1, 2} else sorted(changed)
            return cls(tuple(range(rank)), False, target, _pairs(axes, changed))

        # Lines have the form of those of convolutions, so that transposes cancel.
        has_row = rank == 3
        if has_row:
            rank, changed, target = 4, {3}, target.with_row()

        # All axes but N and C count as those of images.
        order = (0, *range(2, rank), 1)
        axes = list(range(1, rank - 1))
        pairs = _pairs(axes, {axis - 1 for axis in changed})

        return cls(order, has_row, target.permuted(order), pairs)

    def resized(self, node: OnnxNode) -> Value:
        """Return the resized input of a node."""
        b = node.build
        x = node.input(0)
        y = as_image(b, x) if self.has_row else x
        is_moved = self.order != tuple(range(len(self.order)))
        if is_moved:
            y = transpose(b, y, self.order)

        for pair in self.pairs:
            y = self._resized_pair(node, y, pair, is_moved)

        # The inverse of the order.
        if is_moved:
            y = transpose(b, y, tuple(np.argsort(self.order).tolist()))
        if self.has_row:
            n, channels, _, length = y.type.shape
            y = b.add(Reshape((n, channels, length)), [y], node.name)

        return y

    def _resized_pair(
        self, node: OnnxNode, x: Value, pair: tuple[int, ...], is_moved: bool
    ) -> Value:
        """Return `x` resized along two neighbouring axes, or along one."""
        b = node.build
        shape = x.type.shape
        sizes = list(shape)
        for axis in pair:
            sizes[axis] = self.target.sizes[axis]

        # What comes before is a batch, and what comes behind are channels.
        places = [Axis(shape[a], sizes[a], "", self.target.scales[a]) for a in pair]
        # One axis alone is an image of one column.
        if len(places) == 1:
            places.append(Axis(1, 1, ""))
        batch = prod(shape[: pair[0]])
        channels = prod(shape[pair[-1] + 1 :])
        image_shape = (batch, places[0].size, places[1].size, channels)

        image = x
        if shape != image_shape:
            image = b.add(Reshape(image_shape), [x], node.name)

        is_nhwc = not is_moved and x.type.rank == 4
        y = b.add(_spec(node, image, places, is_nhwc), [image], node.name)
        if y.type.shape != tuple(sizes):
            y = b.add(Reshape(tuple(sizes)), [y], node.name)

        return y


def _pairs(axes: list[int], changed: set[int]) -> list[tuple[int, ...]]:
    """Return neighbouring axes two by two, from the last on, of which one changes."""
    pairs: list[tuple[int, ...]] = []
    rest = list(axes)
    while rest:
        last = rest.pop()
        # A single axis has no neighbour in front of it.
        pair: tuple[int, ...] = (last,)
        if rest and rest[-1] == last - 1:
            pair = (rest.pop(), last)
        if not changed.isdisjoint(pair):
            pairs.append(pair)

    return pairs


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


def _spec(node: OnnxNode, image: Value, axes: list[Axis], is_nhwc: bool) -> Resize:
    """Return the resize op of the node's mode, for the vertical and horizontal axis.

    is_nhwc: whether the node has the image as the op does. Raises ValueError for modes
    that edgec does not have.
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
        return _linear_spec(node, image, axes, is_nhwc)

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


def _linear_spec(
    node: OnnxNode, image: Value, axes: list[Axis], is_nhwc: bool
) -> Resize:
    """Return the bilinear op, in TFLite's mode if it has the same places.

    The mode of ONNX is kept where TFLite has no equal.
    """
    vertical, horizontal = axes
    size = (vertical.out, horizontal.out)
    scale = (vertical.scale, horizontal.scale)
    is_quantized = image.type.is_quantized
    # The integers of a file's quantized tensors keep their scale.
    if image.type.dtype != "float32" and not is_quantized:
        fixed = is_nhwc and image.type.dtype in ("int8", "uint8")
        return ResizeIntegers(size, vertical.mode, scale, fixed=fixed)

    spec = ResizeBilinear(size, vertical.mode, scale)
    tflite_mode = _tflite_mode(axes, _has_same_places)
    if tflite_mode:
        spec = ResizeBilinear(size, tflite_mode)
    if not is_quantized:
        return spec

    rounding = Rounding.of_onnx(node.input(0) in node.uint8)

    return replace(spec, rounding=rounding, of_integers=True)


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
