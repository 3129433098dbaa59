"""Ops that move, resample and pick, read from TFLite, against LiteRT's reference
kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgec.ir import Array
from tests.ops.tflite_node import Operator

_RNG = np.random.default_rng(0)
IMAGE = _RNG.normal(size=(2, 5, 6, 3)).astype(np.float32)
S8 = _RNG.integers(-128, 128, (1, 4, 6, 8)).astype(np.int8)
U8 = _RNG.integers(0, 256, (1, 4, 6, 8)).astype(np.uint8)
ONE = (0.1, 3)


def i32(*values: Any) -> Array:
    return np.array(values if len(values) != 1 else values[0], np.int32)


def _strided(
    first: list[int],
    last: list[int],
    strides: list[int],
    x: Array = IMAGE,
    **masks: int,
) -> Operator:
    fields = {
        f"{k}Mask": masks.get(k, 0)
        for k in ("begin", "end", "ellipsis", "newAxis", "shrinkAxis")
    }
    inputs = [x, i32(first), i32(last), i32(strides)]
    return Operator(
        "STRIDED_SLICE", inputs, (1, 2, 3), options=("StridedSliceOptions", fields)
    )


def _slices() -> Iterator[Operator]:
    yield Operator("SLICE", [IMAGE, i32([0, 1, 2, 0]), i32([2, -1, 3, 2])], (1, 2))
    yield Operator(
        "REVERSE_V2", [IMAGE, i32([1])], (1,), options=("ReverseV2Options", {})
    )
    yield _strided([0, 1, 1, 0], [2, 5, -1, 3], [1, 2, 1, 1])
    yield _strided([1, 4, 5, 2], [0, 0, -100, 0], [-1, -2, -3, -1])
    yield _strided([9, 1, 1, 9], [9, 3, 9, 9], [1, 1, 2, 1], begin=0b1001, end=0b1101)
    yield _strided([0, 4, 5, 0], [0, 0, 0, 0], [1, -1, -2, 1], begin=0b1011, end=0b1111)
    yield _strided([1, 0, -1, 0], [2, 5, 0, 3], [1, 1, 1, 1], shrinkAxis=0b0101)
    yield _strided([1, 0, 1], [2, 0, 2], [1, 1, 1], ellipsis=0b010)
    yield _strided([0, 1, 0], [0, 3, 0], [1, 1, 1], newAxis=0b001, end=0b100)
    yield _strided(
        [0, 0, -1],
        [0, 0, 0],
        [1, 1, 1],
        ellipsis=0b001,
        newAxis=0b010,
        shrinkAxis=0b100,
    )
    yield _strided([1], [2], [1])
    integers = np.arange(7, dtype=np.int32)
    yield replace(_strided([2], [3], [1], integers, shrinkAxis=1), outputs=("int32",))
    yield Operator(
        "SPLIT",
        [i32(3), IMAGE],
        (0,),
        ("float32",) * 3,
        ("SplitOptions", {"numSplits": 3}),
    )
    sizes = [IMAGE, i32([1, 3, 2]), i32(-2)]
    yield Operator(
        "SPLIT_V", sizes, (1, 2), ("float32",) * 3, ("SplitVOptions", {"numSplits": 3})
    )
    yield Operator(
        "UNPACK",
        [IMAGE],
        (),
        ("float32",) * 2,
        ("UnpackOptions", {"num": 2, "axis": 0}),
    )
    yield Operator(
        "UNPACK",
        [IMAGE],
        (),
        ("float32",) * 3,
        ("UnpackOptions", {"num": 3, "axis": -1}),
    )


def _joins() -> Iterator[Operator]:
    for axis in (0, 2, -1):
        yield Operator(
            "PACK",
            [IMAGE, IMAGE + 1],
            options=("PackOptions", {"valuesCount": 2, "axis": axis}),
        )
    yield Operator(
        "PACK",
        [i32(3), i32(4)],
        (1,),
        ("int32",),
        ("PackOptions", {"valuesCount": 2, "axis": 0}),
    )
    options = ("ConcatenationOptions", {"axis": -1, "fusedActivationFunction": 0})
    yield Operator("CONCATENATION", [IMAGE, IMAGE], options=options)
    scales = {0: (0.1, 120), 1: (0.037, 3), 2: (0.2, 255)}
    yield Operator(
        "CONCATENATION",
        [U8, U8[..., ::-1], U8],
        (),
        ("uint8",),
        options,
        scales,
        (0.1, 120),
    )


def _pads() -> Iterator[Operator]:
    pads = i32([[0, 0], [1, 2], [0, 3], [2, 0]])
    for x, dtype in ((IMAGE, "float32"), (S8, "int8"), (U8, "uint8")):
        scale: dict[int, tuple[float, int]] = {} if dtype == "float32" else {0: ONE}
        out = ONE if scale else None
        yield Operator("PAD", [x, pads], (1,), (dtype,), None, scale, out)
        value = np.array(7, x.dtype)
        yield Operator(
            "PADV2",
            [x, pads, value],
            (1, 2),
            (dtype,),
            None,
            {**scale, 2: ONE} if scale else {},
            out,
        )
        for mode in (0, 1):
            options = ("MirrorPadOptions", {"mode": mode})
            yield Operator("MIRROR_PAD", [x, pads], (1,), (dtype,), options, scale, out)


def _picks() -> Iterator[Operator]:
    for axis, index in itertools.product(
        (0, 1, -1), (i32(1), i32([1, 0]), i32([[0, 1], [1, 1]]))
    ):
        yield Operator(
            "GATHER",
            [IMAGE, index],
            (1,),
            options=("GatherOptions", {"axis": axis, "batchDims": 0}),
        )
    yield Operator(
        "GATHER",
        [IMAGE, i32([4, 0])],
        options=("GatherOptions", {"axis": 1, "batchDims": 0}),
    )
    yield Operator(
        "GATHER_ND", [IMAGE, i32([[0, 1], [1, 4]])], options=("GatherNdOptions", {})
    )
    yield Operator("TILE", [IMAGE, i32([1, 2, 1, 3])], (1,))
    yield Operator(
        "BROADCAST_TO",
        [IMAGE[0, :, :1], i32([2, 5, 4, 3])],
        (1,),
        options=("BroadcastToOptions", {}),
        version=2,
    )
    for axis in (1, -1):
        for name in ("ARG_MAX", "ARG_MIN"):
            options = (f"Arg{name[4:].capitalize()}Options", {"outputType": 4})
            yield Operator(name, [IMAGE, i32(axis)], (1,), ("int64",), options)
            yield Operator(name, [U8, i32(axis)], (1,), ("int64",), options, {0: ONE})
    yield Operator(
        "EXPAND_DIMS", [IMAGE, i32(-2)], (1,), options=("ExpandDimsOptions", {})
    )
    yield Operator(
        "SQUEEZE", [IMAGE[:1]], options=("SqueezeOptions", {"squeezeDims": [0]})
    )


def _blocks() -> Iterator[Operator]:
    options: tuple[str, dict[str, int]]
    for x, dtype in ((IMAGE[:1, :4], "float32"), (S8, "int8")):
        scale, out = ({0: ONE}, ONE) if dtype == "int8" else ({}, None)
        yield Operator(
            "SPACE_TO_DEPTH",
            [x],
            (),
            (dtype,),
            ("SpaceToDepthOptions", {"blockSize": 2}),
            scale,
            out,
        )
        wide = np.concatenate([x, x, x, x], 3)
        yield Operator(
            "DEPTH_TO_SPACE",
            [wide],
            (),
            (dtype,),
            ("DepthToSpaceOptions", {"blockSize": 2}),
            scale,
            out,
        )
        options = ("SpaceToBatchNDOptions", {})
        edges = i32([[1, 1], [2, 1]])
        yield Operator(
            "SPACE_TO_BATCH_ND",
            [x, i32([2, 3]), edges],
            (1, 2),
            (dtype,),
            options,
            scale,
            out,
        )
        batch = np.concatenate([x] * 6, 0)
        options = ("BatchToSpaceNDOptions", {})
        yield Operator(
            "BATCH_TO_SPACE_ND",
            [batch, i32([2, 3]), edges],
            (1, 2),
            (dtype,),
            options,
            scale,
            out,
        )


def _resizes() -> Iterator[Operator]:
    for align, half, (h, w) in itertools.product(
        (False, True), (False, True), ((8, 12), (3, 4), (9, 7))
    ):
        if align and half:
            continue
        flags = {"alignCorners": align, "halfPixelCenters": half}
        for x, dtype in ((IMAGE, "float32"), (S8, "int8"), (U8, "uint8")):
            scale, out = ({}, None) if dtype == "float32" else ({0: ONE}, ONE)
            for name, table in (
                ("RESIZE_BILINEAR", "ResizeBilinear"),
                ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighbor"),
            ):
                yield Operator(
                    name,
                    [x, i32([h, w])],
                    (1,),
                    (dtype,),
                    (f"{table}Options", flags),
                    scale,
                    out,
                )


def _casts() -> Iterator[Operator]:
    yield Operator("CAST", [IMAGE * 50], (), ("int32",), ("CastOptions", {}))
    yield Operator("CAST", [U8], (), ("float32",), ("CastOptions", {}))
    yield Operator("CAST", [U8], (), ("float32",), ("CastOptions", {}), {0: ONE})
    yield Operator(
        "CAST", [np.arange(5, dtype=np.int64)], (), ("float32",), ("CastOptions", {})
    )


def _norms() -> Iterator[Operator]:
    wide = _RNG.integers(-128, 128, (30, 200)).astype(np.int8)
    options = ("L2NormOptions", {"fusedActivationFunction": 0})
    yield Operator("L2_NORMALIZATION", [IMAGE], options=options)
    yield Operator(
        "L2_NORMALIZATION", [wide], (), ("int8",), options, {0: ONE}, (1 / 128, 0)
    )
    unsigned = (wide.view(np.uint8) ^ 128).astype(np.uint8)
    yield Operator(
        "L2_NORMALIZATION",
        [unsigned],
        (),
        ("uint8",),
        options,
        {0: (0.1, 120)},
        (1 / 128, 128),
    )
    fields = {"radius": 1, "bias": 1.5, "alpha": 0.3, "beta": 0.75}
    yield Operator(
        "LOCAL_RESPONSE_NORMALIZATION",
        [IMAGE],
        options=("LocalResponseNormalizationOptions", fields),
    )


def _cases(*groups: Iterator[Operator]) -> list[Any]:
    return [
        pytest.param(op, id=f"{i}-{op}")
        for group in groups
        for i, op in enumerate(group)
    ]


@pytest.mark.parametrize(
    "op",
    _cases(
        _slices(),
        _joins(),
        _pads(),
        _picks(),
        _blocks(),
        _resizes(),
        _casts(),
        _norms(),
    ),
)
def test_is_the_reference_kernels(op: Operator) -> None:
    op.check()


@pytest.mark.parametrize(
    "op",
    _cases(
        iter(
            [
                Operator(
                    "SHAPE", [IMAGE], (), ("int32",), ("ShapeOptions", {"outType": 2})
                ),
                Operator("RANK", [IMAGE], (), ("int32",), ("RankOptions", {})),
                Operator(
                    "FILL",
                    [i32([2, 3]), np.array(1.5, np.float32)],
                    (0, 1),
                    options=("FillOptions", {}),
                ),
                Operator(
                    "RANGE",
                    [i32(2), i32(9), i32(3)],
                    (0, 1, 2),
                    ("int32",),
                    ("RangeOptions", {}),
                ),
                Operator("ZEROS_LIKE", [IMAGE], options=("ZerosLikeOptions", {})),
            ]
        )
    ),
)
def test_known_when_read(op: Operator) -> None:
    (want,) = op.expected()
    graph = op.graph([want.shape])
    assert not graph.ops
    np.testing.assert_array_equal(graph.outputs[0].const, want)
