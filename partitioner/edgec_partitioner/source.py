"""A TFLite file as the stock compiler sees it: may each operator, as it is, go to the
Edge TPU, and would it?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from edgec.ir import OpDef, Refusal, Versions
from edgec.ir.opdef import by_name
from edgec.ir.source import SourceOperator
from edgec.ops.opaque import Opaque
from edgec_partitioner.stock import FIRST_UNKNOWN_BUILTIN, StockNode, mapped
from edgec_partitioner.verdicts import Answer, Verdict, beyond_calibration

Stock = Literal["mapped", "cpu"]

ABORT = "known_operator"
"""The rule of which a breach makes the compiler give up the whole file."""


@dataclass(frozen=True)
class SourceOp:
    """The verdict on one operator of the file, and where the stock compiler would put
    it.

    verdict: by the support rules, on the operator as it is in the file. stock: what
    edgetpu_compiler would do with the whole file, in which a mappable operator may
    still stay on the CPU. rule, seen, fix: of the most telling refusal; empty when
    there is none; fix is None where nothing would help. macs: multiply-accumulates of
    one inference. outputs: names of what it writes.
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
    """The verdict on every operator of a file, in the file's order.

    all_sets: as with the compiler's option -a, which maps every set of operators and
    not the first alone. calibrated: edgec has calibration data for the model, so that
    none is asked for.
    """
    aborts = [_abort(o) for o in operators]
    settled = calibrated or any(
        v.type.is_quantized for o in operators for v in o.graph.values()
    )
    known = [
        beyond_calibration(_refusals(o)) if settled else _refusals(o) for o in operators
    ]
    verdicts = [
        Verdict((a,) if a else found) for found, a in zip(known, aborts, strict=True)
    ]
    nodes = [
        StockNode(o.reads, o.writes, v.answer == "edgetpu")
        for o, v in zip(operators, verdicts, strict=True)
    ]
    taken = set() if any(aborts) else mapped(nodes, all_sets)
    return tuple(
        _source_op(o, v, i in taken)
        for i, (o, v) in enumerate(zip(operators, verdicts, strict=True))
    )


def _source_op(o: SourceOperator, verdict: Verdict, is_mapped: bool) -> SourceOp:
    first = verdict.refusals[0] if verdict.refusals else Refusal("", "", "", None)
    macs = sum(op.spec.macs(op) for op in o.graph.ops)
    stock: Stock = "mapped" if is_mapped else "cpu"
    return SourceOp(
        o.index,
        o.opcode,
        verdict.answer,
        stock,
        first.rule,
        first.seen,
        first.fix,
        macs,
        o.outputs,
    )


def _abort(o: SourceOperator) -> Refusal | None:
    """Why the compiler gives up the whole file because of this operator, if it does."""
    constraint = (
        "the compiler must know every operator and version in the file, "
        "or it maps nothing at all"
    )
    known = _versions(o)
    if o.opcode.startswith("CUSTOM:Flex"):
        fix = "convert the model again without TensorFlow operators (SELECT_TF_OPS)"
        return Refusal(
            ABORT, constraint, f"{o.opcode} is an operator of TensorFlow", fix
        )
    if o.builtin >= FIRST_UNKNOWN_BUILTIN:
        fix = (
            "replace the operator by older ones; edgec rewrites it or compiles it to C"
        )
        return Refusal(
            ABORT, constraint, f"{o.opcode} (number {o.builtin}) is newer than it", fix
        )
    if known is not None and known.aborts is not None and o.version >= known.aborts:
        return Refusal(
            ABORT, constraint, f"{o.opcode} version {o.version}", _OLD_CONVERTER
        )
    return None


_OLD_CONVERTER = (
    "convert the model with TensorFlow 2.8 or older; "
    "edgec itself "
    "writes the lowest version that holds"
)


def _refusals(o: SourceOperator) -> tuple[Refusal, ...]:
    """Every rule that the operator breaks, the most telling first: what its own op
    says, then what holds for all.
    """
    own = [r for op in o.graph.ops for r in op.spec.why_not(op)]
    found = [*own, *_name(o), *_version(o), *_inputs(o)]
    return tuple(
        sorted(found, key=lambda r: (r.uncertain, hasattr(OpDef, f"_{r.rule}")))
    )


def _name(o: SourceOperator) -> Iterator[Refusal]:
    """Operators that edgec reads as another that maps: the compiler knows them by their
    own name.
    """
    if _versions(o) is None:
        constraint = "the operator must be one that the compiler has"
        yield Refusal("supported_operator", constraint, o.opcode, None)


def _version(o: SourceOperator) -> Iterator[Refusal]:
    known = _versions(o)
    if known is not None and o.version > known.mapped:
        constraint = (
            f"{o.opcode}: at most version {known.mapped}, the highest seen mapped"
        )
        refused = known.refused is not None and o.version >= known.refused
        yield Refusal(
            "operator_version",
            constraint,
            f"version {o.version}",
            _OLD_CONVERTER,
            not refused,
        )


def _inputs(o: SourceOperator) -> Iterator[Refusal]:
    """Operands beside the data (shapes, axes), which edgec's operations have as
    attributes.
    """
    data = {v for op in o.graph.ops for v in op.inputs}
    for v in o.graph.inputs:
        if v not in data:
            constraint = (
                "shapes, axes and other operands beside the data must be constant"
            )
            fix = "convert the model again with static shapes"
            yield Refusal(
                "constant_operands", constraint, f"{v.name} ({v.type}) is computed", fix
            )


def _versions(o: SourceOperator) -> Versions | None:
    """What the compiler makes of the operator's versions; None if it does not know the
    operator.
    """
    return (by_name("tflite", o.opcode) or Opaque).edgetpu_versions.get(o.opcode)
