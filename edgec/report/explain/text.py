"""Writes the report of `edgec explain` for a terminal of 120 columns.

The text has columns, reasons, notes, segments, rewrites, and then each op.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from edgec_devices.intervals import estimate_text, two_digits
from edgec_partitioner.comparison import Column, Stock
from edgec_partitioner.explain import ON_CHIP, ExplainReport, OpRow, SegmentRow
from edgec_partitioner.partition import WORTHWHILE

from edgec.report.explain.reasons import SMALL, Reason, pays, reasons
from edgec.report.legend import legend
from edgec.report.tables import WIDTH, table
from edgec.report.wording import count, percent, plain, size
from edgec.schedule.alternatives import Alternative, ScheduledCall

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
RULE_NAMES = {
    WORTHWHILE: "not worth the transfers",
    "supported_op": "not an op of the Edge TPU",
}
"""Names of rules for people; other rules are named by their functions."""
PLACES = {
    "edgetpu": "Edge TPU",
    "cpu": "CPU",
    "uncertain": "uncertain",
    "mixed": "both",
    "none": "folded away",
}
NOTE_INDENT = "      "
"""Indent of the second line of a note, below the text after "note: "."""
PROVEN_SLACK = 1e-3
"""Estimates this near to the lower bound count as optimal, as a share."""


def to_text(r: ExplainReport, each_op: bool = False) -> str:
    """Return the whole report, and the terms that it uses.

    With `each_op` it has a line for every op, and every reason in full.
    """
    report = body(r, each_op)
    # A term is explained once, however many tables have it.
    terms = legend(report_terms(r))
    return f"{report}\n\n{terms}\n"


def body(r: ExplainReport, each_op: bool) -> str:
    """Return the report without its terms, which several reports may share."""
    assumed = _hung("", assumptions(r))
    head = _head(r)
    blocks = [
        f"{assumed}\n{head}" if assumed else head,
        _columns_table(r),
        _reasons(r, each_op) if r.link is not None else "",
        _notes(r),
        _segment_tables(r.segments),
        _rewrites(r),
        _op_table(r.ops) if each_op else _more(r.ops),
        schedule_text(r.schedule),
    ]
    return _paragraphs(blocks)


def _more(ops: Sequence[OpRow]) -> str:
    """Return the way to see each op, if there are any."""
    # Of a file that edgec cannot compile there are none.
    if not ops:
        return ""
    return "(edgec explain --ops has a line for each operation)"


def report_terms(r: ExplainReport) -> list[str]:
    """Return the terms that a report uses, in the order in which they stand."""
    names = column_terms(r)
    names += segment_terms(r.segments)
    return names


def _paragraphs(blocks: Iterable[str]) -> str:
    """Join the blocks that are not empty."""
    return "\n\n".join(filter(None, blocks))


def assumptions(r: ExplainReport) -> str:
    """Return the assumptions of each column in one line, or "" if there are none."""
    stock = r.comparison.stock
    if stock is None and not r.assumed_quantization:
        return ""
    if r.assumed_quantization:
        scales = "made-up int8 scales"
    elif stock and stock.basis != "file":
        scales = "calibrated scales"
    else:
        scales = "nothing"
    # Without an Edge TPU the report has only edgec's column.
    column = "edgec" if r.link is None else "CPU only, edgec"
    line = f"assumed: {column}: {scales}"

    if stock:
        return f"{line}; stock compiler: {stock.assumed}"
    return line


def _head(r: ExplainReport) -> str:
    """Return the model, the target, and the shares on the Edge TPU."""
    c = r.comparison.edgec
    line = f"{plain(r.model)} for {r.target}: {c.ops} ops, {count(c.macs)} MACs"
    if r.link is None:
        return (
            f"{line}\nno Edge TPU in this target: everything is compiled to C, "
            f"an estimated {whole_ms(r)} ms"
        )
    return (
        f"{line}\non the Edge TPU ({r.link}): {c.tpu_ops} of {c.ops} ops "
        f"({percent(c.tpu_ops_share)}), "
        f"{percent(c.tpu_macs_share)} of the MACs, "
        f"in {c.tpu_segments} of {len(r.segments)} segments"
    )


def whole_ms(r: ExplainReport) -> str:
    """Return the interval of the estimated time of the whole model, ms."""
    return estimate_text(r.comparison.edgec.est_ms, r.error())


def _columns_table(r: ExplainReport) -> str:
    """Return the comparison of columns, or "" without an Edge TPU."""
    rows = comparison_rows(r)
    if not rows:
        return ""

    header = rows[0]
    alignment = "l" + "r" * (len(header) - 1)
    return table(header, rows[1:], alignment)


def column_terms(r: ExplainReport) -> list[str]:
    """Return the terms in the head, the comparison and the reasons."""
    terms = ["MACs", "estimated"]
    # Few models have such ops, and the word needs a long explanation.
    columns = _columns(r).values()
    if any(c.uncertain_ops for c in columns):
        terms.append("uncertain")
    return terms


def _columns(r: ExplainReport) -> dict[str, Column]:
    """Return the columns, from the least to the most use of the Edge TPU."""
    if r.link is None:
        return {}
    c = r.comparison
    columns = {"CPU only": c.cpu_only}
    if c.stock and c.stock.column:
        columns["stock compiler"] = c.stock.column

    columns["edgec"] = c.edgec
    return columns


def comparison_rows(r: ExplainReport) -> list[tuple[str, ...]]:
    """Return the columns side by side: a header, then a row for each figure.

    Without an Edge TPU there are no rows.
    """
    columns = _columns(r)
    if not columns:
        return []
    header = ["", *columns]
    gains = _gains(r)
    if gains:
        header.append("gain")
    rows = [tuple(header)]
    for name, cell in _FIGURES.items():
        if name == _UNCERTAIN and not any(c.uncertain_ops for c in columns.values()):
            continue
        row = [name, *map(cell, columns.values())]
        if gains:
            row.append(gains.get(name, ""))
        rows.append(tuple(row))
    return rows


def _tpu_ops(c: Column) -> str:
    return f"{c.tpu_ops} of {c.ops} ({percent(c.tpu_ops_share)})"


def _tpu_macs(c: Column) -> str:
    return f"{count(c.tpu_macs)} ({percent(c.tpu_macs_share)})"


_UNCERTAIN = "uncertain ops"
"""The figure that few models have."""
_FIGURES: dict[str, Callable[[Column], str]] = {
    "ops on the Edge TPU": _tpu_ops,
    "MACs on the Edge TPU": _tpu_macs,
    _UNCERTAIN: lambda c: str(c.uncertain_ops),
    "Edge TPU segments": lambda c: str(c.tpu_segments),
    "estimated ms, Edge TPU": lambda c: two_digits(c.tpu_ms),
    "estimated ms, CPU": lambda c: two_digits(c.cpu_ms),
    "estimated ms, together": lambda c: two_digits(c.est_ms),
}
"""The cell of each figure in a column of the comparison."""


def _gains(r: ExplainReport) -> dict[str, str]:
    """Return the gain over the stock compiler by figure; empty without one."""
    gain = r.comparison.gain()
    if gain is None:
        return {}
    return {
        "ops on the Edge TPU": f"{100 * gain['tpu_ops_share']:+.1f} points",
        "MACs on the Edge TPU": f"{100 * gain['tpu_macs_share']:+.1f} points",
        "estimated ms, together": f"{gain['speedup']:.1f} x as fast",
    }


def _notes(r: ExplainReport) -> str:
    """Return the notes as wrapped paragraphs."""
    paragraphs = []
    for note in notes(r):
        text = f"note: {plain(note)}"
        paragraphs.append(textwrap.fill(text, WIDTH, subsequent_indent=NOTE_INDENT))
    return "\n".join(paragraphs)


def notes(r: ExplainReport) -> Iterator[str]:
    """Yield the facts that a reader needs to read the figures right."""
    if r.obstacle:
        yield f"edgec cannot compile this model yet: {r.obstacle}"
    for remark in r.remarks:
        # Names of files and options must stay whole to be copied.
        lines = textwrap.wrap(
            remark, WIDTH - 6, break_long_words=False, break_on_hyphens=False
        )
        yield f"\n{NOTE_INDENT}".join(lines)
    if r.assumed_quantization:
        yield (
            "no calibration data was given: int8 scales are made up, "
            "which hardly changes what maps"
        )
    if r.bound_ms is not None:
        yield _optimality(r.comparison.edgec.est_ms, r.bound_ms)
    if r.comparison.stock is not None:
        yield from _stock_notes(r.comparison.stock)


def _stock_notes(stock: Stock) -> Iterator[str]:
    """Yield the facts about the column of the stock compiler."""
    yield (
        "stock compiler: what edgetpu_compiler would map of that file, "
        "by emulation of its rules"
    )
    if stock.basis != "file":
        yield (
            "that file has int8 inputs and outputs, channels last: "
            "what converts inputs and outputs is an op in no "
            "column, but conversion from and to float is in the estimated ms; "
            "scales are assumed, ops of which no public log tells are taken to map"
        )
    # The stock compiler makes one segment unless its option -a allows more.
    every_set = stock.every_set
    if every_set.tpu_segments > stock.column.tpu_segments:
        yield (
            "stock compiler with its option -a, which allows several segments: "
            f"{every_set.tpu_ops} of {every_set.ops} ops, "
            f"{percent(every_set.tpu_macs_share)} of the MACs, "
            f"{every_set.tpu_segments} segments, "
            f"an estimated {two_digits(every_set.est_ms)} ms"
        )
    if stock.gives_up:
        yield f"the stock compiler gives the whole file up: {stock.gives_up}"


def _optimality(est_ms: float, bound_ms: float) -> str:
    """Return how near the choice of segments is to the lower bound of the estimate."""
    slack = est_ms - bound_ms
    if slack <= PROVEN_SLACK * est_ms:
        return "no other choice of segments is estimated to be faster (proven)"
    return (
        f"another choice of segments might be at most {two_digits(slack)} ms faster, "
        "by the estimate"
    )


def _segment_tables(segments: Sequence[SegmentRow]) -> str:
    """Return the tables of segments and of their times."""
    rows = [segment_cells(segment) for segment in segments]
    sizes = table(SEGMENT_HEAD, rows, "llrrrrrrr")
    return _paragraphs([sizes, _parts_table(segments)])


def segment_cells(s: SegmentRow) -> tuple[str, ...]:
    """Return the cells of a segment below SEGMENT_HEAD."""
    share = ""
    if s.place == "edgetpu":
        # Parameters beyond the on-chip memory are sent again for each inference.
        share = percent(s.parameter_bytes / ON_CHIP)
    return (
        s.name,
        PLACES[s.place],
        str(s.ops),
        count(s.macs),
        size(s.parameter_bytes),
        share,
        size(s.bytes_in),
        size(s.bytes_out),
        two_digits(s.est_ms),
    )


def segment_terms(segments: Sequence[SegmentRow]) -> list[str]:
    """Return the terms in the tables of segments."""
    if not segments:
        return []
    terms = ["segment", "parameters"]
    for segment in segments:
        if segment.est_parts:
            return [*terms, "of 8 MB", *segment.est_parts.parts()]
    return terms


def _parts_table(segments: Sequence[SegmentRow]) -> str:
    """Return the table of the parts of each segment's time on the Edge TPU."""
    header: tuple[str, ...] = ()
    rows = []
    for segment in segments:
        time = segment.est_parts
        if not time:
            continue
        parts = time.parts()
        # All segments on the Edge TPU have the same parts.
        header = header or ("estimated ms", *parts, "together")
        cells = [two_digits(ms) for ms in parts.values()]
        rows.append((segment.name, *cells, two_digits(time.ms)))
    return table(header, rows, "l" + "r" * (len(header) - 1))


@dataclass(frozen=True)
class Brought:
    """The effect of a rewrite on a model.

    Attributes:
        rewrite: name of the rewrite
        times: how often it was applied
        tpu_ops: number of the ops it made that are on the Edge TPU
        tpu_macs: multiply-accumulates of these ops
    """

    rewrite: str
    times: int
    tpu_ops: int
    tpu_macs: int


def brought(r: ExplainReport) -> list[Brought]:
    """Return the effect of each applied rewrite, most MACs first."""
    # A rewrite may be applied without any of its ops reaching the Edge TPU.
    times: dict[str, int] = {}
    for applied in r.applied:
        times[applied.rewrite] = times.get(applied.rewrite, 0) + 1

    effects = []
    for name, n in times.items():
        ops = []
        for op in r.ops:
            if name in op.rewrites and op.place == "edgetpu":
                ops.append(op)
        macs = sum(op.macs for op in ops)
        effects.append(Brought(name, n, len(ops), macs))
    return sorted(effects, key=lambda b: (-b.tpu_macs, -b.tpu_ops, b.rewrite))


def rewrite_cells(effect: Brought) -> tuple[str, str, str, str]:
    """Return the row of a rewrite in the table of rewrites."""
    return (
        effect.rewrite,
        str(effect.times),
        str(effect.tpu_ops),
        count(effect.tpu_macs),
    )


def _rewrites(r: ExplainReport) -> str:
    """Return the table of rewrites."""
    rows = [rewrite_cells(effect) for effect in brought(r)]
    header = ("rewrite", "times", "its ops on the Edge TPU", "MACs")
    return table(header, rows, "lrrr")


def _op_table(ops: Iterable[OpRow]) -> str:
    """Return a row for each op: its place and the reason for it."""
    rows = []
    for op in ops:
        place = PLACES[_shown_place(op)]
        rows.append((str(op.index), op.kind, place, op.segment, op.output, _why(op)))
    return table(("op", "kind", "place", "segment", "output", "why"), rows, "llllll")


def _shown_place(op: OpRow) -> str:
    """Return the key of an op's place in PLACES."""
    if op.verdict == "uncertain" and op.place == "cpu":
        return "uncertain"
    return op.place


def _why(op: OpRow) -> str:
    """Return the rule that keeps an op from the Edge TPU, or its rewrites."""
    # One reason is enough for a line; the JSON has them all.
    if op.refusals:
        refusal = op.refusals[0]
        return f"{in_words(refusal.rule)}: {refusal.seen}"
    if op.rewrites:
        return f"rewritten: {', '.join(op.rewrites)}"
    return ""


def in_words(rule: str) -> str:
    """Return the name of a support rule for people; JSON has the rule's own name."""
    return RULE_NAMES.get(rule) or rule.replace("_", " ")


def _reasons(r: ExplainReport, each: bool) -> str:
    """Return the reasons with a fix in full, and a line for each other rule.

    each: also what gains next to nothing, which else is one line.
    """
    all_reasons = reasons(r.ops)
    if not all_reasons:
        return "every op goes to the Edge TPU"

    lines = ["why not on the Edge TPU:"]
    small: list[Reason] = []
    unfixable: dict[str, list[Reason]] = {}
    for reason in all_reasons:
        if not reason.fix:
            unfixable.setdefault(reason.constraint, []).append(reason)
        elif not each and not pays(reason, r):
            small.append(reason)
        else:
            lines += _fixable(reason, reason.fix)
    if small:
        lines.append(_next_to_nothing(small))
    for rule, group in unfixable.items():
        lines.append(_unfixable(rule, group))
    return "\n".join(lines)


def _fixable(reason: Reason, fix: str) -> Iterator[str]:
    """Yield the title, the rule, the violation and the fix."""
    hint = "  (uncertain: --optimistic tries)" if reason.uncertain else ""
    yield f"  {reason.title('x')}{hint}"
    details = {"rule:": reason.constraint, "seen:": reason.seen, "fix:": fix}
    for label, text in details.items():
        yield _hung(f"      {label:<5} ", plain(text))


def _next_to_nothing(group: Sequence[Reason]) -> str:
    """Return the line of the reasons with a fix that would gain too little."""
    parts = [f"{len(reason.ops)} x {reason.kinds}" for reason in group]
    kinds = ", ".join(parts)
    return _hung(
        f"  less than {percent(SMALL)} to gain: ",
        plain(f"{kinds} (--ops has the fixes)"),
    )


def _unfixable(rule: str, group: Sequence[Reason]) -> str:
    """Return the line of a rule that no change of the model satisfies."""

    kinds: dict[str, None] = {}
    total = 0
    cpu_ms = 0.0
    for reason in group:
        kinds |= dict.fromkeys(reason.kinds.split(", "))
        total += len(reason.ops)
        cpu_ms += reason.cpu_ms
    hint = ""
    if group[0].ops[0].refusals[0].rule == WORTHWHILE:
        hint = "; --edgetpu all puts it there"
    title = f"{total} x {', '.join(kinds)}, an estimated {two_digits(cpu_ms)} ms"
    return _hung("  no fix: ", plain(f"{title}: {rule}{hint}"))


def _hung(start: str, text: str) -> str:
    """Return a paragraph that hangs below the end of its label `start`."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
    )


_HEAD = ("kernel", "estimated cycles", "parameters", "legal ones", "")


def schedule_text(calls: Sequence[ScheduledCall]) -> str:
    """Return a table of the kernels of each call."""
    parts = []
    for call in calls:
        fused = f", then {', '.join(call.then)}" if call.then else ""
        rows = [_row(alternative) for alternative in call.alternatives]
        head = f"{call.op}: {call.plain}{fused}, on {call.core}"
        parts.append(f"{head}\n{table(_HEAD, rows, 'lrlrl')}")
    return "\n\n".join(part.strip("\n") for part in parts)


def _row(a: Alternative) -> tuple[str, ...]:
    """Return the cells of a kernel."""
    parameters = " ".join(f"{name}={value}" for name, value in a.schedule.items())
    # A kernel that `make cpu-table` has not seen on this core has no figure.
    cycles = "not measured" if a.cycles is None else count(round(a.cycles))
    return (a.kernel, cycles, parameters, str(a.legal), a.reason)
