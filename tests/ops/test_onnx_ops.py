"""Ops that move, resample and normalise, read from ONNX across opsets and modes,
against onnxruntime.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgec.errors import UnsupportedError
from edgec.ir import Array
from tests.ops.onnx_node import Node

_RNG = np.random.default_rng(0)
IMAGE = _RNG.normal(size=(1, 3, 5, 7)).astype(np.float32)
VECTOR = np.arange(10, dtype=np.float32)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def _moves() -> Iterator[Node]:
    yield Node("Concat", 13, [IMAGE, IMAGE[:, :2]], attrs={"axis": 1})
    yield Node("Concat", 13, [IMAGE, IMAGE], attrs={"axis": -1})
    yield Node(
        "Slice",
        9,
        [IMAGE],
        attrs={"starts": [1, -3], "ends": [9, 1000], "axes": [2, 3]},
    )
    yield Node("Slice", 7, [IMAGE], attrs={"starts": [0, 1], "ends": [1, 3]})
    for start, end, step in (
        (1, 4, 1),
        (-1, -100, -1),
        (6, 0, -2),
        (0, 2**62, 3),
        (-100, 100, 2),
        (3, 3, 1),
        (5, 1, 1),
    ):
        yield Node("Slice", 13, [IMAGE], [i64(start), i64(end), i64(3), i64(step)])
    yield Node("Slice", 13, [IMAGE], [i64(1, 1), i64(2, 4), None, i64(1, 2)][:2])
    yield Node("Split", 11, [IMAGE], attrs={"axis": 3, "split": [2, 4, 1]}, outputs=3)
    yield Node("Split", 13, [IMAGE], [i64(1, 4)], {"axis": 2}, 2)
    yield Node("Split", 13, [IMAGE], attrs={"axis": 1}, outputs=3)
    yield Node("Split", 18, [IMAGE], attrs={"axis": -1, "num_outputs": 3}, outputs=3)
    yield Node("Gather", 13, [IMAGE], [np.array(2, np.int64)], {"axis": 2})
    yield Node("Gather", 13, [IMAGE], [i64(0, 2, 4)], {"axis": 2})
    yield Node("Gather", 13, [IMAGE], [i64(-1, -2)], {"axis": -1})
    yield Node("Gather", 13, [IMAGE], [i64(1, 1, 0)], {"axis": 1})
    yield Node(
        "Gather", 13, [IMAGE], [np.array([[0, -1], [3, 3]], np.int64)], {"axis": 3}
    )
    yield Node("Gather", 13, [IMAGE, np.array([[4, -5]], np.int64)], attrs={"axis": 2})
    yield Node("GatherND", 13, [IMAGE, np.array([[0, 1], [0, -2]], np.int64)])
    yield Node("Tile", 13, [IMAGE], [i64(1, 2, 1, 3)])
    yield Node("Expand", 13, [IMAGE[:, :, :1, :1]], [i64(5, 1)])
    yield Node("Expand", 13, [VECTOR], [i64(2, 3, 1)])
    for mode, opset in itertools.product(("DCR", "CRD"), (11, 13)):
        yield Node(
            "DepthToSpace",
            opset,
            [_RNG.normal(size=(1, 8, 2, 3)).astype(np.float32)],
            attrs={"blocksize": 2, "mode": mode},
        )
    yield Node("SpaceToDepth", 13, [IMAGE[:, :, :4, :6]], attrs={"blocksize": 2})
    for axis, keep in itertools.product((0, 1, -1), (0, 1)):
        for op in ("ArgMax", "ArgMin"):
            yield Node(op, 13, [IMAGE], attrs={"axis": axis, "keepdims": keep})
    yield Node(
        "ArgMax", 13, [np.round(IMAGE)], attrs={"axis": 2, "select_last_index": 1}
    )


def _casts() -> Iterator[Node]:
    wide = (IMAGE * 40).astype(np.float32)
    for to in (1, 2, 3, 6, 7, 9):  # float, uint8, int8, int32, int64, bool
        yield Node("Cast", 13, [np.abs(wide) if to == 2 else wide], attrs={"to": to})
        yield Node("Cast", 13, [wide.astype(np.int64)], attrs={"to": to})


def _pads() -> Iterator[Node]:
    pads = [0, 0, 1, 2, 0, 1, 2, 3]
    for mode in ("constant", "reflect", "edge"):
        yield Node(
            "Pad",
            10,
            [IMAGE],
            attrs={"pads": pads, "mode": mode}
            if mode == "constant"
            else {"pads": [0, 0, 1, 2, 0, 0, 2, 3], "mode": mode},
        )
        yield Node("Pad", 13, [IMAGE], [i64(0, 0, 1, 2, 0, 0, 2, 3)], {"mode": mode})
    yield Node("Pad", 9, [IMAGE], attrs={"pads": pads, "value": 1.5})
    yield Node("Pad", 11, [IMAGE], [i64(*pads), np.array(-2.5, np.float32)])
    yield Node("Pad", 13, [IMAGE], [i64(0, 0, -1, 1, 0, 0, 2, -3)])
    yield Node("Pad", 18, [IMAGE], [i64(1, 2, 3, 4), None, i64(2, -1)])
    yield Node("Pad", 19, [IMAGE], [i64(0, 0, 1, 2, 0, 0, 2, 3)], {"mode": "wrap"})
    yield Node("Pad", 13, [IMAGE], [i64(*pads), np.array(-np.inf, np.float32)])


_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_SIZES = ((10, 14), (3, 4), (5, 9), (1, 1), (16, 16))


def _resizes() -> Iterator[Node]:
    attrs: dict[str, Any]
    for mode, (h, w) in itertools.product(_COORDINATES, _SIZES):
        sizes = i64(1, 3, h, w)
        yield Node(
            "Resize",
            13,
            [IMAGE],
            [None, None, sizes],
            {"mode": "linear", "coordinate_transformation_mode": mode},
        )
        yield Node(
            "Resize",
            13,
            [IMAGE],
            [None, None, sizes],
            {"mode": "cubic", "coordinate_transformation_mode": mode},
        )
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
            attrs = {
                "mode": "nearest",
                "coordinate_transformation_mode": mode,
                "nearest_mode": rounding,
            }
            yield Node("Resize", 13, [IMAGE], [None, None, sizes], attrs)
    for kind, mode, scale in itertools.product(
        ("nearest", "linear"), _COORDINATES, (2.0, 1.7, 0.6, 3.0)
    ):
        attrs = {"mode": kind, "coordinate_transformation_mode": mode}
        yield Node("Resize", 11, [IMAGE], [f32(), f32(1, 1, scale, scale)], attrs)
        yield Node(
            "Resize", 18, [IMAGE], [None, f32(scale, scale)], {**attrs, "axes": [2, 3]}
        )
    for scale, kind in itertools.product((2.0, 3.0, 1.5), ("nearest", "linear")):
        yield Node("Resize", 10, [IMAGE], [f32(1, 1, scale, scale)], {"mode": kind})
        yield Node("Upsample", 9, [IMAGE], [f32(1, 1, scale, scale)], {"mode": kind})
        yield Node(
            "Upsample",
            7,
            [IMAGE],
            attrs={"mode": kind, "scales": [1.0, 1.0, scale, scale]},
        )
    yield Node("Resize", 10, [IMAGE], [f32(1, 1, 0.5, 0.5)], {"mode": "nearest"})
    for policy in ("not_larger", "not_smaller"):
        attrs = {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": policy}
        yield Node("Resize", 18, [IMAGE], [None, None, i64(8, 8)], attrs)
    attrs = {
        "mode": "cubic",
        "coordinate_transformation_mode": "half_pixel",
        "exclude_outside": 1,
        "cubic_coeff_a": -0.5,
    }
    yield Node("Resize", 13, [IMAGE], [None, None, i64(1, 3, 8, 9)], attrs)
    yield Node(
        "Resize",
        13,
        [IMAGE],
        [None, None, i64(1, 6, 10, 7)],
        {
            "mode": "nearest",
            "nearest_mode": "floor",
            "coordinate_transformation_mode": "asymmetric",
        },
    )
    attrs = {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
    yield Node("Resize", 19, [IMAGE], [None, f32(1, 1, 1.7, 0.6)], attrs)


def _grids() -> Iterator[Node]:
    grid = _RNG.uniform(-1.6, 1.6, (1, 6, 8, 2)).astype(np.float32)
    for mode, padding, align in itertools.product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
        yield Node("GridSample", 16, [IMAGE, grid], attrs=attrs)
    for mode in ("linear", "nearest", "cubic"):
        yield Node("GridSample", 20, [IMAGE, grid], attrs={"mode": mode})


def _norms() -> Iterator[Node]:
    ch = [_RNG.normal(size=3).astype(np.float32) for _ in range(3)]
    var = _RNG.uniform(0.1, 3, 3).astype(np.float32)
    yield Node("BatchNormalization", 9, [IMAGE], [*ch, var], {"epsilon": 1e-3})
    yield Node("BatchNormalization", 15, [IMAGE], [*ch, var])
    yield Node("BatchNormalization", 15, [IMAGE[0, :, :, 0].T.copy()], [*ch, var])
    yield Node("BatchNormalization", 15, [IMAGE[:, :, 0]], [*ch, var])
    yield Node("InstanceNormalization", 6 + 1, [IMAGE], ch[:2])
    yield Node("InstanceNormalization", 13, [IMAGE * 3 + 50], ch[:2], {"epsilon": 1e-3})
    yield Node("InstanceNormalization", 13, [IMAGE[:, :, 0]], ch[:2])
    wide = _RNG.normal(size=(2, 6, 4, 4)).astype(np.float32)
    row = [_RNG.normal(size=6).astype(np.float32) for _ in range(2)]
    yield Node("GroupNormalization", 21, [wide], row, {"num_groups": 3})
    yield Node(
        "GroupNormalization", 18, [wide], [r[:3] for r in row], {"num_groups": 3}
    )
    yield Node("LayerNormalization", 17, [wide], [r[:4] for r in row])
    yield Node(
        "LayerNormalization", 17, [wide], [np.ones((4, 4), np.float32)], {"axis": 2}
    )


def _channel_norms() -> Iterator[Node]:
    for axis in (1, -1):
        yield Node("LpNormalization", 13, [IMAGE], attrs={"axis": axis, "p": 2})
    yield Node(
        "LRN",
        13,
        [_RNG.normal(size=(1, 9, 4, 4)).astype(np.float32)],
        attrs={"size": 3, "alpha": 0.3},
    )


def _cases(*groups: Iterator[Node]) -> list[Any]:
    return [
        pytest.param(node, id=f"{i}-{node}")
        for group in groups
        for i, node in enumerate(group)
    ]


@pytest.mark.parametrize("node", _cases(_moves(), _casts(), _pads()))
def test_movement_is_onnxruntimes(node: Node) -> None:
    node.check(0.0)


@pytest.mark.parametrize(
    "node", _cases(_resizes(), _grids(), _norms(), _channel_norms())
)
def test_resampling_is_onnxruntimes(node: Node) -> None:
    node.check()


@pytest.mark.parametrize(
    "node",
    _cases(
        iter(
            [
                Node("Shape", 13, [IMAGE]),
                Node("Shape", 15, [IMAGE], attrs={"start": 1, "end": -1}),
                Node("Size", 13, [IMAGE]),
                Node("ConstantOfShape", 9, [], [i64(2, 3)]),
                Node("ConstantOfShape", 9, [], [i64(2)]),
                Node(
                    "Range",
                    11,
                    [],
                    [
                        np.array(2, np.int64),
                        np.array(9, np.int64),
                        np.array(3, np.int64),
                    ],
                ),
                Node(
                    "Range",
                    11,
                    [],
                    [
                        np.array(1, np.float32),
                        np.array(-1, np.float32),
                        np.array(-0.5, np.float32),
                    ],
                ),
            ]
        )
    ),
)
def test_known_when_read(node: Node) -> None:
    graph = node.graph()
    assert not graph.ops
    for name, want in node.expected().items():
        (got,) = (v for v in graph.outputs if v.name == name)
        np.testing.assert_array_equal(got.const, want)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Node("Slice", 13, [IMAGE], [i64(0), i64(1), i64(3), i64(0)]), "step 0"),
        (Node("Slice", 13, [IMAGE, i64(0)], [i64(1), i64(3)]), "computed at run time"),
    ],
)
def test_refusals_say_why(node: Node, text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        node.graph()
