"""Rectangular parts of a tensor with a step: slices, and splits as several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    Builder,
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
from edgec.ops.limits import ONE_ROW_MAPPED, one_row, within
from edgec.ops.shape import Reshape, element_strides, gather, reshape_to

Range = tuple[int, int, int]
"""(first element, number of elements, step) along one axis; the step may be negative."""

_TFLITE_MAX_RANK = 5
_ONE_ROW_REFUSED = 1_209_600
"""Elements of the input of a refused slice, [1,144,8400]; slices of images map at any
size seen.
"""


@dataclass(frozen=True)
class Slice(OpDef):
    """out[i] = in[begin + step * i] for i < shape, along every axis."""

    begin: tuple[int, ...]
    shape: tuple[int, ...]
    step: tuple[int, ...]

    kind = "slice"
    onnx = ("Slice",)
    tflite = ("SLICE", "STRIDED_SLICE", "REVERSE_V2")
    edgetpu_versions = {"SLICE": Versions(2), "STRIDED_SLICE": Versions(2)}
    quant: ClassVar[QuantRule] = QuantRule.SAME
    plain_int8: ClassVar[bool] = True
    edgetpu: ClassVar[bool] = True

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """`shape`; every element taken must exist."""
        if not len(self.begin) == len(self.shape) == len(self.step) == x[0].rank:
            raise ValueError(f"slice of {len(self.begin)} dimensions of {x[0]}")
        for d, b, n, s in zip(
            x[0].shape, self.begin, self.shape, self.step, strict=True
        ):
            if n and not (0 <= b < d and 0 <= b + s * (n - 1) < d):
                raise ValueError(
                    f"{n} elements from {b} by {s} are not within a dimension of {d}"
                )
        return (x[0].with_shape(self.shape),)

    def index(self) -> tuple[slice, ...]:
        """The slice as numpy writes it."""
        return tuple(
            slice(b, end if (end := b + s * n) >= 0 else None, s)
            for b, n, s in zip(self.begin, self.shape, self.step, strict=True)
        )

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """numpy's basic slicing."""
        return [np.ascontiguousarray(x[0][self.index()])]

    def permute(self, perm: tuple[int, ...], op: Op) -> OpDef:
        """The same ranges on permuted axes."""
        return Slice(
            *(
                tuple(field[p] for p in perm)
                for field in (self.begin, self.shape, self.step)
            )
        )

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Attributes before opset 10, inputs from there on."""
        x = node.input(0)
        if node.opset < 10:
            starts = node.attrs["starts"]
            ends = node.attrs["ends"]
            axes = node.attrs.get("axes")
            steps = None
        else:
            starts, ends, axes, steps = (ints(node.const(i)) for i in range(1, 5))
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        ranges = {
            axis_of(a, x.type.rank): clamp_range(
                x.type.shape[axis_of(a, x.type.rank)], s, e, t
            )
            for a, s, e, t in zip(axes, starts, ends, steps, strict=True)
        }
        return node.build.add(slice_axes(x.type, ranges), [x], node.name)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """SLICE (size -1: to the end), REVERSE_V2, and STRIDED_SLICE with all its
        masks.

        The declared shape drops shrunk axes.
        """
        x = op.input(0)
        out = op.outputs[0]
        if op.name == "REVERSE_V2":
            axes = [axis_of(int(a), x.type.rank) for a in op.const(1).reshape(-1)]
            ranges = {a: (x.type.shape[a] - 1, x.type.shape[a], -1) for a in axes}
        elif op.name == "SLICE":
            begin, size = (op.const(i).reshape(-1).tolist() for i in (1, 2))
            ranges = {
                i: (b, d - b if n < 0 else n, 1)
                for i, (b, n, d) in enumerate(
                    zip(begin, size, x.type.shape, strict=True)
                )
            }
        else:
            begin, end, strides = (op.const(i).reshape(-1).tolist() for i in (1, 2, 3))
            ranges = _strided_ranges(op.options, x.type.shape, begin, end, strides)
        write_slice(op.build, x, slice_axes(x.type, ranges), out)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """STRIDED_SLICE (the form that the Edge TPU compiler was seen to map); version
        2 is int8. No ranks above 5.
        """
        rank = len(self.begin)
        if rank > _TFLITE_MAX_RANK:
            return None
        ends = [
            b + s * n for b, n, s in zip(self.begin, self.shape, self.step, strict=True)
        ]
        # a negative end would count from the back
        through = sum(1 << i for i, e in enumerate(ends) if e < 0)
        masks = {
            "beginMask": 0,
            "endMask": through,
            "ellipsisMask": 0,
            "newAxisMask": 0,
            "shrinkAxisMask": 0,
        }
        numbers = (np.array(n, np.int32) for n in (self.begin, ends, self.step))
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        return TfliteCode(
            "STRIDED_SLICE",
            ("StridedSliceOptions", masks),
            version,
            (op.inputs[0], *numbers),
        )

    def c(self, op: Op) -> KernelCall:
        """A strided gather."""
        strides = element_strides(op.inputs[0].type.shape)
        offset = sum(b * s for b, s in zip(self.begin, strides, strict=True))
        return gather(
            op,
            self.shape,
            [a * s for a, s in zip(self.step, strides, strict=True)],
            offset,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Channel halves, a crop, steps forwards and backwards; float, int8 and
        integers.
        """
        s8 = TensorType((1, 5, 6, 8), "int8", Quant.per_tensor(0.1, 3))
        for label, spec in (
            ("channels", cls((0, 0, 0, 4), (1, 5, 6, 4), (1, 1, 1, 1))),
            ("crop", cls((0, 1, 2, 0), (1, 3, 4, 8), (1, 1, 1, 1))),
            ("steps", cls((0, 0, 1, 0), (1, 3, 3, 3), (1, 2, 2, 3))),
            ("backwards", cls((0, 4, 5, 1), (1, 5, 2, 7), (1, -1, -3, 1))),
        ):
            yield Sample(spec, (Arg(TensorType(s8.shape)),), label=label)
            yield Sample(spec, (Arg(s8),), label=f"{label}_s8")
        yield Sample(
            cls((1,), (2,), (2,)), (Arg(TensorType((5,), "int64")),), label="s64"
        )
        yield Sample(
            cls((0, 1), (2, 2), (1, 1)),
            (Arg(TensorType((2, 3), "bool")),),
            label="bool",
        )

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
        seen = f"input {list(x.shape)} has {x.size} elements"
        if one_row(x):
            return within(x.size, ONE_ROW_MAPPED, _ONE_ROW_REFUSED, seen)
        return None


@dataclass(frozen=True)
class Split(OpDef):
    """Reads the splits of both formats: each part is a slice, so that no op has several
    outputs.
    """

    kind = "split"
    onnx = ("Split",)
    tflite = ("SPLIT", "SPLIT_V", "UNPACK")
    edgetpu_versions = {"SPLIT": Versions(2)}

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> list[Value]:
        """Equal parts, or the sizes given as attribute (before opset 13) or input."""
        x = node.input(0)
        axis = axis_of(node.attrs.get("axis", 0), node.input(0).type.rank)
        given = node.attrs.get("split") if node.opset < 13 else ints(node.const(1))
        node.attrs.ignore("num_outputs")
        size = x.type.shape[axis]
        chunk = -(-size // node.n_outputs)  # opset 18: the last part takes what is left
        sizes = given or [min(chunk, size - i * chunk) for i in range(node.n_outputs)]
        return [
            node.build.add(spec, [x], node.name) for spec in _parts(x.type, axis, sizes)
        ]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The declared outputs say how large each part is; UNPACK's lack the axis."""
        x = op.input(1 if op.name == "SPLIT" else 0)
        op.ignore("num", "numSplits")
        if op.name == "UNPACK":
            axis = axis_of(op.options.axis, x.type.rank)
            sizes = [1] * len(op.outputs)
        else:
            axis = axis_of(
                int(op.const(0 if op.name == "SPLIT" else 2).reshape(())), x.type.rank
            )
            sizes = [v.type.shape[axis] for v in op.outputs]
        for spec, out in zip(_parts(x.type, axis, sizes), op.outputs, strict=True):
            write_slice(op.build, x, spec, out)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None: it is read, and never part of a graph."""
        return iter(())


def slice_axes(x: TensorType, ranges: Mapping[int, Range]) -> Slice:
    """The slice that takes these ranges of some axes and all of the others."""
    full = [ranges.get(i, (0, d, 1)) for i, d in enumerate(x.shape)]
    return Slice(*(tuple(int(r[k]) for r in full) for k in range(3)))


def clamp_range(size: int, start: int, end: int, step: int) -> Range:
    """Start and end as ONNX and TFLite count them: negative from the back, then clamped
    to the dimension.
    """
    if step == 0:
        raise ValueError("a slice with step 0")
    low, high = (0, size) if step > 0 else (-1, size - 1)
    start, end = (v + size if v < 0 else v for v in (int(start), int(end)))
    start = min(max(start, 0), high)
    end = min(max(end, low), high)
    return start, max(0, -((start - end) // step)), step


def write_slice(b: Builder, x: Value, spec: Slice, out: Value) -> None:
    """Write a slice into a value of the file, which may lack axes of size 1."""
    if spec.shape == out.type.shape:
        b.write(spec, [x], [out])
    else:
        reshape_to(b, b.add(spec, [x], f"{out.name}_slice"), out)


def take_range(
    b: Builder, x: Value, axis: int, taken: Range, shape: tuple[int, ...], name: str
) -> Value:
    """A range of one axis under another shape."""
    y = b.add(slice_axes(x.type, {axis: taken}), [x], name)
    return y if y.type.shape == shape else b.add(Reshape(shape), [y], name)


def _parts(x: TensorType, axis: int, sizes: Sequence[int]) -> list[Slice]:
    """Consecutive slices that cover an axis."""
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise ValueError(f"parts of {list(sizes)} do not cover axis {axis} of {x}")
    starts = np.cumsum([0, *sizes]).tolist()
    return [
        slice_axes(x, {axis: (b, int(n), 1)})
        for b, n in zip(starts, sizes, strict=False)
    ]


def _strided_ranges(
    options: Mapping[str, int],
    shape: tuple[int, ...],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
) -> dict[int, Range]:
    """The ranges of TFLite's STRIDED_SLICE: one entry of begin/end/strides for each
    input axis, but for its masks.
    """
    ranges: dict[int, Range] = {}
    axis = 0
    inserted = sum(1 for i in range(len(begin)) if options["newAxisMask"] >> i & 1)
    for i, (b, e, s) in enumerate(zip(begin, end, strides, strict=True)):
        if options["ellipsisMask"] >> i & 1:
            axis += len(shape) - (len(begin) - 1 - inserted)
        elif not options["newAxisMask"] >> i & 1:
            size = shape[axis]
            if options["shrinkAxisMask"] >> i & 1:
                ranges[axis] = (b + size if b < 0 else b, 1, 1)
            else:
                e = b + e if options.get("offset") else e
                b = (0 if s > 0 else size - 1) if options["beginMask"] >> i & 1 else b
                e = (size if s > 0 else -size - 1) if options["endMask"] >> i & 1 else e
                ranges[axis] = clamp_range(size, b, e, s)
            axis += 1
    return ranges
