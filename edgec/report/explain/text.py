"""`edgec explain` for a terminal of 120 columns: columns, reasons, segments and
rewrites, then each op.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from edgec_partitioner.comparison import Column
from edgec_partitioner.explain import ON_CHIP, ExplainReport, OpRow, SegmentRow
from edgec_partitioner.partition import WORTHWHILE

from edgec.report.tables import LONGEST, WIDTH, table
from edgec.report.terms import legend
from edgec.report.wording import count, percent, plain, shortened, size

COLUMN_TERMS = ("MACs", "estimated", "uncertain")
SEGMENT_HEAD = (
    "segment",
    "place",
    "ops",
    "MACs",
    "parameters",
    "of 8 MB",
    "in",
    "out",
    "estimated ms",
)
_RULES = {
    WORTHWHILE: "not worth the transfers",
    "supported_op": "not an op of the Edge TPU",
}
PLACES = {
    "edgetpu": "Edge TPU",
    "cpu": "CPU",
    "uncertain": "uncertain",
    "mixed": "both",
    "none": "folded away",
}


def to_text(r: ExplainReport, each_op: bool = True) -> str:
    """The whole report; `each_op`: with a line for every operation at its end."""
    blocks = [
        "\n".join(filter(None, [_hung("", assumptions(r)), _head(r)])),
        _columns_table(r),
        _reasons(r.ops) if r.link is not None else "",
        _notes(r),
        _segment_table(r.segments),
        _rewrites(r),
        _op_table(r.ops) if each_op else "",
    ]
    return "\n\n".join(b for b in blocks if b) + "\n"


def assumptions(r: ExplainReport) -> str:
    """What was assumed for each column, in one line; empty where nothing was."""
    stock = r.comparison.stock
    if stock is None and not r.assumed_quantization:
        return ""
    if r.assumed_quantization:
        scales = "made-up int8 scales"
    else:
        scales = "calibrated scales" if stock and stock.basis != "file" else "nothing"
    ours = "edgec" if r.link is None else "CPU only, edgec"
    return f"assumed: {ours}: {scales}" + (
        f"; stock compiler: {stock.assumed}" if stock else ""
    )


def _head(r: ExplainReport) -> str:
    t = r.comparison.edgec
    line = f"{plain(r.model)} for {r.target}: {t.ops} ops, {count(t.macs)} MACs"
    if r.link is None:
        return (
            f"{line}\nno Edge TPU in this target: everything is compiled to C, "
            f"an estimated {t.est_ms:.2f} ms"
        )
    return (
        f"{line}\non the Edge TPU ({r.link}): {t.tpu_ops} of {t.ops} ops "
        f"({percent(t.tpu_ops_share)}), "
        f"{percent(t.tpu_macs_share)} of the MACs, "
        f"in {t.tpu_segments} of {len(r.segments)} segments"
    )


def _columns_table(r: ExplainReport) -> str:
    rows = comparison_rows(r)
    if rows:
        return f"{table(rows[0], rows[1:], 'l' + 'r' * (len(rows[0]) - 1))}\n{legend(COLUMN_TERMS)}"
    return ""


def comparison_rows(r: ExplainReport) -> list[tuple[str, ...]]:
    """The columns side by side: a header, then one row per figure.

    None without an Edge TPU.
    """
    c = r.comparison
    if r.link is None:
        return []
    stock = c.stock.column if c.stock else None
    every = [c.cpu_only, stock, c.edgec] if stock else [c.cpu_only, c.edgec]
    gain = _gains(r)
    rows: list[tuple[str, ...]] = [
        (
            "",
            "CPU only",
            *(["stock compiler"] if stock else []),
            "edgec",
            *(["gain"] if gain else []),
        )
    ]

    def add(name: str, cells: Iterable[str]) -> None:
        rows.append((name, *cells, *([gain.get(name, "")] if gain else [])))

    add(
        "ops on the Edge TPU",
        (f"{k.tpu_ops} of {k.ops} ({percent(k.tpu_ops_share)})" for k in every),
    )
    add(
        "MACs on the Edge TPU",
        (f"{count(k.tpu_macs)} ({percent(k.tpu_macs_share)})" for k in every),
    )
    add("uncertain ops", (str(k.uncertain_ops) for k in every))
    add("Edge TPU segments", (str(k.tpu_segments) for k in every))
    add("estimated ms, Edge TPU", (f"{k.tpu_ms:.2f}" for k in every))
    add("estimated ms, CPU", (f"{k.cpu_ms:.2f}" for k in every))
    add("estimated ms, together", (f"{k.est_ms:.2f}" for k in every))
    return rows


def _gains(r: ExplainReport) -> dict[str, str]:
    gain = r.comparison.gain()
    if gain is None:
        return {}
    return {
        "ops on the Edge TPU": f"{100 * gain['tpu_ops_share']:+.1f} points",
        "MACs on the Edge TPU": f"{100 * gain['tpu_macs_share']:+.1f} points",
        "estimated ms, together": f"{gain['speedup']:.1f} x as fast",
    }


def _notes(r: ExplainReport) -> str:
    return "\n".join(
        textwrap.fill(f"note: {plain(text)}", WIDTH, subsequent_indent="      ")
        for text in notes(r)
    )


def notes(r: ExplainReport) -> Iterator[str]:
    """What a reader must know to read the figures right."""
    if r.obstacle:
        yield f"edgec cannot compile this model yet: {r.obstacle}"
    for remark in r.remarks:
        yield "\n      ".join(
            wrap(remark, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
        )
    if r.assumed_quantization:
        yield (
            "no calibration data was given: int8 scales are made up, "
            "which hardly changes what maps"
        )
    if r.bound_ms is not None:
        yield _optimality(r.comparison.edgec.est_ms, r.bound_ms)
    stock = r.comparison.stock
    if stock is None:
        return
    yield (
        "stock compiler: what edgetpu_compiler would map of that file, "
        "by emulation of its rules"
    )
    if stock.basis != "file":
        yield (
            "that file has int8 inputs and outputs, channels last: "
            "what converts inputs and outputs is an op in no "
            "column, but conversion from and to float is in the estimated ms; "
            "scales are assumed, uncertain ops taken "
            "to map"
        )
    if stock.every_set.tpu_segments > stock.column.tpu_segments:
        yield f"stock compiler with its option -a: {_every_set(stock.every_set)}"
    if stock.gives_up:
        yield f"the stock compiler gives the whole file up: {stock.gives_up}"


def _optimality(est_ms: float, bound_ms: float) -> str:
    """How good the choice of segments is; beyond 0.1 %, a better one may exist."""
    slack = est_ms - bound_ms
    if slack <= 1e-3 * est_ms:
        return "no other choice of segments is estimated to be faster (proven)"
    return (
        f"another choice of segments might be at most {slack:.2f} ms faster, "
        "by the estimate"
    )


def _every_set(c: Column) -> str:
    return (
        f"{c.tpu_ops} of {c.ops} ops, {percent(c.tpu_macs_share)} of the MACs, "
        f"{c.tpu_segments} segments, "
        f"an estimated {c.est_ms:.2f} ms"
    )


def _segment_table(segments: Sequence[SegmentRow]) -> str:
    found = table(SEGMENT_HEAD, [segment_cells(s) for s in segments], "llrrrrrrr")
    return "\n\n".join(
        filter(None, [found, _parts_table(segments), legend(segment_terms(segments))])
    )


def segment_cells(s: SegmentRow) -> tuple[str, ...]:
    """Below SEGMENT_HEAD."""
    share = percent(s.parameter_bytes / ON_CHIP) if s.place == "edgetpu" else ""
    sizes = (size(s.parameter_bytes), share, size(s.bytes_in), size(s.bytes_out))
    return (
        s.name,
        PLACES[s.place],
        str(s.ops),
        count(s.macs),
        *sizes,
        f"{s.est_ms:.2f}",
    )


def segment_terms(segments: Sequence[SegmentRow]) -> list[str]:
    """What must be explained of their tables."""
    parts = next((list(s.est_parts.parts()) for s in segments if s.est_parts), [])
    if segments:
        return ["segment", "parameters", *(["of 8 MB", *parts] if parts else [])]
    return []


def _parts_table(segments: Sequence[SegmentRow]) -> str:
    """What the time on the Edge TPU is made of."""
    timed = [(s, s.est_parts) for s in segments if s.est_parts]
    if not timed:
        return ""
    header = ("estimated ms", *timed[0][1].parts(), "together")
    rows = [
        (s.name, *(f"{ms:.2f}" for ms in t.parts().values()), f"{t.ms:.2f}")
        for s, t in timed
    ]
    return table(header, rows, "l" + "r" * (len(header) - 1))


@dataclass(frozen=True)
class Brought:
    """What a rewrite did to a model: how often it was made, and what of its ops is on
    the Edge TPU.
    """

    rewrite: str
    times: int
    tpu_ops: int
    tpu_macs: int


def brought(r: ExplainReport) -> list[Brought]:
    """Each rewrite that was made, most MACs first."""
    times: dict[str, int] = {}
    for a in r.applied:
        times[a.rewrite] = times.get(a.rewrite, 0) + 1
    found = []
    for name, n in times.items():
        ops = [row for row in r.ops if name in row.rewrites and row.place == "edgetpu"]
        found.append(Brought(name, n, len(ops), sum(row.macs for row in ops)))
    return sorted(found, key=lambda b: (-b.tpu_macs, -b.tpu_ops, b.rewrite))


def _rewrites(r: ExplainReport) -> str:
    rows = [
        (b.rewrite, str(b.times), str(b.tpu_ops), count(b.tpu_macs)) for b in brought(r)
    ]
    return table(("rewrite", "times", "its ops on the Edge TPU", "MACs"), rows, "lrrr")


def _op_table(ops: Iterable[OpRow]) -> str:
    """A line for each op: what it is, where it goes, and the rule that keeps it from
    the Edge TPU, or its rewrite.
    """
    rows = [
        (str(r.index), r.kind, PLACES[_shown(r)], r.segment, r.output, _why(r))
        for r in ops
    ]
    return table(("op", "kind", "place", "segment", "output", "why"), rows, "llllll")


def _shown(r: OpRow) -> str:
    return "uncertain" if r.verdict == "uncertain" and r.place == "cpu" else r.place


def _why(r: OpRow) -> str:
    if r.refusals:
        return f"{in_words(r.refusals[0].rule)}: {r.refusals[0].seen}"
    return f"rewritten: {', '.join(r.rewrites)}" if r.rewrites else ""


def in_words(rule: str) -> str:
    """A support rule's name, for people; the name itself is in the JSON."""
    return _RULES.get(rule) or rule.replace("_", " ")


@dataclass(frozen=True)
class Reason:
    """Ops that one rule keeps on the CPU: of one kind, or of one region that does not
    pay.
    """

    kinds: str
    uncertain: bool
    constraint: str
    seen: str
    fix: str | None
    ops: tuple[OpRow, ...]

    @property
    def macs(self) -> int:
        """Multiply-accumulates that stay on the CPU for it."""
        return sum(op.macs for op in self.ops)

    @property
    def cpu_ms(self) -> float:
        """Estimated time on the CPU of what stays there for it."""
        return sum(op.cpu_ms for op in self.ops)

    def title(self, times: str) -> str:
        """How much of what. times: the sign."""
        macs = f"{count(self.macs)} MACs, " if self.macs else ""
        return (
            f"{len(self.ops)} {times} {self.kinds}: "
            f"{macs}an estimated "
            f"{self.cpu_ms:.2f} ms on the CPU"
        )


def reasons(ops: Iterable[OpRow]) -> list[Reason]:
    """Why what is on the CPU is there, most MACs first, then most time."""
    groups: dict[tuple[str, str], list[OpRow]] = {}
    for r in ops:
        if r.refusals:
            why = r.refusals[0]
            groups.setdefault(
                (why.rule, why.seen if why.rule == WORTHWHILE else r.kind), []
            ).append(r)
    ordered = sorted(
        groups.items(),
        key=lambda g: (-sum(r.macs for r in g[1]), -sum(r.cpu_ms for r in g[1]), g[0]),
    )
    return [_reason(rows) for _, rows in ordered]


def _reason(rows: Sequence[OpRow]) -> Reason:
    first = rows[0]
    why = rows[0].refusals[0]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    seen = shortened(
        plain(f"{why.seen} (op {first.index}, {first.source or first.name}{more})"),
        LONGEST,
    )
    kinds = ", ".join(dict.fromkeys(r.kind for r in rows))
    return Reason(
        kinds,
        why.uncertain,
        " ".join(why.constraint.split()),
        seen,
        why.fix,
        tuple(rows),
    )


def _reasons(ops: Iterable[OpRow]) -> str:
    """Those that something can be done about in full; of the others a line for each
    rule.
    """
    found = reasons(ops)
    if not found:
        return "every op goes to the Edge TPU"
    lines = ["why not on the Edge TPU:"]
    for r in found:
        if r.fix:
            unsure = "  (uncertain: --optimistic tries)" if r.uncertain else ""
            lines.append(f"  {r.title('x')}{unsure}")
            told = (("rule", r.constraint), ("seen", r.seen), ("fix", r.fix))
            lines += [
                _hung(f"      {name + ':':<5} ", plain(text)) for name, text in told
            ]
    idle: dict[str, list[Reason]] = {}
    for r in found:
        if not r.fix:
            idle.setdefault(r.constraint, []).append(r)
    for rule, group in idle.items():
        kinds = dict.fromkeys(kind for r in group for kind in r.kinds.split(", "))
        times = sum(len(r.ops) for r in group)
        if group[0].ops[0].refusals[0].rule == WORTHWHILE:
            more = "; --edgetpu all puts it there"
        else:
            more = ""
        lines.append(
            _hung(
                "  no fix needed: ",
                plain(f"{times} x {', '.join(kinds)}: {rule}{more}"),
            )
        )
    return "\n".join(lines)


def _hung(start: str, text: str) -> str:
    margin = " " * len(start)
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=margin,
        break_on_hyphens=False,
    )
