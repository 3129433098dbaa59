"""The data of `edgec explain`: where each op goes and why, as JSON (docs/explain-schema.md) and as a plain table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgec.ir import Op, Refusal
from edgec_partitioner.partition import WORTHWHILE, Partition
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import Segment

SCHEMA = 1
_WIDTH = 120
_PLACES = {"edgetpu": "Edge TPU", "cpu": "CPU"}


@dataclass(frozen=True)
class OpRow:
    """One op of the graph. refusals: why it is not on the Edge TPU; none if it is, or if there is no Edge TPU."""

    index: int
    name: str
    source: str
    kind: str
    output: str
    segment: str
    place: str
    macs: int
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True)
class SegmentRow:
    """One segment. est_ms is the cost model's estimate for the Edge TPU; None on the CPU. Sizes in bytes."""

    name: str
    place: str
    ops: int
    macs: int
    parameter_bytes: int
    bytes_in: int
    bytes_out: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    est_ms: float | None


@dataclass(frozen=True)
class Report:
    """What `edgec explain` shows. assumed_quantization: the scales are made up, since no calibration data was given."""

    model: str
    target: str
    link: str | None
    assumed_quantization: bool
    ops: tuple[OpRow, ...]
    segments: tuple[SegmentRow, ...]

    @property
    def tpu_ops(self) -> int:
        """Ops on the Edge TPU."""
        return sum(r.place == "edgetpu" for r in self.ops)

    @property
    def tpu_macs(self) -> int:
        """Multiply-accumulates on the Edge TPU."""
        return sum(r.macs for r in self.ops if r.place == "edgetpu")

    def totals(self) -> dict[str, Any]:
        """Counts of the whole model, and their shares on the Edge TPU (0 to 1)."""
        ops, macs = len(self.ops), sum(r.macs for r in self.ops)
        return {
            "ops": ops,
            "macs": macs,
            "tpu_ops": self.tpu_ops,
            "tpu_macs": self.tpu_macs,
            "tpu_ops_share": self.tpu_ops / ops if ops else 0.0,
            "tpu_macs_share": self.tpu_macs / macs if macs else 0.0,
            "segments": len(self.segments),
            "tpu_segments": sum(s.place == "edgetpu" for s in self.segments),
            "tpu_est_ms": sum(s.est_ms or 0.0 for s in self.segments),
        }

    def to_json(self) -> dict[str, Any]:
        """As docs/explain-schema.md says."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "target": self.target,
            "link": self.link,
            "assumed_quantization": self.assumed_quantization,
            "totals": self.totals(),
            "segments": [asdict(s) for s in self.segments],
            "ops": [asdict(r) for r in self.ops],
        }

    def to_text(self, each_op: bool = True) -> str:
        """For a terminal of 120 columns: every op (unless told not to), then the totals, segments and reasons."""
        blocks = [_op_table(self.ops)] if each_op else []
        blocks += [_head(self), _segment_table(self.segments)]
        if self.link is not None:
            blocks.append(_reasons(self.ops))
        return "\n\n".join(b for b in blocks if b) + "\n"


def explain(parts: Partition, model: str, target: str, assumed_quantization: bool = False) -> Report:
    """The report on a partition; `model` and `target` are shown as given."""
    segment_of = parts.segment_of
    rows = tuple(_op_row(i, op, parts, segment_of[op]) for i, op in enumerate(parts.graph.ops))
    segments = tuple(_segment_row(r, s) for r, s in zip(parts.regions, parts.segments, strict=True))
    return Report(model, target, parts.link.name if parts.link else None, assumed_quantization, rows, segments)


def _op_row(index: int, op: Op, parts: Partition, segment: Segment) -> OpRow:
    y = op.outputs[0]
    refusals = parts.verdicts[op].refusals if op in parts.verdicts else ()
    macs = op.spec.macs(op)
    return OpRow(index, y.name, op.source, op.kind, str(y.type), segment.name, segment.place, macs, refusals)


def _segment_row(region: Region, segment: Segment) -> SegmentRow:
    constants = {v for op in region.ops for v in op.inputs if v.const is not None}
    return SegmentRow(
        name=segment.name,
        place=segment.place,
        ops=len(region.ops),
        macs=segment.macs,
        parameter_bytes=sum(v.type.nbytes for v in constants),
        bytes_in=sum(v.type.nbytes for v in region.inputs),
        bytes_out=sum(v.type.nbytes for v in region.outputs),
        inputs=tuple(v.name for v in region.inputs),
        outputs=tuple(v.name for v in region.outputs),
        est_ms=segment.est_ms,
    )


def _head(r: Report) -> str:
    t = r.totals()
    lines = [f"{r.model} for {r.target}: {t['ops']} ops, {_count(t['macs'])} MACs"]
    if r.link is None:
        lines.append("no Edge TPU in this target: everything is compiled to C")
    else:
        lines.append(
            f"on the Edge TPU ({r.link}): {t['tpu_ops']} of {t['ops']} ops ({_percent(t['tpu_ops_share'])}), "
            f"{_percent(t['tpu_macs_share'])} of the MACs, in {t['tpu_segments']} of {t['segments']} segments"
        )
    if r.assumed_quantization:
        lines.append(
            "note: no calibration data was given; int8 scales are assumed, which hardly changes what maps where"
        )
    return "\n".join(lines)


def _segment_table(segments: Sequence[SegmentRow]) -> str:
    header = ("segment", "place", "ops", "MACs", "parameters", "in", "out", "estimated")
    rows = [
        (
            s.name, _PLACES[s.place], str(s.ops), _count(s.macs),
            _size(s.parameter_bytes), _size(s.bytes_in), _size(s.bytes_out),
            "" if s.est_ms is None else f"{s.est_ms:.2f} ms",
        )
        for s in segments
    ]  # fmt: skip
    return _columns([header, *rows], left=2)


def _op_table(ops: Iterable[OpRow]) -> str:
    """A line for each op: what it is, where it goes, and the rule that keeps it from the Edge TPU."""
    rows = [("op", "kind", "place", "segment", "output", "why")]
    rows += [(str(r.index), r.kind, _PLACES[r.place], r.segment, r.output, _why(r)) for r in ops]
    return "\n".join(map(_cut, _columns(rows, left=6).splitlines()))


def _why(r: OpRow) -> str:
    return f"{r.refusals[0].rule}: {r.refusals[0].seen}" if r.refusals else ""


def _reasons(ops: Iterable[OpRow]) -> str:
    """Refused ops, those of one kind and first rule (or one region that does not pay) together, most MACs first."""
    groups: dict[tuple[str, str], list[OpRow]] = {}
    for r in ops:
        if r.refusals:
            why = r.refusals[0]
            groups.setdefault((why.rule, why.seen if why.rule == WORTHWHILE else r.kind), []).append(r)
    if not groups:
        return "every op goes to the Edge TPU"
    lines = ["on the CPU, and why:"]
    for _, rows in sorted(groups.items(), key=lambda g: (-sum(r.macs for r in g[1]), -len(g[1]), g[0])):
        why = rows[0].refusals[0]
        kinds = ", ".join(dict.fromkeys(r.kind for r in rows))
        lines.append(_cut(f"  {len(rows)} x {kinds}"))
        lines.append(_cut(f"      rule: {why.constraint}"))
        lines.append(_cut(f"      seen: {_seen(rows)}"))
        lines.append(_cut(f"      fix:  {why.fix}"))
    return "\n".join(lines)


def _seen(rows: Sequence[OpRow]) -> str:
    first = rows[0]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return f"{first.refusals[0].seen} (op {first.index}, {first.source or first.name}{more})"


def _columns(rows: Sequence[Sequence[str]], left: int) -> str:
    """Aligned columns: the first `left` to the left, the rest to the right."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in rows
    )


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _count(n: int) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return str(n)


def _size(n: int) -> str:
    return f"{n / 1e6:.2f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB" if n >= 1e3 else f"{n} B"


def _percent(share: float) -> str:
    """Whole percents, but neither 0 nor 100 for what is only nearly so."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return f"{min(max(share, 0.01), 0.99):.0%}"
