"""A TFLite file as the stock compiler sees it.

May each operator, as it is, run on the Edge TPU, and would it?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from edgec.ir import Refusal, Versions
from edgec.ir.opdef import by_name
from edgec.ir.source import SourceOperator
from edgec.ops.opaque import Opaque
from edgec_partitioner.stock import FIRST_UNKNOWN_BUILTIN, StockNode, mapped
from edgec_partitioner.verdicts import (
    Answer,
    Verdict,
    beyond_calibration,
    most_telling_first,
)

Stock = Literal["mapped", "cpu"]

ABORT = "known_operator"
"""The rule whose breach makes the compiler give up the whole file."""


@dataclass(frozen=True)
class SourceOp:
    """The verdict on one operator of the file, and its place with the stock compiler.

    Attributes:
        index: the number of the operator in the file.
        opcode: its name in TFLite's schema.
        verdict: the answer of the support rules, on the operator as it is in the file.
        stock: the place that edgetpu_compiler would give it in the whole file; a
            mappable operator may still stay on the CPU.
        rule, seen, fix: of the most telling refusal; empty without one. fix is None if
            nothing would help.
        macs: the multiply-accumulates of one inference.
        outputs: the names of its results.
    """

    index: int
    opcode: str
    verdict: Answer
    stock: Stock
    rule: str
    seen: str
    fix: str | None
    macs: int
    outputs: tuple[str, ...]


def judge(
    operators: Sequence[SourceOperator],
    all_sets: bool = False,
    calibrated: bool = False,
) -> tuple[SourceOp, ...]:
    """Return the verdict on every operator of a file, in the file's order.

    all_sets: as with the compiler's option -a, which maps every set of operators and
    not the first alone. calibrated: edgec has calibration data for the model, so that
    no verdict asks for any.
    """
    quantized = any(v.type.is_quantized for o in operators for v in o.graph.values())
    aborts = [_abort(o) for o in operators]
    verdicts: list[Verdict] = []
    for o, abort in zip(operators, aborts, strict=True):
        # An abort outweighs all other refusals.
        if abort is not None:
            verdicts.append(Verdict((abort,)))
        elif calibrated or quantized:
            verdicts.append(Verdict(beyond_calibration(_refusals(o))))
        else:
            verdicts.append(Verdict(_refusals(o)))

    mapped_ops: set[int] = set()
    if not any(aborts):
        nodes: list[StockNode] = []
        for o, verdict in zip(operators, verdicts, strict=True):
            nodes.append(StockNode(o.reads, o.writes, verdict.answer == "edgetpu"))
        mapped_ops = mapped(nodes, all_sets)

    pairs = zip(operators, verdicts, strict=True)
    return tuple(_source_op(o, v, i in mapped_ops) for i, (o, v) in enumerate(pairs))


def _source_op(o: SourceOperator, verdict: Verdict, is_mapped: bool) -> SourceOp:
    """Return the record of one operator."""
    first = Refusal("", "", "", None)
    if verdict.refusals:
        first = verdict.refusals[0]
    return SourceOp(
        index=o.index,
        opcode=o.opcode,
        verdict=verdict.answer,
        stock="mapped" if is_mapped else "cpu",
        rule=first.rule,
        seen=first.seen,
        fix=first.fix,
        macs=sum(op.spec.macs(op) for op in o.graph.ops),
        outputs=o.outputs,
    )


def _abort(o: SourceOperator) -> Refusal | None:
    """Return why the compiler gives up the whole file because of this operator.

    None if it does not.
    """
    constraint = (
        "the compiler must know every operator and version in the file, "
        "or it maps nothing at all"
    )
    if o.opcode.startswith("CUSTOM:Flex"):
        fact = f"{o.opcode} is an operator of TensorFlow"
        fix = "convert the model again without TensorFlow operators (SELECT_TF_OPS)"
        return Refusal(ABORT, constraint, fact, fix)
    if o.builtin >= FIRST_UNKNOWN_BUILTIN:
        fact = f"{o.opcode} (number {o.builtin}) is newer than it"
        fix = (
            "replace the operator by older ones; edgec rewrites it or compiles it to C"
        )
        return Refusal(ABORT, constraint, fact, fix)
    versions = _versions(o)
    if (
        versions is not None
        and versions.aborts is not None
        and o.version >= versions.aborts
    ):
        fact = f"{o.opcode} version {o.version}"
        return Refusal(ABORT, constraint, fact, _OLD_CONVERTER)
    return None


_OLD_CONVERTER = (
    "convert the model with TensorFlow 2.8 or older; "
    "edgec itself writes the lowest version that holds"
)


def _refusals(o: SourceOperator) -> tuple[Refusal, ...]:
    """Return every rule that the operator breaks, the most telling first.

    Rules of its own op come before rules for all ops.
    """
    broken = [r for op in o.graph.ops for r in op.spec.why_not(op)]
    broken += [*_name(o), *_version(o), *_inputs(o)]
    return tuple(most_telling_first(broken))


def _name(o: SourceOperator) -> Iterator[Refusal]:
    """Yield a refusal for an operator that the compiler does not know by its name.

    edgec may read it as another operator that maps.
    """
    if _versions(o) is None:
        constraint = "the operator must be one that the compiler has"
        yield Refusal("supported_operator", constraint, o.opcode, None)


def _version(o: SourceOperator) -> Iterator[Refusal]:
    """Yield a refusal for a version above the highest that was seen mapped.

    It is uncertain unless that version was seen refused.
    """
    versions = _versions(o)
    if versions is None or o.version <= versions.mapped:
        return
    constraint = (
        f"{o.opcode}: at most version {versions.mapped}, the highest seen mapped"
    )
    fact = f"version {o.version}"
    # A version between mapped and refused ones was never seen.
    refused = versions.refused is not None and o.version >= versions.refused
    yield Refusal("operator_version", constraint, fact, _OLD_CONVERTER, not refused)


def _inputs(o: SourceOperator) -> Iterator[Refusal]:
    """Yield a refusal for each computed operand beside the data, as a shape or axes.

    edgec's operations have these as attributes.
    """
    constraint = "shapes, axes and other operands beside the data must be constant"
    fix = "convert the model again with static shapes"
    data = {v for op in o.graph.ops for v in op.inputs}
    for v in o.graph.inputs:
        if v not in data:
            fact = f"{v.name} ({v.type}) is computed"
            yield Refusal("constant_operands", constraint, fact, fix)


def _versions(o: SourceOperator) -> Versions | None:
    """Return which versions of the operator the compiler maps, refuses or aborts at.

    None if it does not know the operator.
    """
    spec = by_name("tflite", o.opcode) or Opaque
    return spec.edgetpu_versions.get(o.opcode)
