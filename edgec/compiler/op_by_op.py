"""The op-by-op check of segments in which int8 ops read results of float ops.

Each op is compared on the inputs that the code had, so the last bit of a float before it
does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edgec_partitioner.segments import Segment
from edgec_runtime import Bundle

from edgec.comparing.measure import rounding
from edgec.compiler.bundle_side import BundleSide
from edgec.ir import Array, Op, Value
from edgec.ir.interp import run_op
from edgec.measure.distance import distance
from edgec.quantize.observe.verification import SegmentCheck

HOW = "C, op by op"
"""The executor in the report."""


class OpByOp(NamedTuple):
    """The result of a check of every op.

    Attributes:
        checks: for each segment, that of the value with the largest error beyond rounding
        float16: the first outputs of float16 ops whose error is beyond rounding
    """

    checks: tuple[SegmentCheck, ...]
    float16: tuple[str, ...]


def op_by_op(
    bundle: Bundle, segments: Sequence[Segment], sample: Mapping[str, Array]
) -> OpByOp:
    """Compare each op of some segments, which run as this machine's C, on one sample."""
    comparison = _ValueComparison(segments)
    side = BundleSide(HOW, bundle.path, "c")
    try:
        side.run(sample, comparison)
    finally:
        side.close()
    checks = tuple(comparison.worst.values())
    return OpByOp(checks, tuple(comparison.float16))


class _ValueComparison:
    """Compares each value of the code with `interp` of its op.

    Attributes:
        worst: for each segment, the value with the largest error beyond rounding.
        float16: the first outputs of float16 ops whose error is beyond rounding; a dict
            for its order.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.worst: dict[str, SegmentCheck] = {}
        self.float16: dict[str, None] = {}
        self._producers: dict[str, tuple[Op, Segment]] = {}
        for s in segments:
            for op in s.graph.ops:
                for v in op.outputs:
                    self._producers[v.name] = (op, s)
        self._shown: dict[str, Array] = {}
        self._computed: dict[str, tuple[Array, tuple[Op, ...]]] = {}

    def __call__(self, v: Value, array: Array) -> None:
        """Compare a value, and keep it as an input of later ops."""
        if v.name in self._producers:
            expected, ops = self._reference(v.name)
            s = self._producers[v.name][1]
            error = distance(array, expected)
            limit = rounding(ops, expected)
            check = SegmentCheck(
                s.name, s.place, HOW, error, limit, value=f"{ops[0].kind} {v.name}"
            )
            worst = self.worst.get(s.name, check)
            self.worst[s.name] = max(worst, check, key=lambda c: c.beyond)
            if not check.ok:
                self._add_float16(ops)
        # The arena is reused, so the array changes after this call.
        self._shown[v.name] = array.copy()

    def _add_float16(self, ops: Sequence[Op]) -> None:
        """Take in the float16 ops among some that are beyond rounding together."""
        for op in ops:
            first = op.outputs[0]
            if first.type.dtype == "float16":
                self.float16[first.name] = None

    def _reference(self, name: str) -> tuple[Array, tuple[Op, ...]]:
        """Return a value computed from visible ones, and the ops on the way."""
        # Values inside a fused loop are never in memory, so they are computed too. Their
        # ops count: each of them may round, and the limit is for all together.
        if name not in self._computed:
            op, _ = self._producers[name]
            inputs: dict[Value, Array] = {}
            ops = [op]
            for v in op.inputs:
                if v.name in self._shown:
                    inputs[v] = self._shown[v.name]
                elif v.const is None:
                    inputs[v], before = self._reference(v.name)
                    ops += before
            results = run_op(op, inputs)
            for v, y in zip(op.outputs, results, strict=True):
                self._computed[v.name] = y, tuple(ops)
        return self._computed[name]
