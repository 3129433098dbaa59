"""ONNX's Resize of integers and of any rank: as onnxruntime and ONNX's reference have it,
and in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from edgec.ir import Array, interp
from tests.harness import assert_agree, run_c
from tests.ops.onnx_node import Node

_RNG = np.random.default_rng(0)
_IMAGE = (1, 3, 7, 9)
_IMAGE_LAST = (1, 7, 9, 3)
_MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def _resize(
    x: Array, sizes: Sequence[int], mode: str, opset: int = 13, **attrs: Any
) -> Node:
    constants = [None, None, np.array(sizes, np.int64)]
    return Node("Resize", opset, [x], constants, {"mode": mode, **attrs})


def _integers(dtype: str, shape: Sequence[int]) -> Array:
    """Numbers of the whole range, and a flat part, where sums are whole numbers."""
    info = np.iinfo(dtype)
    x = _RNG.integers(max(info.min, -(2**20)), min(info.max, 2**20), shape)
    x[:, :2] = min(info.max, 2**24)
    return x.astype(dtype)


def _in_c(node: Node, tolerance: float = 0.0) -> None:
    graph = node.graph()
    feeds = node.feeds()
    assert_agree(run_c(graph, feeds), interp(graph, feeds), tolerance)


@pytest.mark.cc
@pytest.mark.parametrize("coordinates", _MODES)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers_are_cut_off_as_onnxruntime_does(dtype: str, coordinates: str) -> None:
    attrs: dict[str, Any] = {"coordinate_transformation_mode": coordinates}
    for height, width in ((12, 5), (14, 18), (13, 23)):
        first = _resize(
            _integers(dtype, _IMAGE), (1, 3, height, width), "linear", **attrs
        )
        last = _resize(
            _integers(dtype, _IMAGE_LAST), (1, height, width, 3), "linear", **attrs
        )
        for node in (first, last):
            node.check(0.0)
    _in_c(first)
    _in_c(last)


@pytest.mark.parametrize("attrs", [{}, {"antialias": 1}])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_integers_are_rounded_as_the_reference_does(
    dtype: str, attrs: dict[str, Any]
) -> None:
    """onnxruntime has no cubic resize of integers, and gives its antialiased ones other
    numbers than those of the reference.
    """
    for shape, sizes in (
        ((1, 3, 17, 19), (1, 3, 6, 5)),
        ((17, 19), (6, 5)),
        ((1, 5, 6, 3), (1, 9, 8, 3)),
    ):
        node = _resize(_integers(dtype, shape), sizes, "cubic", 18, **attrs)
        evaluator = ReferenceEvaluator(onnx.load_from_string(node.model()))
        (want,) = evaluator.run(None, node.feeds())
        got = interp(node.graph(), node.feeds())["y0"]
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)


_RANKS = (
    ((4, 9), (6, 5)),
    ((2, 4, 9), (2, 4, 13)),
    ((2, 4, 9), (2, 7, 13)),
    ((1, 2, 4, 9), (1, 3, 4, 9)),
    ((1, 2, 4, 5, 6), (1, 2, 7, 9, 5)),
    ((1, 2, 4, 5, 6), (1, 2, 7, 5, 6)),
    ((1, 2, 4, 5, 6), (1, 2, 4, 3, 6)),
)


@pytest.mark.cc
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("shape", "sizes"), _RANKS)
def test_any_axes_are_resized(
    shape: Sequence[int], sizes: Sequence[int], mode: str
) -> None:
    reals = _RNG.normal(size=shape).astype(np.float32)
    node = _resize(reals, sizes, mode)
    node.check()
    _in_c(node, 1e-6)

    # A sum of three axes may round to the other side of a whole number.
    noise = _RNG.integers(0, 256, shape).astype(np.uint8)
    node = _resize(noise, sizes, mode)
    got = interp(node.graph(), node.feeds())["y0"].astype(int)
    off = np.abs(got - node.expected()["y0"])
    assert off.max() <= (mode == "linear")
    assert off.mean() < 0.03
    _in_c(node)


def test_a_line_is_resized_as_onnx_says() -> None:
    """onnxruntime has no resize of one axis alone."""
    x = _RNG.normal(size=9).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        node = _resize(x, (14,), mode)
        evaluator = ReferenceEvaluator(onnx.load_from_string(node.model()))
        (want,) = evaluator.run(None, node.feeds())
        got = interp(node.graph(), node.feeds())["y0"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
