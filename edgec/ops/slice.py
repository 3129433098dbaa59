"""Rectangular parts of a tensor with a step: slices, and splits as several slices.

Semantics: numpy's basic slicing; ONNX Slice and Split; TFLite SLICE, STRIDED_SLICE
(strided_slice_logic.h), REVERSE_V2, SPLIT, SPLIT_V and UNPACK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    ChannelFlow,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, ints
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, size_evidence
from edgec.ops.shape import Reshape, element_strides, gather, reshape_to

Range = tuple[int, int, int]
"""(first element, number of elements, step) along an axis; the step may be negative."""

TFLITE_MAX_RANK = 5
"""Dimensions of TFLite's STRIDED_SLICE kernel."""
_ONE_ROW_REFUSED = 1_209_600
"""Elements of the input of a refused slice, [1,144,8400]; slices of images map at any
size seen.
"""


@dataclass(frozen=True)
class Slice(OpDef):
    """y[i] = x[begin + step * i] for 0 <= i < shape, along every axis.

    Attributes:
        begin: first element along each axis, counted from the front
        shape: number of elements along each axis
        step: elements of x between neighbours, may be negative
    """

    begin: tuple[int, ...]
    shape: tuple[int, ...]
    step: tuple[int, ...]

    kind = "slice"
    any_elements: ClassVar[bool] = True
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES
    onnx = ("Slice",)
    tflite = ("SLICE", "STRIDED_SLICE", "REVERSE_V2")
    edgetpu_versions = {"SLICE": Versions(2), "STRIDED_SLICE": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x with `shape`.

        Raises ValueError when an element that is taken does not exist.
        """
        rank = x[0].rank
        if not len(self.begin) == len(self.shape) == len(self.step) == rank:
            raise ValueError(f"slice of {len(self.begin)} dimensions of {x[0]}")

        for axis, size in enumerate(x[0].shape):
            first = self.begin[axis]
            count = self.shape[axis]
            step = self.step[axis]

            # With a negative step the last element is before the first.
            last = first + step * (count - 1)
            if count and not (0 <= first < size and 0 <= last < size):
                raise ValueError(
                    f"{count} elements from {first} by {step} are not within a dimension of {size}"
                )

        return (x[0].with_shape(self.shape),)

    def index(self) -> tuple[slice, ...]:
        """Return the slice as numpy's index.

        An end below 0 would count from the back: None stands for all to the front.
        """
        index: list[slice] = []
        for first, count, step in zip(self.begin, self.shape, self.step, strict=True):
            end = first + step * count
            index.append(slice(first, end if end >= 0 else None, step))

        return tuple(index)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute numpy's basic slicing."""
        return [np.ascontiguousarray(x[0][self.index()])]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """Return the same ranges on the permuted axes.

        Begin, shape and step of an axis move together.
        """
        # Every axis is cut on its own.
        return Slice(
            begin=tuple(self.begin[axis] for axis in perm),
            shape=tuple(self.shape[axis] for axis in perm),
            step=tuple(self.step[axis] for axis in perm),
        )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Slice; its bounds are attributes before opset 10, then inputs."""
        x = node.input(0)
        if node.opset < 10:
            starts = node.attrs["starts"]
            ends = node.attrs["ends"]
            axes = node.attrs.get("axes")
            steps = None
        else:
            starts, ends, axes, steps = (ints(node.const(i)) for i in range(1, 5))

        if axes is None:
            axes = range(len(starts))

        if steps is None:
            steps = [1] * len(starts)

        # Axes that the node does not name are taken whole.
        ranges: dict[int, Range] = {}
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            place = axis_of(axis, x.type.rank)
            ranges[place] = clamp_range(x.type.shape[place], start, end, step)

        return node.build.add(slice_axes(x.type, ranges), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read SLICE, REVERSE_V2, and STRIDED_SLICE with all its masks.

        The declared output lacks the axes that STRIDED_SLICE shrinks.
        """
        x = op.input(0)
        shape = x.type.shape
        ranges: dict[int, Range] = {}
        if op.name == "REVERSE_V2":
            for number in op.const(1).reshape(-1):
                axis = axis_of(int(number), x.type.rank)
                ranges[axis] = (shape[axis] - 1, shape[axis], -1)
        elif op.name == "SLICE":
            begins, sizes = (op.const(i).reshape(-1).tolist() for i in (1, 2))
            axes = zip(begins, sizes, shape, strict=True)
            for axis, (begin, count, size) in enumerate(axes):
                # A negative size takes all to the end.
                ranges[axis] = (begin, size - begin if count < 0 else count, 1)
        else:
            begin, end, strides = (op.const(i).reshape(-1).tolist() for i in (1, 2, 3))

            # An entry of begin, end and strides belongs to one axis.
            bounds = list(zip(begin, end, strides, strict=True))
            ranges = _StridedSlice(op.options, shape, bounds).ranges()

        write_slice(op.build, x, slice_axes(x.type, ranges), op.outputs[0])

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return STRIDED_SLICE, the form that the Edge TPU compiler was seen to map.

        Version 2 introduced int8. None for ranks above 5.
        """
        if len(self.begin) > TFLITE_MAX_RANK:
            return None

        ends: list[int] = []
        for first, count, step in zip(self.begin, self.shape, self.step, strict=True):
            ends.append(first + step * count)

        # A negative end would count from the back: the mask takes all to the front.
        end_mask = sum(1 << i for i, end in enumerate(ends) if end < 0)
        masks = {
            "beginMask": 0,
            "endMask": end_mask,
            "ellipsisMask": 0,
            "newAxisMask": 0,
            "shrinkAxisMask": 0,
        }

        # Bounds and steps are constant tensors.
        inputs = (
            op.inputs[0],
            np.array(self.begin, np.int32),
            np.array(ends, np.int32),
            np.array(self.step, np.int32),
        )
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        options = ("StridedSliceOptions", masks)

        return TfliteCode("STRIDED_SLICE", options, version, inputs)

    def c(self, op: Op) -> KernelCall:
        """Return a strided gather from the first element on.

        The strides are those of the input, times the steps.
        """
        strides = element_strides(op.inputs[0].type.shape)
        offset = 0
        steps: list[int] = []
        for first, step, stride in zip(self.begin, self.step, strides, strict=True):
            offset += first * stride
            steps.append(step * stride)

        return gather(op, self.shape, steps, offset)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield channel halves, a crop, and steps forwards and backwards.

        Each in float and int8, and some of integers and bools.
        """
        s8 = TensorType((1, 5, 6, 8), "int8", Quant.per_tensor(0.1, 3))
        cases = {
            "channels": cls((0, 0, 0, 4), (1, 5, 6, 4), (1, 1, 1, 1)),
            "crop": cls((0, 1, 2, 0), (1, 3, 4, 8), (1, 1, 1, 1)),
            "steps": cls((0, 0, 1, 0), (1, 3, 3, 3), (1, 2, 2, 3)),
            "backwards": cls((0, 4, 5, 1), (1, 5, 2, 7), (1, -1, -3, 1)),
        }
        for label, spec in cases.items():
            yield Sample(spec, (Arg(TensorType(s8.shape)),), label=label)
            yield Sample(spec, (Arg(s8),), label=f"{label}_s8")

        line = Arg(TensorType((5,), "int64"))
        yield Sample(cls((1,), (2,), (2,)), (line,), label="s64")

        matrix = Arg(TensorType((2, 3), "bool"))
        yield Sample(cls((0, 1), (2, 2), (1, 1)), (matrix,), label="bool")

    @edgetpu_rule(
        fix="slice without a step; a space-to-depth or a strided convolution replaces "
        "a strided slice"
    )
    def _unit_steps(self, op: Op) -> str | None:
        """STRIDED_SLICE: all strides must be 1."""
        return None if set(self.step) <= {1} else f"strides {list(self.step)}"

    @edgetpu_rule(
        fix="slice before the heads are flattened, or end the Edge TPU part at the "
        "separate heads"
    )
    def _slice_length(self, op: Op) -> str | None:
        """STRIDED_SLICE: of a tensor of one row, as [1, n, m], at most 185094 elements;
        refused from 1209600 on.
        """
        x = op.inputs[0].type
        if not one_row(x):
            return None

        evidence = f"input {list(x.shape)} has {x.size} elements"

        return size_evidence(x.size, ONE_ROW_MAPPED, _ONE_ROW_REFUSED, evidence)


@dataclass(frozen=True)
class Split(OpDef):
    """Reads the splits of both formats as one slice for each part.

    The op itself is never part of a graph, so that no op has several outputs for it.
    """

    kind = "split"
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES
    onnx = ("Split",)
    tflite = ("SPLIT", "SPLIT_V", "UNPACK")
    edgetpu_versions = {"SPLIT": Versions(2)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Read Split into equal parts, or parts of given sizes.

        The sizes are an attribute before opset 13, an input from there on.
        """
        x = node.input(0)
        axis = axis_of(node.attrs.get("axis", 0), x.type.rank)
        if node.opset < 13:
            sizes = node.attrs.get("split")
        else:
            sizes = ints(node.const(1))

        node.attrs.ignore("num_outputs")

        if not sizes:
            # The last part takes what is left, since opset 18.
            size = x.type.shape[axis]
            chunk = -(-size // node.n_outputs)
            starts = [i * chunk for i in range(node.n_outputs)]
            sizes = [min(chunk, size - start) for start in starts]

        # One slice for each output of the node.
        parts = _parts(x.type, axis, sizes)

        return [node.build.add(part, [x], node.name) for part in parts]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read SPLIT, SPLIT_V and UNPACK; the declared outputs give the sizes.

        The outputs of UNPACK have a size of 1 along the axis, which they lack.
        """
        x = op.input(1 if op.name == "SPLIT" else 0)
        rank = x.type.rank
        op.ignore("num", "numSplits")
        if op.name == "UNPACK":
            axis = axis_of(op.options.axis, rank)
            sizes = [1] * len(op.outputs)
        else:
            axis_input = op.const(0 if op.name == "SPLIT" else 2)
            axis = axis_of(int(axis_input.reshape(())), rank)
            sizes = [value.type.shape[axis] for value in op.outputs]

        parts = _parts(x.type, axis, sizes)
        for part, out in zip(parts, op.outputs, strict=True):
            write_slice(op.build, x, part, out)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


def slice_axes(x: TensorType, ranges: Mapping[int, Range]) -> Slice:
    """Return the slice of given ranges of some axes, and of all of the others."""
    # An axis without a range is taken whole.
    begin: list[int] = []
    shape: list[int] = []
    step: list[int] = []
    for axis, size in enumerate(x.shape):
        first, count, by = ranges.get(axis, (0, size, 1))
        begin.append(int(first))
        shape.append(int(count))
        step.append(int(by))

    return Slice(tuple(begin), tuple(shape), tuple(step))


def clamp_range(size: int, start: int, end: int, step: int) -> Range:
    """Return the range of a slice as ONNX and TFLite count start and end.

    Negative ones count from the back; both are then clamped to the dimension. Raises
    ValueError for a step of 0.
    """
    if step == 0:
        raise ValueError("a slice with step 0")

    # Backwards a range may end before the first element, at -1.
    low, high = (0, size) if step > 0 else (-1, size - 1)

    first = int(start)
    if first < 0:
        first += size

    first = min(max(first, 0), high)

    last = int(end)
    if last < 0:
        last += size

    last = min(max(last, low), high)

    count = -((first - last) // step)

    return first, max(0, count), step


def write_slice(b: Builder, x: Value, spec: Slice, out: Value) -> None:
    """Write a slice into a value of the file, which may lack axes of size 1.

    Such an output is a reshape of the slice.
    """
    if spec.shape == out.type.shape:
        b.write(spec, [x], [out])
        return

    # TFLite drops the axes that it shrinks.
    y = b.add(spec, [x], f"{out.name}_slice")
    reshape_to(b, y, out)


def take_range(
    b: Builder,
    x: Value,
    axis: int,
    taken: Range,
    shape: tuple[int, ...],
    name: str,
) -> Value:
    """Return a range of one axis, as a slice and a reshape to `shape` if it differs."""
    y = b.add(slice_axes(x.type, {axis: taken}), [x], name)
    if y.type.shape == shape:
        return y

    return b.add(Reshape(shape), [y], name)


def _parts(x: TensorType, axis: int, sizes: Sequence[int]) -> list[Slice]:
    """Return consecutive slices that cover an axis.

    Raises ValueError when the sizes do not add up to that of the axis.
    """
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise ValueError(f"parts of {list(sizes)} do not cover axis {axis} of {x}")

    parts: list[Slice] = []
    start = 0
    for size in sizes:
        parts.append(slice_axes(x, {axis: (start, int(size), 1)}))
        start += int(size)

    return parts


@dataclass(frozen=True)
class _StridedSlice:
    """The bounds of TFLite's STRIDED_SLICE.

    Attributes:
        options: the masks, with bit i for entry i
        shape: of the input
        bounds: entries (begin, end, stride)
    """

    options: Mapping[str, int]
    shape: tuple[int, ...]
    bounds: Sequence[tuple[int, int, int]]

    def ranges(self) -> dict[int, Range]:
        """Return the ranges of the input's axes; axes left out are taken whole.

        An entry stands for one input axis, except that an ellipsis stands for all axes
        without an entry, and a new axis for none.
        """
        entries = len(self.bounds)
        new_axes = sum(self._is_set("newAxisMask", i) for i in range(entries))
        ranges: dict[int, Range] = {}
        axis = 0
        for i in range(entries):
            if self._is_set("ellipsisMask", i):
                axis += len(self.shape) - (entries - 1 - new_axes)
            elif not self._is_set("newAxisMask", i):
                ranges[axis] = self._range(i, self.shape[axis])
                axis += 1

        return ranges

    def _is_set(self, mask: str, i: int) -> bool:
        """Return bit i of a mask."""
        return bool(self.options[mask] >> i & 1)

    def _range(self, i: int, size: int) -> Range:
        """Return the range of entry i along an axis of `size` elements."""
        begin, end, stride = self.bounds[i]

        # Of a shrunk axis only the element at `begin` is taken.
        if self._is_set("shrinkAxisMask", i):
            return begin + size if begin < 0 else begin, 1, 1

        # With `offset` the end counts from the begin.
        if self.options.get("offset"):
            end = begin + end

        if self._is_set("beginMask", i):
            begin = 0 if stride > 0 else size - 1

        if self._is_set("endMask", i):
            # Backwards the range goes to the first element, beyond which is -size - 1.
            end = size if stride > 0 else -size - 1

        return clamp_range(size, begin, end, stride)
