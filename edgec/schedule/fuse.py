"""Fusion: calls on the elements of a result that its producer does before it writes
them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgec.ir import Graph, KernelCall, Value
from edgec.schedule.cores import Core
from edgec.schedule.liveness import LiveBytes, tensors
from edgec.schedule.variant import Choose, preferred
from edgec.schedule.views import Places

_CONCAT = "ek_concat"
"""Of its calls, each can become a part of what makes its operand."""


@dataclass(frozen=True)
class FusedStep:
    """One function: the ops that it computes, by their position in the graph, and the
    calls that do it.

    at: the op in whose turn it runs: one of its own. shared: by several threads, those
    calls that can be.
    """

    ops: tuple[int, ...]
    calls: tuple[KernelCall, ...]
    at: int
    shared: bool = False


@dataclass(frozen=True, eq=False)
class _Change:
    """Steps that go, and those that come in their place."""

    old: Sequence[FusedStep]
    new: Sequence[FusedStep]


def fuse(
    graph: Graph,
    steps: Sequence[FusedStep],
    core: Core,
    where: Places,
    choose: Choose = preferred,
) -> list[FusedStep]:
    """Let steps that compute elements of one result become parts of the step that makes
    it.

    Where the result has no other reader, and the variant that is chosen for its maker
    can do it. No fusion that lets more bytes live is taken.
    """
    fusion = _Fusion(graph, steps, core, where, choose)
    for step in steps:
        fusion.join(step)
    return fusion.result()


class _Fusion:
    """The steps as they are joined. ending: by their last op, in the order in which
    they run.
    """

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[FusedStep],
        core: Core,
        where: Places,
        choose: Choose,
    ) -> None:
        self.core = core
        self.choose = choose
        self.readers: dict[Value, list[int]] = {v: [-1] for v in graph.outputs}
        self.writer = {v: i for i, op in enumerate(graph.ops) for v in op.outputs}
        for i, op in enumerate(graph.ops):
            for v in op.inputs:
                self.readers.setdefault(v, []).append(i)
        self.ending: dict[int, list[FusedStep]] = {}
        self.living = LiveBytes(len(graph.ops), where, {*graph.inputs, *graph.outputs})
        self._apply(_Change([], steps))
        self.peak = self.living.peak()

    def result(self) -> list[FusedStep]:
        """The steps as they run."""
        return sorted(
            (s for some in self.ending.values() for s in some),
            key=lambda s: (s.at, s.ops[-1]),
        )

    def join(self, step: FusedStep) -> None:
        """Join the calls of a step with the makers of what they read, where that can
        be: all, or as many as may.
        """
        calls = [c for c in step.calls if c.kernel == _CONCAT or len(step.calls) == 1]
        taken = list[_Change]()
        left = step
        for call in calls:
            change = next(self._ways(left, call), None)
            if change is not None:
                self._apply(change)
                taken.append(change)
            left = self._left(left)
        if not taken or self._settle():
            return
        for change in reversed(taken):
            self._undo(change)
        left = step
        for call in calls:
            for change in list(self._ways(left, call)):
                self._apply(change)
                if self._settle():
                    break
                self._undo(change)
            left = self._left(left)

    def _apply(self, change: _Change) -> None:
        for s in change.old:
            self.ending[s.ops[-1]].remove(s)
            self.living.remove(s.at, outer(s.calls))
        for s in change.new:
            insort(self.ending.setdefault(s.ops[-1], []), s, key=lambda s: s.at)
            self.living.add(s.at, outer(s.calls))

    def _undo(self, change: _Change) -> None:
        self._apply(_Change(change.new, change.old))

    def _left(self, step: FusedStep) -> FusedStep:
        """What is left of a step."""
        return next(
            (s for s in self.ending.get(step.ops[-1], ()) if s.ops == step.ops), step
        )

    def _settle(self) -> bool:
        """Whether no more bytes live than before."""
        now = self.living.peak()
        if now > self.peak:
            return False
        self.peak = now
        return True

    def _ways(self, step: FusedStep, call: KernelCall) -> Iterator[_Change]:
        """The ways in which the call can join one of the makers of its operands, the
        last of them first.
        """
        *reads, _ = tensors([call])
        makers = [
            (v, made)
            for v in dict.fromkeys(reads)
            if (made := self._maker(v)) is not None
        ]
        for v, made in sorted(makers, key=lambda pair: -pair[1].at):
            gate = self._gate(v, reads, step)
            ops = [*(gate.ops if gate else ()), step.at]
            more = (*(gate.calls if gate else ()), call)
            if self.readers.get(v) == ops and self._takes(made.calls[0], more):
                yield self._joined(
                    made, ops, more, [s for s in (made, gate, step) if s]
                )

    def _maker(self, v: Value) -> FusedStep | None:
        """The step that makes the whole of a value by one call, and nothing else."""
        for s in self.ending.get(self.writer.get(v, -1), ()):
            if len(s.calls) == 1:
                if all(c.kernel != _CONCAT for c in (*s.calls, *s.calls[0].then)):
                    return s
                return None
        return None

    def _gate(
        self, v: Value, reads: Sequence[Value], step: FusedStep
    ) -> FusedStep | None:
        """The step of f where a step reads v and f(v), and no other reads f(v)."""
        for y in reads:
            if y is not v and self.readers.get(y) == [step.at]:
                made = self._maker(y)
            else:
                made = None
            if (
                made is not None
                and len(made.ops) == 1
                and tensors(made.calls) == [v, y]
            ):
                return made
        return None

    def _takes(self, head: KernelCall, more: tuple[KernelCall, ...]) -> bool:
        """Whether the variant that is chosen for a call can do more calls too."""
        alone = self.choose(head, self.core)
        both = self.choose(replace(head, then=(*head.then, *more)), self.core)
        return both is not None and (alone is None or alone[0].name == both[0].name)

    def _joined(
        self,
        made: FusedStep,
        ops: Sequence[int],
        more: tuple[KernelCall, ...],
        old: Sequence[FusedStep],
    ) -> _Change:
        """More calls in `made`, which runs later if it needs what is not there yet."""
        ops = (*made.ops, *ops)
        writers = (self.writer.get(v, -1) for v in tensors(more))
        at = made.at if all(i < made.at or i in ops for i in writers) else ops[-1]
        head = replace(made.calls[0], then=(*made.calls[0].then, *more))
        rest = tuple(c for c in old[-1].calls if c not in more)
        left = [replace(old[-1], calls=rest)] if rest else []
        return _Change(old, [*left, FusedStep(ops, (head,), at)])


def outer(calls: Sequence[KernelCall]) -> list[Value]:
    """What calls read and write but results that other calls follow on."""
    inner = {
        tensors([replace(c, then=())])[-1]
        for call in calls
        for c in (call, *call.then)[:-1]
    }
    return [v for v in tensors(calls) if v not in inner]
