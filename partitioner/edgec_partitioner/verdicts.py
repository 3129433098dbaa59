"""May an op go to the Edge TPU? A place for every op, and the rules that keep it from the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgec.ir import Graph, Op, OpDef, Refusal
from edgec_partitioner.legalize import cures, obstacle

Place = Literal["cpu", "edgetpu"]


@dataclass(frozen=True)
class Verdict:
    """Where an op may run; `refusals` says why not on the Edge TPU, and is empty if it may."""

    refusals: tuple[Refusal, ...] = ()

    @property
    def place(self) -> Place:
        """The better place that the rules allow."""
        return "cpu" if self.refusals else "edgetpu"


def verdicts(graph: Graph) -> dict[Op, Verdict]:
    """The verdict on each op, by the rules that stand beside the ops and by what legalisation can rewrite."""
    return {op: Verdict(tuple(_refusals(op))) for op in graph.ops}


def _refusals(op: Op) -> list[Refusal]:
    found = [r for r in op.spec.why_not(op) if not cures(op, r)]
    if found:  # what the op's own rules say tells more than what holds for all ops
        return sorted(found, key=lambda r: hasattr(OpDef, f"_{r.rule}"))
    blocked = obstacle(op)
    return [blocked] if blocked is not None else []
