"""The data of `edgec explain`: the place of each op and the reason for it.

docs/explain-schema.md describes it as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgec_devices.intervals import (
    CPU,
    EDGETPU,
    EDGETPU_ERROR,
    UNCHECKED,
    EstimatedPart,
    ends,
    error_of_sum,
)

from edgec.ir import Op, Refusal, Value
from edgec.ops.quantize import Dequantize, Quantize
from edgec.schedule.alternatives import ScheduledCall
from edgec_partitioner.comparison import (
    Column,
    Stock,
    StockComparison,
    column,
    cpu_only,
    uncounted,
)
from edgec_partitioner.cost import (
    Link,
    TpuTime,
    TpuWork,
    op_work,
    streamed_bytes,
    tpu_work,
)
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.gains import gains, reason_of
from edgec_partitioner.legalize import Applied
from edgec_partitioner.partition import WORTHWHILE, Partition
from edgec_partitioner.regions import Region, cpu_ms
from edgec_partitioner.segments import Segment
from edgec_partitioner.source import SourceOp
from edgec_partitioner.verdicts import Answer, Place, Verdict

SCHEMA = 2

ON_CHIP = 8_000_000
"""Bytes of on-chip memory for parameters that the Edge TPU is sold with.

Less is free for them if activations are large.
"""


@dataclass(frozen=True)
class OpRow:
    """One op of the graph.

    Attributes:
        index: its number in the graph.
        name: the name of its first output.
        source: the node of the file that it comes from.
        kind: the kind of op.
        inputs, outputs: the names of the computed tensors it reads, and of its results.
        input_types, constant_types: the types of the tensors and constants it reads.
        output: the type of its first output.
        segment, place: its segment and processor.
        verdict: the answer of the support rules; None without an Edge TPU.
        macs: the multiply-accumulates of one inference.
        cpu_ms: the estimated time on the CPU, wherever it runs.
        rewrites: the names of the rewrites it results from.
        refusals: why it is not on the Edge TPU; empty if it is, or without one.
        gain_ms: the most that is gained if all ops refused for the same reason are
            mended (see gains.py); 0 if there is nothing to mend.
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
    gain_ms: float


@dataclass(frozen=True)
class SegmentRow:
    """One segment.

    Attributes:
        name, place: its name and processor.
        ops, macs: the number of ops and of multiply-accumulates.
        parameter_bytes: bytes of the constants.
        streamed_bytes: bytes of the parameters of an Edge TPU segment beyond the
            on-chip memory.
        bytes_in, bytes_out: bytes of the inputs and outputs.
        inputs, outputs: the names of the values that cross the boundary.
        est_ms: the estimated time.
        est_parts: its parts on the Edge TPU, None on the CPU.
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
    """An operator of the TFLite file, and its place with edgec.

    The place is "none" if no op of it remains to run.
    """

    op: SourceOp
    place: str

    def to_json(self) -> dict[str, Any]:
        """Return both in one object."""
        return {**asdict(self.op), "place": self.place}


@dataclass(frozen=True)
class ExplainReport:
    """The contents of `edgec explain`.

    Attributes:
        model: the name of the model.
        target: the name of the board.
        link: how the Edge TPU is attached; None without one.
        assumed_quantization: whether the scales are invented, without calibration data.
        obstacle: why edgec cannot compile the model although it can explain it, or
            None.
        bound_ms: a lower bound for the estimate of any allowed choice of places; None
            if there was no choice.
        comparison: the columns.
        segments, applied, ops: the segments, the rewrites made, and the ops.
        source_ops: the operators of a TFLite file.
        remarks: sentences on how the model was read and calibrated.
        schedule: the kernels of the calls that a person asked about.
        cpu_error: the relative error of times on the CPU (edgec_devices.intervals).
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
    schedule: tuple[ScheduledCall, ...] = ()
    cpu_error: float = UNCHECKED

    def error(self) -> float:
        """Return the relative error of the estimated time of the whole model."""
        c = self.comparison.edgec
        return error_of_sum(
            [
                EstimatedPart(c.cpu_ms, self.cpu_error, CPU),
                EstimatedPart(c.tpu_ms, EDGETPU_ERROR, EDGETPU),
            ]
        )

    def totals(self) -> dict[str, Any]:
        """Return the counts of the whole model, and their shares on the Edge TPU."""
        on_tpu = [s for s in self.segments if s.place == "edgetpu"]
        parameter_bytes = sum(s.parameter_bytes for s in on_tpu)
        beyond_chip = sum(s.streamed_bytes for s in on_tpu)
        return {
            **self.comparison.edgec.to_json(),
            "segments": len(self.segments),
            "tpu_parameter_bytes": parameter_bytes,
            "tpu_streamed_bytes": beyond_chip,
            "on_chip_bytes": ON_CHIP,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object described in docs/explain-schema.md."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "target": self.target,
            "link": self.link,
            "assumed_quantization": self.assumed_quantization,
            "obstacle": self.obstacle,
            "remarks": list(self.remarks),
            "bound_ms": self.bound_ms,
            "interval_ms": ends(self.comparison.edgec.est_ms, self.error()),
            "totals": self.totals(),
            "comparison": self.comparison.to_json(),
            "segments": [asdict(s) for s in self.segments],
            "applied": [asdict(a) for a in self.applied],
            "ops": [asdict(r) for r in self.ops],
            "source_ops": [s.to_json() for s in self.source_ops],
            "schedule": [asdict(call) for call in self.schedule],
        }


@dataclass(frozen=True)
class Origin:
    """The facts about a model apart from its partition.

    Attributes:
        model, target, assumed_quantization, obstacle, remarks: see ExplainReport.
        baseline: the column of the CPU alone, without rewrites; if None, the column of
            the partition's graph.
        stock: the model with the stock compiler.
        operators: the operators of a TFLite file.
        rewritten: the rewrites made before the partition.
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
    """Return the report on a partition for a board with this CPU."""
    graph = parts.graph
    cpu = cpu.within(graph)
    applied = (*origin.rewritten, *parts.applied)
    rows = _op_rows(parts, cpu, applied)

    answers: dict[Op, Answer] = {}
    for op, row in zip(graph.ops, rows, strict=True):
        if row.verdict is not None:
            answers[op] = row.verdict
    outside = uncounted(graph, origin.stock)
    ours = column(parts.regions, answers, cpu, parts.link, outside)
    baseline = origin.baseline or cpu_only(graph, cpu, outside)
    places = Places(rows)
    return ExplainReport(
        model=origin.model,
        target=origin.target,
        link=parts.link.name if parts.link else None,
        assumed_quantization=origin.assumed_quantization,
        obstacle=origin.obstacle,
        bound_ms=parts.cuts.bound_ms if parts.cuts else None,
        comparison=StockComparison(baseline, origin.stock, ours),
        segments=_segment_rows(parts, cpu),
        applied=applied,
        ops=rows,
        source_ops=tuple(places.row(op) for op in origin.operators),
        remarks=tuple(origin.remarks),
        cpu_error=cpu.error,
    )


def unplaced(
    origin: Origin, baseline: Column, link: Link | None, cpu: CpuCost
) -> ExplainReport:
    """Return the report on a file that edgec cannot bring to a graph.

    It has no segments and no ops, only the operators of the file. `baseline` is by
    `cpu`.
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
        cpu_error=cpu.error,
    )


def rewrites_of(
    ops: Iterable[Op], applied: Iterable[Applied]
) -> dict[Op, tuple[str, ...]]:
    """Return the names of the rewrites that each op results from.

    Later passes may rename the results of a rewrite or fuse them away; then all ops
    that come from the same node count as its results.
    """
    ops = list(ops)
    by_output = {v.name: op for op in ops for v in op.outputs}
    names: dict[Op, dict[str, None]] = {}
    for record in applied:
        # The results of the rewrite, unless later passes renamed them.
        results = [by_output[name] for name in record.made if name in by_output]
        if not results and record.source:
            results = [op for op in ops if _within(record.source, op.source)]
        for op in results:
            names.setdefault(op, {})[record.rewrite] = None
    return {op: tuple(rewrites) for op, rewrites in names.items()}


def _within(source: str, sources: str) -> bool:
    """Return whether a node is among joined ones (see rewrite.joined).

    A name may itself have a plus sign.
    """
    return f"+{source}+" in f"+{sources}+"


def _op_rows(
    parts: Partition, cpu: CpuCost, applied: Sequence[Applied]
) -> tuple[OpRow, ...]:
    """Return a row for each op of the graph."""
    segment_of = parts.segment_of
    rewrites = rewrites_of(parts.graph.ops, applied)
    gain_ms = gains(parts, cpu)
    rows: list[OpRow] = []
    for index, op in enumerate(parts.graph.ops):
        row = _op_row(index, op, segment_of[op], parts.verdicts.get(op), cpu)
        if row.refusals:
            reason = reason_of(op.kind, row.refusals[0])
            row = replace(row, gain_ms=gain_ms.get(reason, 0.0))
        # Most ops come from no rewrite.
        rows.append(replace(row, rewrites=rewrites.get(op, ())))
    return tuple(rows)


def _op_row(
    index: int, op: Op, segment: Segment, verdict: Verdict | None, cpu: CpuCost
) -> OpRow:
    """Return the row of an op, without its rewrites and its gain."""
    computed = [v for v in op.inputs if v.const is None]
    constants = [v for v in op.inputs if v.const is not None]
    refusals: tuple[Refusal, ...] = ()
    if verdict is not None and segment.place != "edgetpu":
        refusals = verdict.refusals
    return OpRow(
        index=index,
        name=op.outputs[0].name,
        source=op.source,
        kind=op.kind,
        inputs=_names(computed),
        input_types=_types(computed),
        constant_types=_types(constants),
        outputs=_names(op.outputs),
        output=str(op.outputs[0].type),
        segment=segment.name,
        place=segment.place,
        verdict=_by_rules(verdict) if verdict is not None else None,
        macs=op.spec.macs(op),
        cpu_ms=cpu.op_ms(op),
        rewrites=(),
        refusals=refusals,
        gain_ms=0.0,
    )


def _names(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(v.name for v in values)


def _types(values: Iterable[Value]) -> tuple[str, ...]:
    return tuple(str(v.type) for v in values)


def _by_rules(verdict: Verdict) -> Answer:
    """Return the answer of the support rules, without that of the cost model."""
    # The support rules know nothing of time.
    rules = tuple(r for r in verdict.refusals if r.rule != WORTHWHILE)
    return Verdict(rules).answer


def _segment_rows(parts: Partition, cpu: CpuCost) -> tuple[SegmentRow, ...]:
    """Return a row for each segment, in the order they run."""
    works: dict[Region, TpuWork] = {}
    for region in parts.regions:
        if region.place == "edgetpu":
            op_works = [op_work(op) for op in region.ops]
            works[region] = tpu_work(op_works, region.inputs, region.outputs)
    # All segments share the on-chip memory, so this needs all of them.
    streamed = dict(zip(works, streamed_bytes(works.values()), strict=True))

    rows: list[SegmentRow] = []
    for region, segment in zip(parts.regions, parts.segments, strict=True):
        beyond_chip = streamed.get(region, 0)
        time: TpuTime | None = None
        if parts.link and region in works:
            time = works[region].parts(parts.link, beyond_chip)
        # A CPU segment costs its ops and a call.
        est_ms = time.ms if time else cpu_ms(region, cpu)
        row = _segment_row(region, segment, est_ms)
        rows.append(replace(row, streamed_bytes=beyond_chip, est_parts=time))
    return tuple(rows)


def _segment_row(region: Region, segment: Segment, est_ms: float) -> SegmentRow:
    """Return the row of a segment, without the details of the Edge TPU."""
    constants = {v for op in region.ops for v in op.inputs if v.const is not None}
    return SegmentRow(
        name=segment.name,
        place=segment.place,
        ops=len(region.ops),
        macs=segment.macs,
        parameter_bytes=_nbytes(constants),
        streamed_bytes=0,
        bytes_in=_nbytes(region.inputs),
        bytes_out=_nbytes(region.outputs),
        inputs=_names(region.inputs),
        outputs=_names(region.outputs),
        est_ms=est_ms,
        est_parts=None,
    )


def _nbytes(values: Iterable[Value]) -> int:
    return sum(v.type.nbytes for v in values)


class Places:
    """Finds the places of the operators of a file.

    An op's source names the first results of the operators it came from.
    """

    def __init__(self, rows: Sequence[OpRow]) -> None:
        self.rows = [row for row in rows if row.source]
        self.by_name: dict[str, list[OpRow]] = {}
        for row in self.rows:
            for name in row.source.split("+"):
                self.by_name.setdefault(name, []).append(row)

    def row(self, op: SourceOp) -> SourceRow:
        """Return the operator and its place: "mixed" if it has several.

        Conversions before and after the ops that it became do not count, unless it
        became nothing else.
        """
        # An operator without results has no row.
        rows = self._rows_of(op.outputs[0] if op.outputs else "")
        computing = [row for row in rows if row.kind not in _CONVERSIONS]
        places = {row.place for row in computing or rows}
        if not places:
            return SourceRow(op, "none")
        if len(places) > 1:
            return SourceRow(op, "mixed")
        return SourceRow(op, places.pop())

    def _rows_of(self, name: str) -> list[OpRow]:
        """Return the rows of ops from the operator with this first result."""
        # A name with a plus sign is not one of the parts of a source.
        if "+" in name:
            return [row for row in self.rows if _within(name, row.source)]
        return self.by_name.get(name, [])


_CONVERSIONS = (Quantize.kind, Dequantize.kind)
