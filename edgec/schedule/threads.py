"""Which steps threads share: those that two of them compute faster than one.

    alone    = cycles of the step's ops on one core           (rates.py)
    memory   = bytes that no cache has / bytes a cycle from memory
    together = max(alone * 0.6, memory) + barrier

A step is shared if `together` is no more than `alone`. Two threads are the fewest, and
gain the least; more only gain more. So no network gets slower with more threads by
these estimates. Parts are whole rows, blocks or vectors: the larger of two has rather
0.6 of a small op than half.

Cores share the memory (edgec_devices.multicore has the same model of a board). What no
cache has are the weights of a network whose weights do not fit in the last cache: each
inference reads them anew. A fully connected layer of one row does no more with them
than to read them, and threads would wait for the memory together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edgec.ir import Graph, Op
from edgec.schedule.cores import Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.rates import is_known, step_cycles

BYTES_PER_CYCLE = 4
"""Bytes that a step reads and writes in a cycle on a core that was not measured."""

LARGER_PART = 0.6
"""Share of a step's cycles that the larger part of two takes."""


class Sharing:
    """Decides for the steps of a graph on one core."""

    def __init__(
        self,
        graph: Graph,
        plain_steps: Sequence[FusedStep],
        cores: Sequence[Core],
        core: Core,
    ) -> None:
        """Estimate the ops of a graph.

        plain_steps: the steps with the calls of plain kernels.
        cores: for each of them the core with the scratch that it may use.
        """
        self._graph = graph
        self._core = core
        self._cycles: Mapping[Op, float] = {}

        if core.threads > 1:
            self._cycles = _op_cycles(graph, plain_steps, cores)
        weights = {v for op in graph.ops for v in op.inputs if v.const is not None}
        self._reads_memory = sum(v.type.nbytes for v in weights) > core.last

    def is_worth(self, step: FusedStep) -> bool:
        """Return whether threads should share a step."""
        if self._core.threads == 1:
            return False

        ops = [self._graph.ops[i] for i in step.ops]
        alone = sum(self._cycles[op] for op in ops)
        together = max(alone * LARGER_PART, self._memory(ops)) + self._core.barrier
        return together <= alone

    def _memory(self, ops: Iterable[Op]) -> float:
        """Return the cycles in which the weights of ops come from memory."""
        if not self._reads_memory:
            return 0.0
        weights = {v for op in ops for v in op.inputs if v.const is not None}
        return sum(v.type.nbytes for v in weights) / self._core.stream


def _op_cycles(
    graph: Graph, plain_steps: Sequence[FusedStep], cores: Sequence[Core]
) -> dict[Op, float]:
    """Return the cycles of each op on one thread."""
    total: dict[Op, float] = {}
    for step, core in zip(plain_steps, cores, strict=True):
        ops = [graph.ops[i] for i in step.ops]
        if is_known(core.name):
            cycles = step_cycles(ops, step.calls, core)
        else:
            cycles = [_at_best(op, core) for op in ops]
        total.update(zip(ops, cycles, strict=True))

    return total


def _at_best(op: Op, core: Core) -> float:
    """Return the cycles of an op at the best rates of a core that was not measured.

    So a step in doubt is not shared.
    """
    is_float = op.outputs[0].type.np_dtype.kind == "f"
    rate = core.macs_f32 if is_float else core.macs_s8
    moved = sum(v.type.nbytes for v in (*op.inputs, *op.outputs))
    return op.spec.macs(op) / rate + moved / BYTES_PER_CYCLE
