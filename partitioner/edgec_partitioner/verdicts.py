"""May an op go to the Edge TPU? A place for every op, and the rules that keep it from the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgec.ir import Graph, Op, OpDef, Refusal

Place = Literal["cpu", "edgetpu"]
Answer = Literal["cpu", "edgetpu", "uncertain"]


@dataclass(frozen=True)
class Verdict:
    """Whether an op may run on the Edge TPU; `refusals` says why not, and is empty if it may."""

    refusals: tuple[Refusal, ...] = ()

    @property
    def answer(self) -> Answer:
        """What the rules say; "uncertain" where only rules with a gap in their evidence speak against it."""
        if not self.refusals:
            return "edgetpu"
        return "uncertain" if all(r.uncertain for r in self.refusals) else "cpu"

    def place(self, optimistic: bool = False) -> Place:
        """The better place that the rules allow; `optimistic` gives uncertain ops to the Edge TPU."""
        return "edgetpu" if self.answer == "edgetpu" or (optimistic and self.answer == "uncertain") else "cpu"


def verdicts(graph: Graph, refused: Mapping[str, Refusal] | None = None) -> dict[Op, Verdict]:
    """The verdict on each op, by the rules that stand beside the ops.

    refused: what the compiler itself said of an op, by the name of its first output; that settles it.
    """
    known = refused or {}
    return {
        op: Verdict((known[op.outputs[0].name],) if op.outputs[0].name in known else refusals(op)) for op in graph.ops
    }


def refusals(op: Op) -> tuple[Refusal, ...]:
    """Every rule that the op breaks, the most telling first."""
    found = op.spec.why_not(op)
    if found:  # what the op's own rules say tells more than what holds for all ops
        return tuple(sorted(found, key=lambda r: (r.uncertain, hasattr(OpDef, f"_{r.rule}"))))
    if op.spec.to_tflite(op) is None:
        constraint = "the operation must have a TFLite form, which carries it to the compiler"
        fix = "none needed: it stays on the CPU"
        return (Refusal("tflite_form", constraint, op.kind, fix),)
    return ()
