"""Quantizes a float graph by the TFLite 8-bit quantization specification.

The result is a mixed graph: ops without an int8 form stay float32 between conversions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgec.ir import Array, Graph, TensorType, Value
from edgec.quantize.change.lower import lower
from edgec.quantize.change.rewrite import rewrite
from edgec.quantize.observe.ranges import Range, calibrate

MAX_NUMPY_MACS = 20 * 10**9
"""The most multiply-accumulates that are computed in numpy to assume ranges: twice those
of the largest networks that boards run.
"""


def is_quantized(graph: Graph) -> bool:
    """Return whether any op already computes on quantized integers.

    Integers of 16 bits do not count: at the border of a graph they are floats inside.
    """
    for op in graph.ops:
        for v in op.inputs:
            if v.type.is_quantized and v.type.dtype != "int16":
                return True
    return False


def quantize(graph: Graph, samples: Sequence[Mapping[str, Array]]) -> Graph:
    """Return the int8 form of a float graph with the observed extremes as ranges.

    Inputs and outputs keep their names and types.

    Raises InputError when there is no sample.
    """
    lowered = lower(graph)
    return quantize_ranges(lowered, calibrate(lowered, samples))


def assumed(graph: Graph, seed: int = 0) -> Graph:
    """Return `quantize` with one random sample in [0, 1] instead of calibration data.

    It is `evenly` for a graph that would run for minutes. The result is not fit to run:
    it is for questions that the scales hardly change (which op maps where).
    """
    if sum(op.spec.macs(op) for op in graph.ops) > MAX_NUMPY_MACS:
        return evenly(graph)
    return quantize(graph, [random_sample(graph, seed)])


def evenly(graph: Graph) -> Graph:
    """Return `quantize` with one made-up range for every value.

    Nothing runs, and no two scales keep ops apart. The result is not fit to run: it
    shows the ops that TFLite's quantizer would make int8.
    """
    lowered = lower(graph)
    floats = [v for v in lowered.values() if v.type.dtype == "float32"]
    return quantize_ranges(lowered, dict.fromkeys(floats, (-1.0, 1.0)))


def random_sample(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Return reproducible inputs that any graph accepts.

    They are reals in [0, 1), all integers of int8 and uint8, and index 0.
    """
    rng = np.random.default_rng(seed)

    return {v.name: _random(v.type, rng) for v in graph.inputs}


def _random(t: TensorType, rng: np.random.Generator) -> Array:
    """Return one random input of a type."""
    if t.np_dtype.kind == "f":
        return rng.random(t.shape, np.float32).astype(t.np_dtype)

    # A mask of zeros would leave nothing to compute.
    if t.dtype == "bool":
        return np.ones(t.shape, bool)

    is_tensor_data = t.dtype in ("int8", "uint8") or t.is_quantized
    if t.np_dtype.kind not in "iu" or not is_tensor_data:
        # An index: zero is legal for every dimension.
        return np.zeros(t.shape, t.np_dtype)

    info = np.iinfo(t.np_dtype)

    return rng.integers(info.min, info.max, t.shape, t.np_dtype, endpoint=True)


def quantize_ranges(graph: Graph, ranges: Mapping[Value, Range]) -> Graph:
    """Return the int8 form of a float graph with known ranges of its values."""
    return rewrite(graph, ranges).graph
