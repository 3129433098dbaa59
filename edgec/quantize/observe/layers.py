"""Finds the operation of a quantized graph that loses most.

The int8 values of one inference are compared with those of the float graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgec.ir import Array, Graph, Op, Run, TensorType, Value
from edgec.ir.interp import run_op
from edgec.ir.types import dequantize
from edgec.measure.agreement import tally
from edgec.ops.quantize import Quantize

EQUALLY_BAD_DB = 3.0
"""Operations whose noise differs by less are about as bad."""


@dataclass(frozen=True)
class LayerNoise:
    """The noise of one int8 operation: signal to noise about the mean of its result.

    Attributes:
        value: the name of the tensor that the operation writes.
        kind: the kind of the operation.
        source: the nodes of the model file.
        part: the name of the graph that holds it.
        own_sqnr_db: the ratio where the operation reads the float graph's values, each
            rounded to int8.
        sqnr_db: the ratio with all the noise that the operation inherits.
    """

    value: str
    kind: str
    source: str
    part: str
    own_sqnr_db: float
    sqnr_db: float

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON, with None for an infinite ratio."""
        return {
            k: None if isinstance(v, float) and not math.isfinite(v) else v
            for k, v in asdict(self).items()
        }


def worst_layer(
    parts: Mapping[str, Graph],
    got: Mapping[str, Array],
    reference: Graph,
    run: Run,
    sample: Mapping[str, Array],
) -> LayerNoise | None:
    """Return the operation with the most noise of its own.

    Of operations that are about as bad the first is returned: its consumers read a
    result that is coarse already. None where no values of the two graphs correspond.

    parts: the quantized graph in pieces, by name.
    got: the int8 results for `sample`, by name.
    reference: the float graph that was quantized.
    run: runs `reference`. It does so once, and values are kept only while operations
        still have to read them.
    """
    twins = _float_twins(parts, reference)
    waiting = _WaitingOps(_int8_ops(parts), twins)
    noises: list[LayerNoise] = []

    def observe(real: Value, array: Array) -> None:
        for part, op in waiting.arrived(real, array):
            floats = {name: waiting.floats[twins[name]] for name in _names(op)}
            noises.append(_noise(part, op, floats, got[op.output.name]))
        waiting.clean()

    run(sample, observe)
    lowest = min((noise.own_sqnr_db for noise in noises), default=0.0)
    bad = [noise for noise in noises if noise.own_sqnr_db <= lowest + EQUALLY_BAD_DB]
    return bad[0] if bad else None


def _int8_ops(parts: Mapping[str, Graph]) -> list[tuple[str, Op]]:
    """Return the operations with one int8 result, each with the name of its part.

    parts: the quantized graph in pieces, by name.
    """
    ops = []
    for part, graph in parts.items():
        for op in graph.ops:
            if len(op.outputs) == 1 and _is_int8(op.output):
                ops.append((part, op))

    return ops


def _noise(part: str, op: Op, floats: Mapping[str, Array], result: Array) -> LayerNoise:
    """Return the noise of an int8 operation.

    part: the name of the graph that holds it.
    floats: the float values of what the operation reads and writes, by name.
    result: the int8 result of the whole quantized model.
    """
    y = op.output
    want = floats[y.name]
    env = {}
    for v in op.inputs:
        if v.const is None:
            env[v] = _as_read(floats[v.name], v)

    # The operation alone, and the operation behind all those before it.
    own = dequantize(run_op(op, env)[0], y.type)
    whole = dequantize(result, y.type)
    own_db = tally(want, own).centred_sqnr_db()
    whole_db = tally(want, whole).centred_sqnr_db()

    return LayerNoise(y.name, op.kind, op.source, part, own_db, whole_db)


def _names(op: Op) -> set[str]:
    """Return the names of the computed values that an operation reads and writes."""
    return {v.name for v in (*op.inputs, *op.outputs) if v.const is None}


class _WaitingOps:
    """Operations that wait for the float values of what they read and write.

    Attributes:
        floats: the float values that some operation still waits to use.
    """

    def __init__(
        self, ops: Sequence[tuple[str, Op]], twins: Mapping[str, Value]
    ) -> None:
        self.floats: dict[Value, Array] = {}
        self._ops: list[tuple[str, Op]] = []
        self._readers: dict[Value, list[int]] = {}
        # How many values each operation lacks yet.
        self._missing: list[int] = []
        for part, op in ops:
            # An operation that reads a value without a float twin cannot be judged.
            names = _names(op)
            if not names <= twins.keys():
                continue
            needed = {twins[name] for name in names}
            for v in needed:
                self._readers.setdefault(v, []).append(len(self._ops))
            self._ops.append((part, op))
            self._missing.append(len(needed))

    def arrived(self, v: Value, array: Array) -> Iterator[tuple[str, Op]]:
        """Take in a float value, and yield the operations that lack no other."""
        if v not in self._readers:
            return

        # The graph's arena overwrites the array later.
        self.floats[v] = array.copy()
        for i in self._readers[v]:
            # Each needed value arrives once.
            self._missing[i] -= 1
            if not self._missing[i]:
                yield self._ops[i]

    def clean(self) -> None:
        """Forget the values that no operation waits for."""
        # Values of a large model would not all fit in memory.
        for v in list(self.floats):
            if not any(self._missing[i] for i in self._readers[v]):
                del self.floats[v]


def _is_int8(v: Value) -> bool:
    return v.const is None and v.type.dtype == "int8" and v.type.quant is not None


def _float_twins(parts: Mapping[str, Graph], reference: Graph) -> dict[str, Value]:
    """Return the float value behind each value of the quantized graph, by its name.

    The rewriter keeps names, and appends `_int8` to those of converted values.
    """
    floats: dict[str, Value] = {}
    for v in reference.values():
        if v.const is None and v.type.dtype == "float32":
            floats[v.name] = v

    twins: dict[str, Value] = {}
    for graph in parts.values():
        for v in graph.values():
            twin = floats.get(v.name) or floats.get(v.name.removesuffix("_int8"))
            if twin is not None and _is_form_of(v, twin):
                twins[v.name] = twin

    return twins


def _is_form_of(v: Value, twin: Value) -> bool:
    """Return whether a computed value is the int8 or float form of a float value."""
    if v.const is not None or twin.type.shape != v.type.shape:
        return False
    return _is_int8(v) or v.type.dtype == "float32"


def _as_read(real: Array, v: Value) -> Array:
    """Return a float value as an operation reads it: rounded where `v` is int8."""
    if not _is_int8(v):
        return real
    # With the rounding of the model's own quantize operation.
    rounding = Quantize(v.type.dtype)
    return rounding.ref([real], [TensorType(real.shape)], [v.type])[0]
