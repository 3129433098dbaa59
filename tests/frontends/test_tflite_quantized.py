"""Operators on int8 and uint8, of random sizes and scales, against LiteRT's reference
kernels: bit for bit, in interp and in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, interp
from edgec.passes.pipeline import optimize
from edgec.toolchain.cc import Compiler
from tests.frontends.tflite_operators import (
    Given,
    const,
    model_of,
    packed,
    quantized,
    reference,
)
from tests.harness import LIBRARY, build_library, joined, run_segment
from tests.schedule.runner import run_on

_CASES = 40
"""Random operators of one test, compiled together."""
_NUMBERS = ("float32", "int8", "uint8", "int32", "int64", "bool")
Quant = tuple[Sequence[float], Sequence[int], int]
Options = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class _Operator:
    """An operator: name, options, inputs, and its output's shape, type and scale."""

    name: str
    options: Options
    inputs: Sequence[Given]
    shape: Sequence[int]
    dtype: str
    quant: Quant | None = None
    version: int = 1

    def file(self) -> bytes:
        outputs = [(self.shape, self.dtype)]
        model = model_of(self.name, self.options, self.inputs, outputs, self.version)
        if self.quant is not None:
            quantized(model.subgraphs[0].tensors[-1], self.quant)
        return packed(model)

    def fed(self) -> dict[str, Array]:
        return {f"x{i}": x.data for i, x in enumerate(self.inputs) if not x.const}

    def graph(self, folder: Path) -> Graph:
        path = folder / "m.tflite"
        path.write_bytes(self.file())
        return read_model(path)


def _scale(rng: np.random.Generator, low: float = -3, high: float = 0) -> float:
    """A scale between two powers of ten, below 1."""
    return float(np.float32(10 ** rng.uniform(low, high) * 0.999))


def _quant(rng: np.random.Generator, dtype: str, scale: float) -> Quant:
    low = 0 if dtype == "uint8" else -128
    return [scale], [int(rng.integers(low, low + 256))], 0


def _elements(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> Array:
    if dtype == "float32":
        return rng.normal(size=shape).astype(np.float32)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if dtype == "uint8" else -128
    # Of few values many are equal.
    span = int(rng.choice([256, 40, 4]))
    return rng.integers(low, low + span, shape).astype(dtype)


def _given(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> Given:
    quant = None
    if dtype in ("int8", "uint8"):
        quant = _quant(rng, dtype, _scale(rng))
    return Given(_elements(rng, dtype, shape), quant=quant)


def _broadcast(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast to a third."""
    shapes = []
    for _ in range(2):
        kept = rng.random(len(shape)) < 0.7
        shapes.append(tuple(n if k else 1 for n, k in zip(shape, kept, strict=True)))
    a, b = shapes
    # One of them has each size, and one may lack leading ones.
    a = tuple(n if m == 1 else k for n, m, k in zip(shape, b, a, strict=True))
    while b and b[0] == 1 and rng.random() < 0.5:
        b = b[1:]
    return a, b


def _batch_matmul(rng: np.random.Generator) -> _Operator:
    lead = tuple(map(int, rng.integers(1, 4, int(rng.integers(0, 4)))))
    m, n = map(int, rng.integers(1, 20, 2))
    k = int(rng.choice([1, 7, 32, 300]))
    adj_x, adj_y = map(bool, rng.integers(0, 2, 2))
    a_lead, b_lead = _broadcast(rng, lead)
    left = _given(rng, "int8", (*a_lead, *((k, m) if adj_x else (m, k))))
    right = _given(rng, "int8", (*b_lead, *((n, k) if adj_y else (k, n))))
    left, right = (replace(x, const=False) for x in (left, right))
    if rng.random() < 0.3:
        right = replace(right, const=True)
    assert left.quant is not None
    assert right.quant is not None
    product = left.quant[0][0] * right.quant[0][0]
    scale = float(np.float32(product * 10 ** rng.uniform(0.5, 3.5)))
    options = ("BatchMatMulOptions", {"adjX": adj_x, "adjY": adj_y})
    quant = _quant(rng, "int8", scale)
    shape = (*np.broadcast_shapes(a_lead, b_lead), m, n)
    return _Operator("BATCH_MATMUL", options, [left, right], shape, "int8", quant, 2)


def _log_softmax(rng: np.random.Generator) -> _Operator:
    dtype = str(rng.choice(["int8", "uint8"]))
    rank = int(rng.integers(1, 5))
    row = int(rng.choice([1, 2, 10, 100, 1500]))
    shape = (*map(int, rng.integers(1, 4, rank - 1)), row)
    quant = _quant(rng, dtype, _scale(rng, -4, 1.5))
    x = Given(_elements(rng, dtype, shape), quant=quant)
    output: Quant = ([1 / 16], [127 if dtype == "int8" else 255], 0)
    return _Operator(
        "LOG_SOFTMAX", ("LogSoftmaxOptions", {}), [x], shape, dtype, output, 2
    )


def _comparison(rng: np.random.Generator) -> _Operator:
    names = ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual")
    table = str(rng.choice(names))
    name = "".join(f"_{c}" if c.isupper() else c.upper() for c in table)[1:]
    dtype = str(rng.choice(["int8", "uint8"]))
    shape = tuple(map(int, rng.integers(1, 12, int(rng.integers(1, 5)))))
    a_shape, b_shape = _broadcast(rng, shape)
    a_scale, b_scale = _scale(rng, -4), _scale(rng, -4)
    if rng.random() < 0.5:
        b_scale = a_scale * float(rng.choice([1, 0.5]))
    a = Given(_elements(rng, dtype, a_shape), quant=_quant(rng, dtype, a_scale))
    b = Given(_elements(rng, dtype, b_shape), quant=_quant(rng, dtype, b_scale))
    out = np.broadcast_shapes(a_shape, b_shape)
    return _Operator(
        name.upper(), (f"{table}Options", {}), [a, b], out, "bool", None, 2
    )


def _select(rng: np.random.Generator) -> _Operator:
    dtype = str(rng.choice(_NUMBERS))
    shape = tuple(map(int, rng.integers(1, 9, int(rng.integers(1, 5)))))
    a = _given(rng, dtype, shape)
    b = Given(_elements(rng, dtype, shape), quant=a.quant)
    if rng.random() < 0.6:
        chosen = [shape, (), shape[:1]][int(rng.integers(3))]
        condition = Given(_elements(rng, "bool", chosen))
        return _Operator(
            "SELECT", ("SelectOptions", {}), [condition, a, b], shape, dtype, a.quant, 1
        )
    a_shape, chosen = _broadcast(rng, shape)
    a = replace(a, data=_elements(rng, dtype, a_shape))
    condition = Given(_elements(rng, "bool", chosen))
    v2: Options = ("SelectV2Options", {})
    return _Operator("SELECT_V2", v2, [condition, a, b], shape, dtype, a.quant)


def _nearest(rng: np.random.Generator) -> _Operator:
    dtype = str(rng.choice(["float32", "int8", "uint8"]))
    n, h, w, c = map(int, rng.integers(1, 12, 4))
    size = tuple(map(int, rng.integers(1, 30, 2)))
    if rng.random() < 0.2:
        size = (h, w)
    align, half = map(bool, rng.integers(0, 2, 2))
    options = {"alignCorners": align, "halfPixelCenters": half}
    x = _given(rng, dtype, (n, h, w, c))
    return _Operator(
        "RESIZE_NEAREST_NEIGHBOR",
        ("ResizeNearestNeighborOptions", options),
        [x, const(size)],
        (n, *size, c),
        dtype,
        x.quant,
        3,
    )


def _by_plain_c(
    graphs: Sequence[Graph], fed: Sequence[Mapping[str, Array]], folder: Path
) -> list[dict[str, Array]]:
    """Outputs of every graph by the plain kernels."""
    sources = [segment_source(graph, f"seg{i}") for i, graph in enumerate(graphs)]
    build_library(joined(sources), folder, Compiler.native("gcc"))
    results = []
    for source, graph, inputs in zip(sources, graphs, fed, strict=True):
        results.append(run_segment(folder / LIBRARY, source, graph, inputs))
    return results


_OPERATORS: Mapping[str, Callable[[np.random.Generator], _Operator]] = {
    "batch_matmul": _batch_matmul,
    "log_softmax": _log_softmax,
    "comparison": _comparison,
    "select": _select,
    "nearest": _nearest,
}


@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", _OPERATORS)
def test_random_operators_are_litert(name: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng((seed, *name.encode()))
    operators = [_OPERATORS[name](rng) for _ in range(_CASES)]
    fed = [operator.fed() for operator in operators]
    want = [
        reference(operator.file(), inputs)
        for operator, inputs in zip(operators, fed, strict=True)
    ]
    graphs = [operator.graph(tmp_path) for operator in operators]
    optimized = [optimize(operator.graph(tmp_path)) for operator in operators]
    ways = {
        "interp": [interp(g, x) for g, x in zip(graphs, fed, strict=True)],
        "plain C": _by_plain_c(optimized, fed, tmp_path),
        "AVX2": run_on("x86_64_v3", optimized, fed),
    }
    for way, results in ways.items():
        for operator, result, right in zip(operators, results, want, strict=True):
            message = f"{way}: {operator}"
            np.testing.assert_array_equal(result["y0"], right["y0"], message)


@pytest.mark.parametrize("name", _OPERATORS)
def test_an_operator_is_litert(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for _ in range(12):
        operator = _OPERATORS[name](rng)
        right = reference(operator.file(), operator.fed())["y0"]
        result = interp(operator.graph(tmp_path), operator.fed())["y0"]
        np.testing.assert_array_equal(result, right, str(operator))


@pytest.mark.cc
def test_scales_from_1_on_compare_reals(tmp_path: Path) -> None:
    """LiteRT ends its process or shifts by negative numbers."""
    pairs = np.arange(256, dtype=np.uint8)
    a = Given(pairs[:, None], quant=([1.0], [0], 0))
    b = Given(pairs, quant=([2.5], [3], 0))
    options: Options = ("LessOptions", {})
    operator = _Operator("LESS", options, [a, b], (256, 256), "bool", None, 2)
    want = pairs[:, None] < (pairs.astype(float) - 3) * 2.5
    graph = operator.graph(tmp_path)
    for way in (
        interp(graph, operator.fed()),
        *_by_plain_c([optimize(graph)], [operator.fed()], tmp_path),
    ):
        np.testing.assert_array_equal(way["y0"], want)


def _refused(operator: _Operator, folder: Path) -> str:
    with pytest.raises(UnsupportedError) as caught:
        operator.graph(folder)
    assert operator.name in str(caught.value.at)
    return caught.value.what


def test_others_are_refused_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    one = _given(rng, "int8", (4, 3))
    huge = replace(one, quant=([32768.0], [0], 0))
    compared = _Operator("LESS", ("LessOptions", {}), [one, huge], (4, 3), "bool")
    assert "below 32768" in _refused(compared, tmp_path)

    options: Options = ("LogSoftmaxOptions", {})
    softmax = _Operator("LOG_SOFTMAX", options, [one], (4, 3), "int8", one.quant)
    assert "1/16" in _refused(softmax, tmp_path)

    columns = Given(_elements(rng, "bool", (3,)))
    inputs = [columns, one, one]
    select = _Operator(
        "SELECT", ("SelectOptions", {}), inputs, (4, 3), "int8", one.quant
    )
    assert "cannot choose by bool[3]" in _refused(select, tmp_path)

    flags = {"alignCorners": True, "halfPixelCenters": True}
    image = Given(_elements(rng, "float32", (1, 3, 4, 2)))
    bilinear = _Operator(
        "RESIZE_BILINEAR",
        ("ResizeBilinearOptions", flags),
        [image, const([5, 6])],
        (1, 5, 6, 2),
        "float32",
    )
    assert "align_corners together with half_pixel_centers" in _refused(
        bilinear, tmp_path
    )
