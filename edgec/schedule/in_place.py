"""Results of elementwise calls in the place of an operand that nothing reads later: the
cache has that already.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgec.ir import Graph, KernelCall, Pointer, Struct, Value
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import LiveBytes, tensors
from edgec.schedule.views import Place, Places


def in_place(
    graph: Graph, asked: Sequence[FusedStep], steps: Sequence[FusedStep], where: Places
) -> Places:
    """The places after every result that may has gone where an operand was. asked: the
    steps with plain calls.
    """
    plain = {s.ops: s.calls for s in asked}
    found = _Moves(
        where, [tensors(s.calls) for s in steps], {*graph.inputs, *graph.outputs}
    )
    for i, step in enumerate(steps):
        calls = plain.get(step.ops, step.calls)
        reads, y = _same(calls[0]) if len(calls) == len(step.calls) == 1 else ((), None)
        if y is not None:
            next((x for x in reads if found.move(x, y, i)), None)
    return found.where


class _Moves:
    """Places as results move. used: what each step reads and writes."""

    def __init__(
        self, where: Places, used: Sequence[Sequence[Value]], border: set[Value]
    ) -> None:
        self.where = dict(where)
        self.used = used
        self.border = border
        self.sharing: dict[Value, list[Value]] = {}
        for v, place in where.items():
            self.sharing.setdefault(place.root, []).append(v)
        self.living = LiveBytes(len(used), self.where, border)
        for i, values in enumerate(used):
            self.living.add(i, values)

    def move(self, x: Value, y: Value, at: int) -> bool:
        """Let the result of a step lie where its operand does, if it may and no more
        bytes live then; tells that.
        """
        if not self._may(x, y, at):
            return False
        to = self.where[x]
        most = self.living.peak()
        undo = self.living.move(y, to.root)
        if self.living.peak() > most:
            undo()
            return False
        for v in self.sharing.pop(y):
            self.where[v] = Place(to.root, to.at + self.where[v].at)
            self.sharing[to.root].append(v)
        return True

    def _may(self, x: Value, y: Value, at: int) -> bool:
        """Whether a result may lie where an operand of its step does."""
        root = self.where[x].root
        own = self.where[y]
        if (
            x.type.np_dtype.itemsize != y.type.np_dtype.itemsize
            or x.type.size != y.type.size
        ):
            return False
        if (
            root in self.border
            or own.root is not y
            or y in self.border
            or self.living.last(root) > at
        ):
            return False
        return all(v is x for v in self.used[at] if self.where[v].root is root)


def _same(call: KernelCall) -> tuple[tuple[Value, ...], Value | None]:
    """Operands of which a call reads each element before it writes the same one of its
    result, and no other after.
    """
    pointers = [x.value for x in call.operands if isinstance(x, Pointer)]
    if call.then or any(x.offset for x in call.operands if isinstance(x, Pointer)):
        return (), None
    if call.kernel == "ek_chain_f32_simd":
        return tuple(
            x for x in dict.fromkeys(pointers[:4]) if x.const is None
        ), pointers[-1]
    unary = (
        len(pointers) == 2
        and len(call.operands) > 2
        and call.operands[2] == pointers[1].type.size
    )
    binary = any(isinstance(x, Struct) and x.ctype == "ek_nd_t" for x in call.operands)
    if not (unary or binary or call.kernel == "ek_scale_channels_f32"):
        return (), None
    *reads, y = pointers
    return tuple(
        x for x in reads if x.const is None and x.type.shape == y.type.shape
    ), y
