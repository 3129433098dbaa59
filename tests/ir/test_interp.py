"""The interpreter's limits: results that no memory holds, ops that lack a scale; and
names, in linear time.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from edgec.errors import UnsupportedError
from edgec.ir import Array, Builder, Op, Quant, TensorType, Value, fold, interp
from edgec.ops.binary import Add
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import BatchMatMul


def test_a_result_that_memory_does_not_hold() -> None:
    side = 1 << 20
    b = Builder("m")
    x = b.input("x", TensorType((1, side, 1)))
    y = b.input("y", TensorType((1, 1, side)))
    b.source = "product"
    b.graph.outputs = [b.add(BatchMatMul(), [x, y])]
    with pytest.raises(
        UnsupportedError,
        match=r"float32\[1,1048576,1048576\] \(4,398,047 MB\) takes more memory",
    ) as e:
        interp(b.graph, {v.name: np.ones(v.type.shape, np.float32) for v in (x, y)})
    assert e.value.at == "batch_matmul product"


def test_a_convolution_takes_memory_for_some_rows_of_patches_not_for_all() -> None:
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(-5, 6, shape).astype(np.float32)
        for shape in ((2, 400, 500, 4), (2, 9, 9, 2))
    )
    b = Builder("m")
    image = b.input("x", TensorType(x.shape))
    b.graph.outputs = [b.add(Conv2D(pads=(4, 4, 4, 4)), [image, b.const(w, "w")])]
    tracemalloc.start()
    (y,) = interp(b.graph, {"x": x}).values()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6, "the patches of all rows of one group are 130 MB"
    padded = np.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)))
    for row in (0, 102, 103, 399):
        taps = [
            np.einsum("nwkgc,gkc->nwg", _taps(padded[:, row + i], 500), w[:, i])
            for i in range(9)
        ]
        np.testing.assert_array_equal(y[:, row], np.sum(taps, axis=0))


def _taps(row: Array, width: int) -> Array:
    """[N, width, tap, group, channel] of a padded row, groups of two channels."""
    return np.stack(
        [row[:, i : i + width].reshape(len(row), width, 2, 2) for i in range(9)], axis=2
    )


def test_a_sum_that_lacks_a_scale_does_not_fold() -> None:
    a = Value("a", TensorType((2,), "int8", Quant.per_tensor(0.5)), np.ones(2, np.int8))
    b = Value("b", TensorType((2,), "int8"), np.ones(2, np.int8))
    y = Value("y", TensorType((2,), "int8", Quant.per_tensor(0.5)))
    assert not fold(Op(Add(), [a, b], [y]))
    assert y.const is None


def test_names_of_one_base_are_found_in_linear_time() -> None:
    """Twenty times as many take twenty times as long, not four hundred."""

    def seconds(count: int) -> float:
        b = Builder("m")
        start = time.process_time()
        assert [b.name("t") for _ in range(count)][-1] == f"t_{count - 1}"
        return time.process_time() - start

    # Other work on the machine, or a collection, only adds to it.
    many, few = (min(seconds(n) for _ in range(3)) for n in (40_000, 2_000))
    assert many < 100 * max(few, 1e-4)
