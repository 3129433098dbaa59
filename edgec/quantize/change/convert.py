"""Float graph → mixed int8 graph, by the TFLite 8-bit quantization specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgec.ir import Array, Graph, TensorType, Value
from edgec.quantize.change.lower import lower
from edgec.quantize.change.rewrite import rewrite
from edgec.quantize.observe.ranges import Range, calibrate

_MOST_MACS = 20 * 10**9
"""That are computed in numpy to assume ranges: twice those of the largest networks that
boards run.
"""


def is_quantized(graph: Graph) -> bool:
    """Whether any op already computes on quantized integers; those of 16 bits at the
    border are floats inside.
    """
    return any(
        v.type.is_quantized and v.type.dtype != "int16"
        for op in graph.ops
        for v in op.inputs
    )


def quantize(graph: Graph, samples: Sequence[Mapping[str, Array]]) -> Graph:
    """The int8 form of a float graph, its ranges the smallest and the largest elements
    over `samples`.

    Inputs and outputs keep their names and types; ops without an int8 form stay float32
    between conversions. Raises InputError when there is no sample.
    """
    lowered = lower(graph)
    return quantize_ranges(lowered, calibrate(lowered, samples))


def assumed(graph: Graph, seed: int = 0) -> Graph:
    """`quantize` with one random sample in [0, 1] instead of calibration data; `evenly`
    where that would take minutes.

    Only for questions that the scales hardly change (what would map where); the result
    is not fit to run.
    """
    if sum(op.spec.macs(op) for op in graph.ops) > _MOST_MACS:
        return evenly(graph)
    return quantize(graph, [random_sample(graph, seed)])


def evenly(graph: Graph) -> Graph:
    """`quantize` with one made-up range for every value, so that nothing is run and no
    two scales keep ops apart.

    Only to see which ops TFLite's quantizer would make int8; the result is not fit to
    run.
    """
    lowered = lower(graph)
    return quantize_ranges(
        lowered, {v: (-1.0, 1.0) for v in lowered.values() if v.type.dtype == "float32"}
    )


def random_sample(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Reproducible inputs that any graph accepts: reals in [0, 1), all of int8 and
    uint8, index 0.
    """
    rng = np.random.default_rng(seed)
    return {v.name: _random(v.type, rng) for v in graph.inputs}


def _random(t: TensorType, rng: np.random.Generator) -> Array:
    if t.np_dtype.kind == "f":
        return rng.random(t.shape, np.float32).astype(t.np_dtype)
    if t.dtype == "bool":
        return np.ones(t.shape, bool)
    whole = t.np_dtype.kind in "iu" and (t.dtype in ("int8", "uint8") or t.is_quantized)
    if not whole:  # an index: zero is always legal
        return np.zeros(t.shape, t.np_dtype)
    info = np.iinfo(t.np_dtype)
    return rng.integers(info.min, info.max, t.shape, t.np_dtype, endpoint=True)


def quantize_ranges(graph: Graph, ranges: Mapping[Value, Range]) -> Graph:
    """The int8 form of a float graph with known ranges of its values."""
    return rewrite(graph, ranges).graph
