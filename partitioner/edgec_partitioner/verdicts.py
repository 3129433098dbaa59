"""May an op go to the Edge TPU?

A place for every op, and the rules that keep it from the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from edgec.ir import Graph, Op, OpDef, Refusal

Place = Literal["cpu", "edgetpu"]
Answer = Literal["cpu", "edgetpu", "uncertain"]


@dataclass(frozen=True)
class Verdict:
    """Whether an op may run on the Edge TPU; `refusals` says why not, and is empty if
    it may.
    """

    refusals: tuple[Refusal, ...] = ()

    @property
    def answer(self) -> Answer:
        """What the rules say; "uncertain" where only rules with a gap in their evidence
        speak against it.
        """
        if not self.refusals:
            return "edgetpu"
        return "uncertain" if all(r.uncertain for r in self.refusals) else "cpu"

    def place(self, optimistic: bool = False) -> Place:
        """The better place that the rules allow; `optimistic` gives uncertain ops to
        the Edge TPU.
        """
        if self.answer == "edgetpu" or (optimistic and self.answer == "uncertain"):
            return "edgetpu"
        return "cpu"


def verdicts(
    graph: Graph, refused: Mapping[str, Refusal] | None = None
) -> dict[Op, Verdict]:
    """The verdict on each op, by the rules that stand beside the ops.

    refused: what the compiler itself said of an op, by the name of its first output;
    that settles it.
    """
    known = refused or {}
    quantized = any(v.type.is_quantized for v in graph.values())

    def found(op: Op) -> tuple[Refusal, ...]:
        if op.outputs[0].name in known:
            return (known[op.outputs[0].name],)
        return beyond_calibration(refusals(op)) if quantized else refusals(op)

    return {op: Verdict(found(op)) for op in graph.ops}


def beyond_calibration(found: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """The refusals, when the model is quantized, or will be: what stays float has no
    int8 form, whatever is given.
    """
    return tuple(replace(r, fix=None) if r.rule == "int8_tensors" else r for r in found)


def refusals(op: Op) -> tuple[Refusal, ...]:
    """Every rule that the op breaks, the most telling first."""
    found = op.spec.why_not(op)
    if found:  # what the op's own rules say tells more than what holds for all ops
        return tuple(
            sorted(found, key=lambda r: (r.uncertain, hasattr(OpDef, f"_{r.rule}")))
        )
    if op.spec.to_tflite(op) is None:
        constraint = (
            "the operation must have a TFLite form, which carries it to the compiler"
        )
        return (Refusal("tflite_form", constraint, op.kind, None),)
    return ()
