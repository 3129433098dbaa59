"""Which op of a quantized graph loses most: the int8 values of one inference against
those of the float graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgec.ir import Array, Graph, Op, Run, TensorType, Value
from edgec.ir.interp import run_op
from edgec.ir.types import dequantize
from edgec.ops.quantize import Quantize
from edgec.quantize.observe.accuracy import tally

_ALIKE_DB = 3.0


@dataclass(frozen=True)
class LayerNoise:
    """The noise of one int8 op, as signal to noise about the mean of its result.

    own_sqnr_db: when it reads the float graph's values, each rounded to int8. sqnr_db:
    with all that it inherits. value: the tensor that it writes. part: where it is.
    source: the nodes of the model file.
    """

    value: str
    kind: str
    source: str
    part: str
    own_sqnr_db: float
    sqnr_db: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
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
    """The op with the most noise of its own; None where no value of the two graphs can
    be told to be the same.

    parts: the quantized graph in pieces, by name. got: the int8 results that it had for
    `sample`, by name. reference, run: the float graph that was quantized. It runs once;
    its values are kept while ops still have to read them. Of ops that are about as bad
    the first is named: to the next, its result is already coarse.
    """
    twins = _twins(parts, reference)
    waiting = _Waiting(
        [
            (part, op)
            for part, g in parts.items()
            for op in g.ops
            if len(op.outputs) == 1 and _is_int8(op.output)
        ],
        twins,
    )
    found: list[LayerNoise] = []

    def observe(real: Value, array: Array) -> None:
        for part, op in waiting.arrived(real, array):
            y = op.output
            want = waiting.floats[twins[op.output.name]]
            env = {
                v: _rounded(waiting.floats[twins[v.name]], v)
                for v in op.inputs
                if v.const is None
            }
            own, whole = (
                dequantize(q, y.type) for q in (run_op(op, env)[0], got[y.name])
            )
            figures = (
                tally(want, own).centred_sqnr_db(),
                tally(want, whole).centred_sqnr_db(),
            )
            found.append(LayerNoise(y.name, op.kind, op.source, part, *figures))
        waiting.clean()

    run(sample, observe)
    lowest = min((layer.own_sqnr_db for layer in found), default=0.0)
    return next(
        (layer for layer in found if layer.own_sqnr_db <= lowest + _ALIKE_DB), None
    )


class _Waiting:
    """Ops that wait for the float values behind what they read and write, and these
    values as long as one waits.
    """

    def __init__(
        self, ops: Sequence[tuple[str, Op]], twins: Mapping[str, Value]
    ) -> None:
        self.floats: dict[Value, Array] = {}
        self._ops: list[tuple[str, Op, set[Value]]] = []
        self._readers: dict[Value, list[int]] = {}
        self._missing: list[int] = []
        for part, op in ops:
            names = {v.name for v in (*op.inputs, *op.outputs) if v.const is None}
            if names <= twins.keys():
                needed = {twins[name] for name in names}
                for v in needed:
                    self._readers.setdefault(v, []).append(len(self._ops))
                self._ops.append((part, op, needed))
                self._missing.append(len(needed))

    def arrived(self, v: Value, array: Array) -> Iterator[tuple[str, Op]]:
        """The ops that have all they need with this value."""
        if v not in self._readers:
            return
        self.floats[v] = array.copy()
        for i in self._readers[v]:
            self._missing[i] -= 1
            if not self._missing[i]:
                yield self._ops[i][:2]

    def clean(self) -> None:
        """Forget the values that nothing waits for."""
        for v in [
            v
            for v in self.floats
            if not any(self._missing[i] for i in self._readers[v])
        ]:
            del self.floats[v]


def _is_int8(v: Value) -> bool:
    return v.const is None and v.type.dtype == "int8" and v.type.quant is not None


def _twins(parts: Mapping[str, Graph], reference: Graph) -> dict[str, Value]:
    """The float value that stands behind each value of the quantized graph, by its name
    (see quantize.py).
    """
    floats = {
        v.name: v
        for v in reference.values()
        if v.const is None and v.type.dtype == "float32"
    }
    found: dict[str, Value] = {}
    for v in (v for g in parts.values() for v in g.values() if v.const is None):
        twin = floats.get(v.name) or floats.get(v.name.removesuffix("_int8"))
        if (
            twin is not None
            and twin.type.shape == v.type.shape
            and (_is_int8(v) or v.type.dtype == "float32")
        ):
            found[v.name] = twin
    return found


def _rounded(real: Array, v: Value) -> Array:
    """A float value as an op reads it."""
    if _is_int8(v):
        return Quantize(v.type.dtype).ref([real], [TensorType(real.shape)], [v.type])[0]
    return real
