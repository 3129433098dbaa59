"""The check of code that computes with integers what float ops left: each op on the
very values that the code had, so that no last bit before it matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgec_partitioner.segments import Segment
from edgec_runtime import Bundle

from edgec.comparing.distance import distance
from edgec.comparing.measure import rounding
from edgec.compiler.bundle_side import BundleSide
from edgec.ir import Array, Op, Value
from edgec.ir.interp import run_op
from edgec.quantize.observe.verification import SegmentCheck

HOW = "C, op by op"


def op_by_op(
    bundle: Bundle, segments: Sequence[Segment], sample: Mapping[str, Array]
) -> tuple[SegmentCheck, ...]:
    """For each segment, by this machine's C: the value that is furthest beyond what
    rounding explains.
    """
    seen = _Seen(segments)
    side = BundleSide(HOW, bundle.path, "c")
    try:
        side.run(sample, seen)
    finally:
        side.close()
    return tuple(seen.worst.values())


class _Seen:
    """What the code shows, judged value by value. worst: by segment."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.worst: dict[str, SegmentCheck] = {}
        self._makers = {
            v.name: (op, s) for s in segments for op in s.graph.ops for v in op.outputs
        }
        self._known: dict[str, Array] = {}
        self._unseen: dict[str, tuple[Array, tuple[Op, ...]]] = {}

    def __call__(self, v: Value, array: Array) -> None:
        if v.name in self._makers:
            want, ops = self._by_law(v.name)
            s = self._makers[v.name][1]
            check = SegmentCheck(
                s.name, s.place, HOW, distance(array, want), rounding(ops, want)
            )
            self.worst[s.name] = max(
                self.worst.get(s.name, check), check, key=lambda c: c.beyond
            )
        self._known[v.name] = array.copy()

    def _by_law(self, name: str) -> tuple[Array, tuple[Op, ...]]:
        """A value from those that were seen, and the ops that lead there: what is
        inside a loop is not shown.
        """
        if name not in self._unseen:
            op, _ = self._makers[name]
            env = dict[Value, Array]()
            ops = [op]
            for v in op.inputs:
                if v.name in self._known:
                    env[v] = self._known[v.name]
                elif v.const is None:
                    env[v], before = self._by_law(v.name)
                    ops += before
            self._unseen |= {
                v.name: (y, tuple(ops))
                for v, y in zip(op.outputs, run_op(op, env), strict=True)
            }
        return self._unseen[name]
