"""May an op run on the Edge TPU?

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
    """Whether an op may run on the Edge TPU.

    Attributes:
        refusals: the rules that it breaks, none if it may.
    """

    refusals: tuple[Refusal, ...] = ()

    @property
    def answer(self) -> Answer:
        """The place by the rules.

        "uncertain" if all broken rules have a gap in their evidence.
        """
        if not self.refusals:
            return "edgetpu"
        return "uncertain" if all(r.uncertain for r in self.refusals) else "cpu"

    def place(self, optimistic: bool = False) -> Place:
        """Return the better place that the rules allow.

        `optimistic` gives uncertain ops to the Edge TPU.
        """
        if self.answer == "edgetpu" or (optimistic and self.answer == "uncertain"):
            return "edgetpu"
        return "cpu"


def verdicts(
    graph: Graph, refused: Mapping[str, Refusal] | None = None
) -> dict[Op, Verdict]:
    """Return the verdict on each op, by the rules beside the ops.

    refused: the refusals of the compiler itself, by the name of the op's first output;
    they overrule the rules.
    """
    by_compiler = refused or {}
    quantized = any(v.type.is_quantized for v in graph.values())

    result: dict[Op, Verdict] = {}
    for op in graph.ops:
        name = op.outputs[0].name
        # A real compile settles the question.
        if name in by_compiler:
            result[op] = Verdict((by_compiler[name],))
        elif quantized:
            result[op] = Verdict(beyond_calibration(refusals(op)))
        else:
            result[op] = Verdict(refusals(op))
    return result


def beyond_calibration(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """Return the refusals for a model that is or will be quantized.

    An op that stays float then has no int8 form, so calibration data is no remedy.
    """
    result: list[Refusal] = []
    for refusal in refusals:
        if refusal.rule == "int8_tensors":
            refusal = replace(refusal, fix=None)
        result.append(refusal)
    return tuple(result)


def most_telling_first(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Sort refusals: certain ones first, then those by rules of the op itself.

    Such a rule tells more than one that holds for all ops.
    """
    return sorted(refusals, key=lambda r: (r.uncertain, hasattr(OpDef, f"_{r.rule}")))


def refusals(op: Op) -> tuple[Refusal, ...]:
    """Return every rule that the op breaks, the most telling first."""
    broken = op.spec.why_not(op)
    if broken:
        return tuple(most_telling_first(broken))
    if op.spec.to_tflite(op) is None:
        constraint = (
            "the operation must have a TFLite form, which carries it to the compiler"
        )
        return (Refusal("tflite_form", constraint, op.kind, None),)
    return ()
