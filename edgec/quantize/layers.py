"""Which op of a quantized graph loses most: the int8 values of one inference against those of the float graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgec.ir import Array, Graph, Op, TensorType, Value
from edgec.ir.interp import run_op
from edgec.ir.types import dequantize
from edgec.ops.quantize import Quantize
from edgec.quantize.accuracy import tally
from edgec.quantize.observers import Run

_CANDIDATES = 8
"""So many ops, those whose result is worst beside what they read, are computed once more from true inputs."""
_CLEAN_DB = 60.0
"""What has no more noise than this counts as having none."""


@dataclass(frozen=True)
class LayerNoise:
    """The noise of one int8 op, as signal to noise about the mean of its result.

    own_sqnr_db: when it reads the float graph's values, each rounded to int8. sqnr_db: with all that it inherits.
    value: the tensor that it writes. part: where it is. source: the nodes of the model file.
    """

    value: str
    kind: str
    source: str
    part: str
    own_sqnr_db: float
    sqnr_db: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def worst_layer(
    parts: Mapping[str, Graph], got: Mapping[str, Array], reference: Graph, run: Run, sample: Mapping[str, Array]
) -> LayerNoise | None:
    """The op with the most noise of its own; None where no value of the two graphs can be told to be the same.

    parts: the quantized graph in pieces, by name. got: the int8 results that it had for `sample`, by name. reference,
    run: the float graph that was quantized. The float graph runs twice, and none of its values is kept but those of
    a few ops.
    """
    twins = _twins(parts, reference)
    noise = _noise(parts, got, twins, run, sample)
    ranked = sorted(
        (
            (_drop(op, noise), i, part, op)
            for part, g in parts.items()
            for i, op in enumerate(g.ops)
            if _known(op, noise)
        ),
        key=lambda row: (-row[0], row[2], row[1]),
    )[:_CANDIDATES]
    wanted = {twins[v.name] for *_, op in ranked for v in (*op.inputs, *op.outputs) if v.name in twins}
    floats: dict[Value, Array] = {}

    def keep(v: Value, array: Array) -> None:
        if v in wanted:
            floats[v] = array.copy()

    run(sample, keep)
    found: list[LayerNoise] = []
    for _, _, part, op in ranked:
        own = _own(op, twins, floats)
        if own is not None:
            found.append(LayerNoise(op.output.name, op.kind, op.source, part, own, noise[op.output.name]))
    return min(found, key=lambda layer: layer.own_sqnr_db, default=None)


def _is_int8(v: Value) -> bool:
    return v.const is None and v.type.dtype == "int8" and v.type.quant is not None


def _known(op: Op, noise: Mapping[str, float]) -> bool:
    return len(op.outputs) == 1 and op.output.name in noise


def _twins(parts: Mapping[str, Graph], reference: Graph) -> dict[str, Value]:
    """The float value that stands behind each value of the quantized graph, by its name (see quantize.py)."""
    floats = {v.name: v for v in reference.values() if v.const is None and v.type.dtype == "float32"}
    found: dict[str, Value] = {}
    for v in (v for g in parts.values() for v in g.values() if v.const is None):
        twin = floats.get(v.name) or floats.get(v.name.removesuffix("_int8"))
        if twin is not None and twin.type.shape == v.type.shape and (_is_int8(v) or v.type.dtype == "float32"):
            found[v.name] = twin
    return found


def _noise(
    parts: Mapping[str, Graph],
    got: Mapping[str, Array],
    twins: Mapping[str, Value],
    run: Run,
    sample: Mapping[str, Array],
) -> dict[str, float]:
    """SQNR in dB of every int8 value that has a twin."""
    readers: dict[Value, list[Value]] = {}
    for v in (v for g in parts.values() for op in g.ops for v in op.outputs):
        if v.name in twins and v.name in got and _is_int8(v):
            readers.setdefault(twins[v.name], []).append(v)
    noise: dict[str, float] = {}

    def observe(real: Value, array: Array) -> None:
        for v in readers.get(real, ()):
            noise[v.name] = tally(array, dequantize(got[v.name], v.type)).centred_sqnr_db()

    run(sample, observe)
    return noise


def _drop(op: Op, noise: Mapping[str, float]) -> float:
    """How much worse the result is than the worst of what the op reads, in dB."""
    before = min((noise[v.name] for v in op.inputs if v.name in noise), default=_CLEAN_DB)
    return min(before, _CLEAN_DB) - noise[op.output.name]


def _own(op: Op, twins: Mapping[str, Value], floats: Mapping[Value, Array]) -> float | None:
    """SQNR in dB of the op on the float graph's values; None where one that it reads is not known."""
    env: dict[Value, Array] = {}
    for v in op.inputs:
        if v.const is None:
            real = floats.get(twins[v.name]) if v.name in twins else None
            if real is None:
                return None
            env[v] = _rounded(real, v.type) if _is_int8(v) else real
    y = op.output
    return tally(floats[twins[y.name]], dequantize(run_op(op, env)[0], y.type)).centred_sqnr_db()


def _rounded(real: Array, t: TensorType) -> Array:
    return Quantize(t.dtype).ref([real], [TensorType(real.shape)], [t])[0]
