"""Convolutions and pools that are no two-dimensional ones with constant weights, made
of ops that edgec has.

One dimension is an image of one row. The third is a sum of two-dimensional
convolutions, one for each plane of the weights, and a pool along height and width and
then along depth. Dilated pools, pools with indices and norms go through the elements of
the window one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from edgec.ir import Array, Builder, OnnxNode, OpDef, Sample, TensorType, Value, fold
from edgec.ir.attributes import Attributes
from edgec.ops.arithmetic import Maximum, Pow
from edgec.ops.binary import Add, Div
from edgec.ops.compare import Greater, Where
from edgec.ops.concat import Concat
from edgec.ops.matmul import BatchMatMul
from edgec.ops.pad import Pad
from edgec.ops.scatter import ScatterElements
from edgec.ops.shape import Reshape, transpose
from edgec.ops.slice import Slice
from edgec.ops.unary import Abs

Pads = list[tuple[int, int]]
_TAPS = 4096
"""Elements of a window that goes element by element: each is an operation or two."""


@dataclass(frozen=True)
class SlidingWindow:
    """The sliding window of a node along every spatial dimension. pads: (before,
    after).
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    out: tuple[int, ...]

    @classmethod
    def of(
        cls, node: OnnxNode, size: Sequence[int], kernel: Sequence[int]
    ) -> SlidingWindow:
        """Of the attributes of a convolution or pool; the windows that ceil_mode adds
        become padding at the end.
        """
        n = len(size)
        stride, dilation = (
            tuple(node.attrs.get(name) or (1,) * n) for name in ("strides", "dilations")
        )
        given = node.attrs.get("pads") or (0,) * (2 * n)
        auto = node.attrs.get("auto_pad", "NOTSET")
        ceil = bool(node.attrs.get("ceil_mode", 0))
        pads = Pads()
        out = list[int]()
        for i, (d, k, s, r) in enumerate(
            zip(size, kernel, stride, dilation, strict=True)
        ):
            span = (k - 1) * r + 1
            before, after = (given[i], given[n + i]) if auto == "NOTSET" else (0, 0)
            if auto.startswith("SAME"):
                total = max(0, (-(-d // s) - 1) * s + span - d)
                before, after = (total // 2, total - total // 2)[
                    :: 1 if auto == "SAME_UPPER" else -1
                ]
            count = (d + before + after - span) // s + 1
            if ceil and not auto.startswith("SAME"):
                more = -(-(d + before + after - span) // s) + 1
                count = more - ((more - 1) * s >= d + before)
                after = max(after, (count - 1) * s + span - d - before)
            pads.append((before, after))
            out.append(count)
        return cls(
            tuple(size), tuple(kernel), stride, dilation, tuple(pads), tuple(out)
        )

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Every element of the window, by its place.

        Raises ValueError for so many that each cannot be an operation.
        """
        if prod(self.kernel) > _TAPS:
            raise ValueError(
                f"a window of {prod(self.kernel):,} elements is more than the "
                f"{_TAPS:,} that edgec reads"
            )
        return product(*map(range, self.kernel))

    def cut(self, at: Sequence[int]) -> tuple[slice, ...]:
        """The elements that every window has at a place, of a padded image."""
        each = zip(at, self.dilation, self.out, self.stride, strict=True)
        return tuple(slice(i * r, i * r + (o - 1) * s + 1, s) for i, r, o, s in each)

    def padded(self, b: Builder, x: Value, value: float, name: str) -> Value:
        """[N, C, …] with a border of `value`."""
        if not any(map(any, self.pads)):
            return x
        return b.add(Pad(((0, 0), (0, 0), *self.pads), value=value), [x], name)

    def tap(self, b: Builder, padded: Value, at: Sequence[int], name: str) -> Value:
        """[N, C, out…]: of every window the element at a place."""
        begin = (0, 0, *(i * r for i, r in zip(at, self.dilation, strict=True)))
        return b.add(
            Slice(begin, (*padded.type.shape[:2], *self.out), (1, 1, *self.stride)),
            [padded],
            name,
        )


def as_image(b: Builder, x: Value) -> Value:
    """[N, C, L] as [N, C, 1, L]."""
    return b.add(Reshape((*x.type.shape[:2], 1, x.type.shape[2])), [x], x.name)


def conv_by_taps(node: OnnxNode) -> Value:
    """A convolution whose weights are computed: the windows as rows, times the weights."""
    b = node.build
    x = node.input(0)
    w = node.input(1)
    bias = node.optional(2)
    groups = int(node.attrs.get("group", 1))
    name = node.name
    node.attrs.ignore("kernel_shape")
    n, c, *size = x.type.shape
    o, per, *kernel = w.type.shape
    if c != groups * per or o % groups:
        raise ValueError(
            f"weights {w.type} with group={groups} do not fit {c} input channels"
        )
    windows = SlidingWindow.of(node, size, kernel)
    padded = windows.padded(b, x, 0, name)
    taps = [windows.tap(b, padded, at, name) for at in windows.taps()]
    count = len(taps)
    positions = prod(windows.out)
    columns = [b.add(Reshape((n, groups, per, 1, positions)), [t], name) for t in taps]
    joined = b.add(Concat(3), columns, name) if count > 1 else columns[0]
    columns2 = b.add(Reshape((n, groups, per * count, positions)), [joined], name)
    rows = b.add(Reshape((1, groups, o // groups, per * count)), [w], name)
    y = b.add(
        Reshape((n, o, *windows.out)),
        [b.add(BatchMatMul(), [rows, columns2], name)],
        name,
    )
    return _biased(b, y, bias, name)


def _biased(b: Builder, y: Value, bias: Value | None, name: str) -> Value:
    """[N, O, …] + [O]."""
    if bias is None:
        return y
    column = b.add(
        Reshape((1, bias.type.size, *(1,) * (y.type.rank - 2))), [bias], name
    )
    return b.add(Add(), [y, column], name)


def max_by_taps(node: OnnxNode, windows: SlidingWindow, indices: bool) -> list[Value]:
    """The largest element of every window, and where it was in the whole tensor."""
    b = node.build
    x = node.input(0)
    name = node.name
    real = x.type.dtype == "float32"
    lowest = -np.inf if real else int(np.iinfo(x.type.np_dtype).min)
    padded = windows.padded(b, x, lowest, name)
    if indices:
        places = _places(x.type, windows, bool(node.attrs.get("storage_order", 0)))
    else:
        places = None
    best = None
    where = None
    for at in windows.taps():
        tap = windows.tap(b, padded, at, name)
        place = None
        if places is not None:
            place = b.const(
                np.ascontiguousarray(
                    places[(slice(None), slice(None), *windows.cut(at))]
                ),
                f"{name}_places",
            )
        if best is None:
            best = tap
            where = place
        elif place is None:
            best = b.add(Maximum(), [best, tap], name)
        else:
            assert where is not None
            larger = b.add(Greater(), [tap, best], name)
            where = b.add(Where(), [larger, place, where], name)
            best = b.add(Maximum(), [best, tap], name)
    assert best is not None
    return [best] if where is None else [best, where]


def _places(x: TensorType, windows: SlidingWindow, columns: bool) -> Array:
    """The number of every element of x in the padded tensor; columns: those of a plane
    are counted down first.
    """
    n, c, *size = x.shape
    plane = np.arange(prod(size), dtype=np.int64).reshape(
        size[::-1] if columns else size
    )
    plane = plane.T if columns else plane
    planes = (
        np.arange(n * c, dtype=np.int64).reshape(n, c, *(1,) * len(size)) * prod(size)
        + plane
    )
    return np.pad(planes, ((0, 0), (0, 0), *windows.pads))


def sum_by_taps(b: Builder, x: Value, windows: SlidingWindow, name: str) -> Value:
    """The sum of every window, padding being 0."""
    padded = windows.padded(b, x, 0, name)
    total = None
    for at in windows.taps():
        tap = windows.tap(b, padded, at, name)
        total = tap if total is None else b.add(Add(), [total, tap], name)
    assert total is not None
    return total


def average_by_taps(node: OnnxNode, windows: SlidingWindow) -> Value:
    """The mean of every window: of its elements in the image or, if padding counts, in
    the padded one.
    """
    b = node.build
    name = node.name
    n = len(windows.size)
    given = node.attrs.get("pads") or (0,) * (2 * n)
    own = [(given[i], given[n + i]) for i in range(n)]
    inside = [np.ones(d) for d in windows.size]
    if node.attrs.get("count_include_pad", 0):
        inside = [
            np.pad(ones, (lo, hi), constant_values=1)
            for ones, (lo, hi) in zip(inside, own, strict=True)
        ]
    counts = np.ones((1, 1, *(1,) * n))
    for i, (ones, (before, after)) in enumerate(zip(inside, windows.pads, strict=True)):
        whole = windows.size[i] + before + after
        left = before - (own[i][0] if node.attrs.get("count_include_pad", 0) else 0)
        line = np.pad(ones, (left, max(0, whole - left - len(ones))))
        taps = (
            line[k * windows.dilation[i] :][:: windows.stride[i]][: windows.out[i]]
            for k in range(windows.kernel[i])
        )
        along = [1] * (n + 2)
        along[i + 2] = windows.out[i]
        counts = counts * np.sum(list(taps), 0).reshape(along)
    total = sum_by_taps(b, node.input(0), windows, name)
    return b.add(
        Div(), [total, b.const(counts.astype(np.float32), f"{name}_counts")], name
    )


@dataclass(frozen=True)
class _Read(OpDef):
    """An operator that is read as others and never part of a graph."""

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None."""
        return iter(())


def norm(b: Builder, total: Value, p: float, name: str) -> Value:
    """total to the power 1 / p."""
    return b.add(Pow(), [total, b.const(np.array(1 / p, np.float32), "p")], name)


def powers(b: Builder, x: Value, p: float, name: str) -> Value:
    """|x| to the power p."""
    size = b.add(Abs(), [x], name)
    if p == 1:
        return size
    return b.add(Pow(), [size, b.const(np.array(p, np.float32), "p")], name)


@dataclass(frozen=True)
class LpPool(_Read):
    """The p-norm of every window, or of the whole image."""

    kind = "lp_pool"
    onnx = ("LpPool", "GlobalLpPool")

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Powers, sums, a root."""
        x = node.input(0)
        p = float(node.attrs.get("p", 2))
        size = x.type.shape[2:]
        kernel = node.attrs["kernel_shape"] if node.op_type == "LpPool" else size
        windows = SlidingWindow.of(node, size, kernel)
        return norm(
            node.build,
            sum_by_taps(
                node.build, powers(node.build, x, p, node.name), windows, node.name
            ),
            p,
            node.name,
        )


@dataclass(frozen=True)
class MaxUnpool(_Read):
    """Elements put back where MaxPool found them, zeros between."""

    kind = "max_unpool"
    onnx = ("MaxUnpool",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """One scatter.

        Indices count within the shape that the kernel and strides give, whatever
        output_shape says.
        """
        b = node.build
        x = node.input(0)
        index = node.input(1)
        name = node.name
        n, c, *size = x.type.shape
        kernel = node.attrs["kernel_shape"]
        stride = node.attrs.get("strides") or [1] * len(size)
        pads = node.attrs.get("pads") or [0] * (2 * len(size))
        out = [
            (d - 1) * s - pads[i] - pads[len(size) + i] + k
            for i, (d, s, k) in enumerate(zip(size, stride, kernel, strict=True))
        ]
        whole = b.const(np.zeros(n * c * prod(out), x.type.np_dtype), f"{name}_zeros")
        flat = [b.add(Reshape((x.type.size,)), [v], name) for v in (index, x)]
        y = b.add(
            Reshape((n, c, *out)),
            [b.add(ScatterElements("none", 0), [whole, *flat], name)],
            name,
        )
        given = node.const(2)
        if given is None or [int(d) for d in given] == [n, c, *out]:
            return y
        after = [(0, int(want) - d) for want, d in zip(given[2:], out, strict=True)]
        return b.add(Pad(((0, 0), (0, 0), *after)), [y], name)


@dataclass(frozen=True)
class Col2Im(_Read):
    """Columns of windows added up to the image that they were cut from."""

    kind = "col2im"
    onnx = ("Col2Im",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """One scatter that adds."""
        b = node.build
        x = node.input(0)
        name = node.name
        image, kernel = ([int(d) for d in np.asarray(node.const(i))] for i in (1, 2))
        windows = SlidingWindow.of(node, image, kernel)
        whole = [d + sum(p) for d, p in zip(image, windows.pads, strict=True)]
        channels = x.type.shape[0] * x.type.shape[1] // prod(kernel)
        plane = np.arange(prod(whole)).reshape(whole)
        cuts = [plane[windows.cut(at)].reshape(-1) for at in windows.taps()]
        one = np.concatenate(cuts)
        index = np.broadcast_to(one, (channels, len(one)))
        zeros = b.const(
            np.zeros((channels, prod(whole)), x.type.np_dtype), f"{name}_zeros"
        )
        rows = b.add(Reshape((channels, len(one))), [x], name)
        placed = b.add(
            ScatterElements("add", 1),
            [zeros, b.const(index.copy(), f"{name}_index"), rows],
            name,
        )
        shape = (x.type.shape[0], channels // x.type.shape[0], *whole)
        y = b.add(Reshape(shape), [placed], name)
        begin = (0, 0, *(p[0] for p in windows.pads))
        cut = Slice(begin, (*shape[:2], *image), (1,) * len(shape))
        return y if shape[2:] == tuple(image) else b.add(cut, [y], name)


# ---- other ranks
# --------------------------------------------------------------------------------------
Reader = Callable[[OnnxNode], "Value | list[Value]"]
_TAKEN = (
    "kernel_shape",
    "strides",
    "dilations",
    "pads",
    "auto_pad",
    "group",
    "ceil_mode",
    "count_include_pad",
)
_LISTS = {
    "kernel_shape": 1,
    "strides": 1,
    "dilations": 1,
    "output_padding": 0,
    "output_shape": 1,
}


def _inner(
    node: OnnxNode, inputs: list[Value | None], attrs: Mapping[str, Any], read: Reader
) -> list[Value]:
    """What `read` makes of a node with other inputs and attributes, which say what
    those of the node do.
    """
    node.attrs.ignore(*_TAKEN)
    own = Attributes(attrs)
    given = read(replace(node, attrs=own, inputs=inputs))
    own.check()
    return given if isinstance(given, list) else [given]


def of_one_row(node: OnnxNode, read: Reader) -> list[Value]:
    """A node on [N, C, L], read as one on images of one row."""
    b, (image, *others) = node.build, node.inputs
    assert image is not None
    attrs = {
        n: [_LISTS[n], *v] if n in _LISTS and len(v) == 1 else v
        for n, v in node.attrs.items()
    }
    if "pads" in attrs:
        attrs["pads"] = [0, attrs["pads"][0], 0, attrs["pads"][1]]
    changed = [
        as_image(b, v) if v is not None and v.type.rank == 3 else v for v in others
    ]
    node.attrs.ignore(*attrs)
    found = _inner(node, [as_image(b, image), *changed], attrs, read)
    return [
        b.add(Reshape((*y.type.shape[:2], y.type.shape[3])), [y], node.name)
        for y in found
    ]


def conv_in_planes(node: OnnxNode, read: Reader) -> Value:
    """A convolution of [N, C, D, H, W]: for every plane of the weights one of images,
    added up.
    """
    b = node.build
    x = node.input(0)
    w = node.input(1)
    name = node.name
    kernel = w.type.shape[2:]
    windows = SlidingWindow.of(node, x.type.shape[2:], kernel)
    (n, c, _, height, width), depth = x.type.shape, windows.out[0]
    if any(windows.pads[0]):
        x = b.add(Pad(((0, 0), (0, 0), windows.pads[0], (0, 0), (0, 0))), [x], name)
    image = [
        windows.pads[1][0],
        windows.pads[2][0],
        windows.pads[1][1],
        windows.pads[2][1],
    ]
    attrs: dict[str, Any] = {
        "strides": windows.stride[1:],
        "dilations": windows.dilation[1:],
        "pads": image,
    }
    attrs["group"] = int(node.attrs.get("group", 1))
    total: Value | None = None
    for plane in range(kernel[0]):
        begin = (0, 0, plane * windows.dilation[0], 0, 0)
        shape = (n, c, depth, height, width)
        cut = b.add(Slice(begin, shape, (1, 1, windows.stride[0], 1, 1)), [x], name)
        images = b.add(
            Reshape((n * depth, c, height, width)),
            [transpose(b, cut, (0, 2, 1, 3, 4))],
            name,
        )
        weights = b.add(
            Slice((0, 0, plane, 0, 0), (*w.type.shape[:2], 1, *kernel[1:]), (1,) * 5),
            [w],
            name,
        )
        flat = folded(
            b, b.add(Reshape((*w.type.shape[:2], *kernel[1:])), [weights], name)
        )
        (y,) = _inner(
            node, [images, flat, None if total else node.optional(2)], attrs, read
        )
        total = y if total is None else b.add(Add(), [total, y], name)
    assert total is not None
    apart = b.add(Reshape((n, depth, *total.type.shape[1:])), [total], name)
    return transpose(b, apart, (0, 2, 1, 3, 4))


def folded(b: Builder, v: Value) -> Value:
    """A value as a constant, where it can be one."""
    made = b.graph.producers().get(v)
    if made is None or v.const is not None:
        return v
    if all(folded(b, x).const is not None for x in made.inputs):
        fold(made)
        b.graph.ops.remove(made)
    return v


def pool_in_planes(node: OnnxNode, windows: SlidingWindow, read: Reader) -> Value:
    """A pool of [N, C, D, H, W] along height and width, then along depth."""
    b = node.build
    x = node.input(0)
    name = node.name
    n, c, depth, *size = x.type.shape
    planes = b.add(Reshape((n, c * depth, *size)), [x], name)
    for kernel, stride, pads in (
        (windows.kernel[1:], windows.stride[1:], windows.pads[1:]),
        ((windows.kernel[0], 1), (windows.stride[0], 1), (windows.pads[0], (0, 0))),
    ):
        flat = [pads[0][0], pads[1][0], pads[0][1], pads[1][1]]
        (planes,) = _inner(
            node,
            [planes],
            {"kernel_shape": kernel, "strides": stride, "pads": flat},
            read,
        )
        if len(planes.type.shape) == 4 and planes.type.shape[1] == c * depth:
            size = list(planes.type.shape[2:])
            planes = b.add(Reshape((n, c, depth, prod(size))), [planes], name)
    return b.add(Reshape((n, c, windows.out[0], *windows.out[1:])), [planes], name)


def transposed_conv(node: OnnxNode, conv: Reader) -> Value:
    """A transposed convolution: one by the mirrored weights, of the image with zeros
    between its elements.
    """
    b = node.build
    x = node.input(0)
    w = node.input(1)
    name = node.name
    size = x.type.shape[2:]
    kernel = w.type.shape[2:]
    groups = int(node.attrs.get("group", 1))
    n = len(size)
    auto = node.attrs.get("auto_pad", "NOTSET")
    stride, dilation = (
        tuple(node.attrs.get(k) or (1,) * n) for k in ("strides", "dilations")
    )
    extra = node.attrs.get("output_padding") or (0,) * n
    wanted = node.attrs.get("output_shape")
    given = node.attrs.get("pads") or (0,) * (2 * n)
    pads = Pads()
    for i, (d, k, s, r) in enumerate(zip(size, kernel, stride, dilation, strict=True)):
        x = _spread(b, x, i + 2, s, name)
        span = (k - 1) * r
        before = given[i]
        after = given[n + i]
        if wanted is not None or auto.startswith("SAME"):
            out = wanted[i - n] if wanted is not None else d * s
            total = (d - 1) * s + extra[i] + span + 1 - out
            before, after = (total // 2, total - total // 2)[
                :: -1 if auto == "SAME_LOWER" else 1
            ]
            if auto == "NOTSET":
                before, after = after, before
        pads.append((span - before, span - after + extra[i]))
    x = _bordered(b, x, pads, name)
    c, per = w.type.shape[:2]
    by_group = b.add(Reshape((groups, c // groups, per, *kernel)), [w], name)
    swapped = transpose(b, by_group, (0, 2, 1, *range(3, 3 + n)))
    flat = b.add(Reshape((groups * per, c // groups, *kernel)), [swapped], name)
    mirror = Slice(
        (0, 0, *(k - 1 for k in kernel)), flat.type.shape, (1, 1, *(-1 for _ in kernel))
    )
    weights = folded(b, b.add(mirror, [flat], name))
    attrs = {
        "group": groups,
        "dilations": dilation,
        "strides": (1,) * n,
        "pads": (0,) * (2 * n),
    }
    return _inner(node, [x, weights, node.optional(2)], attrs, conv)[0]


def _spread(b: Builder, x: Value, axis: int, stride: int, name: str) -> Value:
    """Zeros between the elements along an axis."""
    if stride == 1:
        return x
    shape = x.type.shape
    rows = b.add(
        Reshape((prod(shape[: axis + 1]), 1, prod(shape[axis + 1 :]))), [x], name
    )
    wide = b.add(Pad(((0, 0), (0, stride - 1), (0, 0))), [rows], name)
    full = (*shape[:axis], shape[axis] * stride, *shape[axis + 1 :])
    cut = (*shape[:axis], (shape[axis] - 1) * stride + 1, *shape[axis + 1 :])
    return b.add(
        Slice((0,) * len(shape), cut, (1,) * len(shape)),
        [b.add(Reshape(full), [wide], name)],
        name,
    )


def _bordered(b: Builder, x: Value, pads: Pads, name: str) -> Value:
    """[N, C, …] with zeros around it, or cut where there are to be fewer than none."""
    begin = (0, 0, *(max(0, -lo) for lo, _ in pads))
    shape = (
        *x.type.shape[:2],
        *(
            d + min(0, lo) + min(0, hi)
            for d, (lo, hi) in zip(x.type.shape[2:], pads, strict=True)
        ),
    )
    if shape != x.type.shape:
        x = b.add(Slice(begin, shape, (1,) * len(shape)), [x], name)
    return b.add(
        Pad(((0, 0), (0, 0), *((max(0, lo), max(0, hi)) for lo, hi in pads))), [x], name
    )
