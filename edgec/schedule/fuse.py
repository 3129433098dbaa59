"""Fusion: elementwise calls that the producer of their operand computes.

The producer then applies them to each element while it is in a register, before it
writes the element. Which calls a kernel can apply is decided by its variant
(`Variant.fuses`); this module only looks for producers, and for the order in which the
fused steps run.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from edgec.ir import Graph, KernelCall, Value
from edgec.ops.concat import CONCAT
from edgec.schedule.cores import Core
from edgec.schedule.liveness import LiveBytes, tensors
from edgec.schedule.variant import Choose, preferred
from edgec.schedule.views import Places


@dataclass(frozen=True)
class FusedStep:
    """One function of the generated C.

    Attributes:
        ops: the ops that it computes, by their position in the graph
        calls: the kernel calls that do so
        at: the op in whose turn it runs, one of `ops`
        shared: whether several threads share the calls that are divisible
    """

    ops: tuple[int, ...]
    calls: tuple[KernelCall, ...]
    at: int
    shared: bool = False


@dataclass(frozen=True, eq=False)
class _Change:
    """A replacement of steps by others."""

    old: Sequence[FusedStep]
    new: Sequence[FusedStep]


def fuse(
    graph: Graph,
    steps: Sequence[FusedStep],
    core: Core,
    where: Places,
    choose: Choose = preferred,
) -> list[FusedStep]:
    """Return the steps after elementwise ones joined the producers of their operands.

    A step joins where the operand has no other consumer, and where the variant that is
    chosen for the producer can apply it. Fusions that let more bytes live at once are
    not taken.
    """
    fusion = _Fusion(graph, steps, core, where, choose)
    for step in steps:
        fusion.join(step)

    return fusion.result()


class _Fusion:
    """The steps while they are joined.

    Attributes:
        consumers: positions of the ops that read each value; -1 for the caller
        producers: the position of the op that writes each value
        ending: the steps by their last op, in the order in which they run
        living: the bytes that live at each step
        peak: the most bytes that lived at once, which no change may exceed
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
        self.consumers: dict[Value, list[int]] = {v: [-1] for v in graph.outputs}
        self.producers: dict[Value, int] = {}
        for i, op in enumerate(graph.ops):
            for value in op.inputs:
                self.consumers.setdefault(value, []).append(i)
            for value in op.outputs:
                self.producers[value] = i

        self.ending: dict[int, list[FusedStep]] = {}
        self.living = LiveBytes(len(graph.ops), where, {*graph.inputs, *graph.outputs})
        self._apply(_Change([], steps))
        self.peak = self.living.peak()

    def result(self) -> list[FusedStep]:
        """Return the steps in the order in which they run."""
        steps = [step for ending in self.ending.values() for step in ending]
        return sorted(steps, key=lambda step: (step.at, step.ops[-1]))

    def join(self, step: FusedStep) -> None:
        """Join the calls of a step with the producers of their operands.

        All calls join that can, or, where they need too much memory together, as many
        of them as fit.
        """
        # Each call of a concat copies another operand, and can join its producer.
        calls = [c for c in step.calls if c.kernel == CONCAT or len(step.calls) == 1]

        # All at once first: the result of a concat lives from its first part on, which
        # may pay only when the other operands are no longer apart from it.
        changes: list[_Change] = []
        left = step
        for call in calls:
            change = next(self._ways(left, call), None)
            if change is not None:
                self._apply(change)
                changes.append(change)
            left = self._remainder(left)

        if not changes or self._settle():
            return

        for change in reversed(changes):
            self._undo(change)

        self._join_each(step, calls)

    def _join_each(self, step: FusedStep, calls: Sequence[KernelCall]) -> None:
        """Join the calls one by one, each in the first way that fits into memory."""
        left = step
        for call in calls:
            # The ways are listed first, as a trial changes the steps.
            for change in list(self._ways(left, call)):
                self._apply(change)
                if self._settle():
                    break
                self._undo(change)
            left = self._remainder(left)

    def _apply(self, change: _Change) -> None:
        """Replace the old steps of a change by the new ones."""
        for step in change.old:
            self.ending[step.ops[-1]].remove(step)
            self.living.remove(step.at, outer(step.calls))

        for step in change.new:
            ending = self.ending.setdefault(step.ops[-1], [])
            insort(ending, step, key=lambda s: s.at)
            self.living.add(step.at, outer(step.calls))

    def _undo(self, change: _Change) -> None:
        """Put the old steps of a change back."""
        self._apply(_Change(change.new, change.old))

    def _remainder(self, step: FusedStep) -> FusedStep:
        """Return the step with the calls that have not joined others."""
        for ending in self.ending.get(step.ops[-1], ()):
            if ending.ops == step.ops:
                return ending

        return step

    def _settle(self) -> bool:
        """Return whether no more bytes live than before, and remember how many do."""
        peak = self.living.peak()
        if peak > self.peak:
            return False

        self.peak = peak
        return True

    def _ways(self, step: FusedStep, call: KernelCall) -> Iterator[_Change]:
        """Yield the ways in which a call can join the producer of an operand.

        The producer that runs last comes first, so that the fused step moves least.
        """
        *operands, _ = tensors([call])
        producing: list[tuple[Value, FusedStep]] = []
        for value in dict.fromkeys(operands):
            producer = self._producer(value)
            if producer is not None:
                producing.append((value, producer))

        producing.sort(key=lambda pair: -pair[1].at)
        for value, producer in producing:
            gate = self._gate(value, operands, step)
            if gate is None:
                ops = [step.at]
                calls: tuple[KernelCall, ...] = (call,)
                old = [producer, step]
            else:
                ops = [*gate.ops, step.at]
                calls = (*gate.calls, call)
                old = [producer, gate, step]

            has_others = self.consumers.get(value) != ops
            if not has_others and self._takes(producer.calls[0], calls):
                yield self._joined(producer, ops, calls, old)

    def _producer(self, value: Value) -> FusedStep | None:
        """Return the step that computes all of a value by one call, and nothing else.

        A concat is none: it has a call for each of its operands.
        """
        for step in self.ending.get(self.producers.get(value, -1), ()):
            if len(step.calls) == 1:
                call = step.calls[0]
                kernels = [c.kernel for c in (call, *call.then)]
                if CONCAT in kernels:
                    return None

                return step

        return None

    def _gate(
        self, value: Value, operands: Sequence[Value], step: FusedStep
    ) -> FusedStep | None:
        """Return the step of f where a step reads v and f(v), as in v * sigmoid(v).

        f(v) must have no other consumer: both steps can then join the producer of v.
        """
        for operand in operands:
            if operand is value or self.consumers.get(operand) != [step.at]:
                continue

            producer = self._producer(operand)
            if producer is None or len(producer.ops) != 1:
                continue
            if tensors(producer.calls) == [value, operand]:
                return producer

        return None

    def _takes(self, call: KernelCall, calls: tuple[KernelCall, ...]) -> bool:
        """Return whether the variant that is chosen for a call can do others with it.

        A fusion does not change the variant: the loss could exceed the gain.
        """
        alone = self.choose(call, self.core)
        fused = self.choose(replace(call, then=(*call.then, *calls)), self.core)
        if fused is None:
            return False

        return alone is None or alone[0].name == fused[0].name

    def _joined(
        self,
        producer: FusedStep,
        ops: Sequence[int],
        calls: tuple[KernelCall, ...],
        old: Sequence[FusedStep],
    ) -> _Change:
        """Return the change by which calls become a part of their producer.

        It runs later if it now reads values that are not there yet.
        """
        all_ops = (*producer.ops, *ops)
        writers = [self.producers.get(v, -1) for v in tensors(calls)]
        is_ready = all(i < producer.at or i in all_ops for i in writers)
        at = producer.at if is_ready else all_ops[-1]

        # The last of the old steps may have calls that stay behind.
        first = producer.calls[0]
        fused = replace(first, then=(*first.then, *calls))
        new = [FusedStep(all_ops, (fused,), at)]
        others = tuple(call for call in old[-1].calls if call not in calls)
        if others:
            new.insert(0, replace(old[-1], calls=others))

        return _Change(old, new)


def outer(calls: Sequence[KernelCall]) -> list[Value]:
    """Return the tensors that calls read and write.

    Results that only a fused call reads are left out: they are never in memory.
    """
    inner: set[Value] = set()
    for call in calls:
        for fused in (call, *call.then)[:-1]:
            inner.add(tensors([replace(fused, then=())])[-1])

    return [value for value in tensors(calls) if value not in inner]
