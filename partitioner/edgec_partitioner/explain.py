"""The data of `edgec explain`: where each op goes and why, as JSON
(docs/explain-schema.md says what it means).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgec.ir import Op, Refusal
from edgec.ops.quantize import Dequantize, Quantize
from edgec_partitioner.comparison import (
    Column,
    Stock,
    StockComparison,
    column,
    cpu_only,
    uncounted,
)
from edgec_partitioner.cost import Link, TpuTime, op_work, streamed_bytes, tpu_work
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.legalize import Applied
from edgec_partitioner.partition import WORTHWHILE, Partition
from edgec_partitioner.regions import Region, cpu_ms
from edgec_partitioner.segments import Segment
from edgec_partitioner.source import SourceOp
from edgec_partitioner.verdicts import Answer, Place, Verdict

SCHEMA = 2

ON_CHIP = 8_000_000
"""Bytes of parameters that the Edge TPU is sold with.

Less is left for them when activations are large.
"""


@dataclass(frozen=True)
class OpRow:
    """One op of the graph.

    inputs, outputs: names of the tensors that it reads (without constants) and writes.
    verdict: what the support rules say; None if there is no Edge TPU. cpu_ms: estimated
    time on the CPU, where it may not run. rewrites: names of those that made it.
    refusals: why it is not on the Edge TPU; none if it is, or if there is no Edge TPU.
    """

    index: int
    name: str
    source: str
    kind: str
    inputs: tuple[str, ...]
    input_types: tuple[str, ...]
    constant_types: tuple[str, ...]
    outputs: tuple[str, ...]
    output: str
    segment: str
    place: Place
    verdict: Answer | None
    macs: int
    cpu_ms: float
    rewrites: tuple[str, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class SegmentRow:
    """One segment.

    Sizes in bytes. est_ms: estimated; est_parts: its parts on the Edge TPU, None on the
    CPU.

    streamed_bytes: of the parameters of an Edge TPU segment, those that do not stay on
    the chip.
    """

    name: str
    place: Place
    ops: int
    macs: int
    parameter_bytes: int
    streamed_bytes: int
    bytes_in: int
    bytes_out: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    est_ms: float
    est_parts: TpuTime | None


@dataclass(frozen=True)
class SourceRow:
    """An operator of the TFLite file, and where edgec runs it: "none" if nothing of it
    is left to run.
    """

    op: SourceOp
    place: str

    def to_json(self) -> dict[str, Any]:
        """All in one object."""
        return {**asdict(self.op), "place": self.place}


@dataclass(frozen=True)
class ExplainReport:
    """What `edgec explain` shows. assumed_quantization: the scales are made up, since
    no calibration data was given.

    bound_ms: no choice of places that the rules allow is estimated to be faster; None
    if nothing was to choose. source_ops: of a TFLite file. obstacle: why edgec cannot
    compile the model although it can explain it; or None. remarks: sentences on how the
    model was read and calibrated.
    """

    model: str
    target: str
    link: str | None
    assumed_quantization: bool
    obstacle: str | None
    bound_ms: float | None
    comparison: StockComparison
    segments: tuple[SegmentRow, ...]
    applied: tuple[Applied, ...]
    ops: tuple[OpRow, ...]
    source_ops: tuple[SourceRow, ...]
    remarks: tuple[str, ...] = ()

    def totals(self) -> dict[str, Any]:
        """Counts of the whole model, and their shares on the Edge TPU (0 to 1)."""
        tpu = [s for s in self.segments if s.place == "edgetpu"]
        return {
            **self.comparison.edgec.to_json(),
            "segments": len(self.segments),
            "tpu_parameter_bytes": sum(s.parameter_bytes for s in tpu),
            "tpu_streamed_bytes": sum(s.streamed_bytes for s in tpu),
            "on_chip_bytes": ON_CHIP,
        }

    def to_json(self) -> dict[str, Any]:
        """As docs/explain-schema.md says."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "target": self.target,
            "link": self.link,
            "assumed_quantization": self.assumed_quantization,
            "obstacle": self.obstacle,
            "remarks": list(self.remarks),
            "bound_ms": self.bound_ms,
            "totals": self.totals(),
            "comparison": self.comparison.to_json(),
            "segments": [asdict(s) for s in self.segments],
            "applied": [asdict(a) for a in self.applied],
            "ops": [asdict(r) for r in self.ops],
            "source_ops": [s.to_json() for s in self.source_ops],
        }


@dataclass(frozen=True)
class Origin:
    """What is known of a model apart from its partition.

    baseline: the column of the CPU alone, without rewrites; None: that of the
    partition's graph. stock: what the stock compiler would do. operators: those of the
    TFLite file. rewritten: what was rewritten before the partition. Others: as in
    Report.
    """

    model: str
    target: str
    assumed_quantization: bool = False
    obstacle: str | None = None
    baseline: Column | None = None
    stock: Stock | None = None
    operators: Sequence[SourceOp] = ()
    rewritten: Sequence[Applied] = ()
    remarks: Sequence[str] = ()


def explain(parts: Partition, cpu: CpuCost, origin: Origin) -> ExplainReport:
    """The report on a partition for a board with this CPU."""
    cpu = cpu.within(parts.graph)
    graph = parts.graph
    segment_of = parts.segment_of
    applied = (*origin.rewritten, *parts.applied)
    made_by = rewrites_of(graph.ops, applied)
    rows = tuple(
        _op_row(i, op, parts, segment_of[op], cpu, made_by)
        for i, op in enumerate(graph.ops)
    )
    answers = {
        op: row.verdict
        for op, row in zip(graph.ops, rows, strict=True)
        if row.verdict is not None
    }
    outside = uncounted(graph, origin.stock)
    ours = column(parts.regions, answers, cpu, parts.link, outside)
    return ExplainReport(
        model=origin.model,
        target=origin.target,
        link=parts.link.name if parts.link else None,
        assumed_quantization=origin.assumed_quantization,
        obstacle=origin.obstacle,
        bound_ms=parts.cuts.bound_ms if parts.cuts else None,
        comparison=StockComparison(
            origin.baseline or cpu_only(graph, cpu, outside), origin.stock, ours
        ),
        segments=_segment_rows(parts, cpu),
        applied=applied,
        ops=rows,
        source_ops=tuple(map(Places(rows).row, origin.operators)),
        remarks=tuple(origin.remarks),
    )


def unplaced(origin: Origin, baseline: Column, link: Link | None) -> ExplainReport:
    """The report on a file that edgec cannot bring to a graph: it has no segments and
    no ops, only the file's.
    """
    return ExplainReport(
        model=origin.model,
        target=origin.target,
        link=link.name if link else None,
        assumed_quantization=origin.assumed_quantization,
        obstacle=origin.obstacle,
        bound_ms=None,
        comparison=StockComparison(baseline, origin.stock, baseline),
        segments=(),
        applied=(),
        ops=(),
        source_ops=tuple(SourceRow(op, "none") for op in origin.operators),
    )


def rewrites_of(
    ops: Iterable[Op], applied: Iterable[Applied]
) -> dict[Op, tuple[str, ...]]:
    """The names of the rewrites that made each op.

    The results that a rewrite names may be renamed or fused away by passes that come
    later; then all ops that come from the same node are taken for its own.
    """
    ops = list(ops)
    found = dict[Op, dict[str, None]]()
    at = {v.name: op for op in ops for v in op.outputs}
    for a in applied:
        made = [at[name] for name in a.made if name in at]
        for op in made or [
            op for op in ops if a.source and _within(a.source, op.source)
        ]:
            found.setdefault(op, {})[a.rewrite] = None
    return {op: tuple(names) for op, names in found.items()}


def _within(source: str, sources: str) -> bool:
    """Whether a node is among joined ones (see rewrite.joined); a name may itself have
    a plus sign.
    """
    return f"+{source}+" in f"+{sources}+"


def _op_row(
    index: int,
    op: Op,
    parts: Partition,
    segment: Segment,
    cpu: CpuCost,
    made_by: Mapping[Op, tuple[str, ...]],
) -> OpRow:
    verdict = parts.verdicts.get(op)
    read = [v for v in op.inputs if v.const is None]
    on_tpu = segment.place == "edgetpu"
    return OpRow(
        index=index,
        name=op.outputs[0].name,
        source=op.source,
        kind=op.kind,
        inputs=tuple(v.name for v in read),
        input_types=tuple(str(v.type) for v in read),
        constant_types=tuple(str(v.type) for v in op.inputs if v.const is not None),
        outputs=tuple(v.name for v in op.outputs),
        output=str(op.outputs[0].type),
        segment=segment.name,
        place=segment.place,
        verdict=_by_rules(verdict) if verdict else None,
        macs=op.spec.macs(op),
        cpu_ms=cpu.op_ms(op),
        rewrites=made_by.get(op, ()),
        refusals=verdict.refusals if verdict and not on_tpu else (),
    )


def _by_rules(verdict: Verdict) -> Answer:
    """Without what the cost model says."""
    return Verdict(tuple(r for r in verdict.refusals if r.rule != WORTHWHILE)).answer


def _segment_rows(parts: Partition, cpu: CpuCost) -> tuple[SegmentRow, ...]:
    works = {
        r: tpu_work([*map(op_work, r.ops)], r.inputs, r.outputs)
        for r in parts.regions
        if r.place == "edgetpu"
    }
    streamed = dict(zip(works, streamed_bytes(works.values()), strict=True))

    def row(region: Region, segment: Segment) -> SegmentRow:
        constants = {v for op in region.ops for v in op.inputs if v.const is not None}
        over = streamed.get(region, 0)
        if parts.link and region in works:
            time = works[region].parts(parts.link, over)
        else:
            time = None
        return SegmentRow(
            name=segment.name,
            place=segment.place,
            ops=len(region.ops),
            macs=segment.macs,
            parameter_bytes=sum(v.type.nbytes for v in constants),
            streamed_bytes=over,
            bytes_in=sum(v.type.nbytes for v in region.inputs),
            bytes_out=sum(v.type.nbytes for v in region.outputs),
            inputs=tuple(v.name for v in region.inputs),
            outputs=tuple(v.name for v in region.outputs),
            est_ms=time.ms if time else cpu_ms(region, cpu),
            est_parts=time,
        )

    return tuple(row(r, s) for r, s in zip(parts.regions, parts.segments, strict=True))


class Places:
    """Finds where the operators of a file run: an op's source names the first results
    of those that it came from.
    """

    def __init__(self, rows: Sequence[OpRow]) -> None:
        self.rows = [r for r in rows if r.source]
        self.by_name: dict[str, list[OpRow]] = {}
        for r in self.rows:
            for name in r.source.split("+"):
                self.by_name.setdefault(name, []).append(r)

    def row(self, op: SourceOp) -> SourceRow:
        """The operator and its place.

        Conversions before and after what it became do not count.
        """
        name = op.outputs[0] if op.outputs else ""
        if "+" in name:
            found = [r for r in self.rows if _within(name, r.source)]
        else:
            found = self.by_name.get(name, [])
        places = {r.place for r in found if r.kind not in _CONVERSIONS} or {
            r.place for r in found
        }
        return SourceRow(op, "mixed" if len(places) > 1 else next(iter(places), "none"))


_CONVERSIONS = (Quantize.kind, Dequantize.kind)
