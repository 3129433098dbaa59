"""A bench's report as Markdown: what a terminal shows, and what CI systems put on the
page of a run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from edgec_devices.requirement import amount

from edgec.benching.figures import Absent, figures, spread
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import WORDS, verdicts
from edgec.report.bench import wording
from edgec.report.bench.histogram import histogram
from edgec.report.bench.wording import mark, ms
from edgec.report.terms import legend
from edgec.report.wording import count, plain, shortened

_SLOWEST = 10
_BAR = 40
_BINS = 8
_NAME = 36


def to_markdown(r: BenchReport, verdicts_last: bool = False) -> str:
    """GitHub's Markdown. verdicts_last: for a terminal, where the end stays on the
    screen.
    """
    head = _headline(r)
    judged = _verdicts(r, verdicts_last)
    rest = [
        _latency(r),
        _segments(r),
        _slowest(r),
        _stream(r),
        _memory(r),
        _device(r),
        _notes(r),
    ]
    blocks = [head, *rest, judged] if verdicts_last else [head, judged, *rest]
    return "\n\n".join(b for b in blocks if b) + "\n"


def _headline(r: BenchReport) -> str:
    return f"## {_prose(r.model)} on {_prose(wording.device(r))}: {', '.join(_told(r))}"


def _told(r: BenchReport) -> list[str]:
    """The figures of the whole; no rate of a board that was not run, and none at all of
    an emulator's.
    """
    if r.emulated:
        return [
            "its times are an emulator's, and nothing follows from them for a board"
        ]
    found = figures(r)
    said = []
    for name in ("p50", "p95", "fps") if not r.estimated else ("p50",):
        figure = found[name]
        if isinstance(figure, Absent):
            return [f"no latency: {_prose(figure.why)}"]
        if r.estimated:
            label = ""
        elif name != "fps":
            label = f"{name} "
        else:
            label = "stream " if r.stream is not None else ""
        said.append(
            f"{label}{mark(r, figure.estimated)}{amount(figure.value, figure.unit)}"
        )
    return said if len(r.latency.samples) > 1 or r.estimated else said[:1]


def _verdicts(r: BenchReport, last: bool) -> str:
    rows = verdicts(r)
    if not rows:
        return ""
    hold, failed, unknown = (
        sum(v.state == state for v in rows) for state in ("pass", "fail", "skipped")
    )
    if failed:
        line = f"FAIL: {failed} of {len(rows)} do{'es' * (failed == 1)} not hold"
    else:
        line = f"PASS: {f'{hold} hold' if hold else 'nothing failed'}" + (
            f", {unknown} unknown" if unknown else ""
        )
    cells = [
        (WORDS[v.state], _code(v.name), v.value, v.margin, _cell(v.why)) for v in rows
    ]
    table = _table(("", "must hold", "value", "margin", ""), cells, "llrrl")
    return f"{table}\n\n{line}" if last else f"{line}\n\n{table}"


def _latency(r: BenchReport) -> str:
    found = r.latency.summary()
    if found is None:
        return ""
    figures = (
        found.min,
        found.p50,
        found.p90,
        found.p95,
        found.p99,
        found.max,
        found.mean,
        spread(found),
    )
    unit = f"{mark(r, r.latency.estimated)}ms"
    header = (unit, "min", "p50", "p90", "p95", "p99", "max", "mean", "p95-p50")
    table = _table(
        header, [("latency", *(ms(v) for v in figures))], "l" + "r" * len(figures)
    )
    if found.n == 1:
        table = (
            f"Latency {ms(found.p50, mark(r, r.latency.estimated))} ms: "
            f"{_prose(r.latency.how)}."
        )
    said = _sentence(wording.conditions(r))
    return "\n\n".join(
        filter(None, [table, legend(wording.latency_terms(r)), said, _bars(r)])
    )


def _bars(r: BenchReport) -> str:
    bins = histogram(r.latency.samples, _BINS)
    if len(bins) < 2:
        return ""
    most = max(b.count for b in bins)
    edge = max(len(ms(b.high)) for b in bins)
    marked = mark(r, r.latency.estimated)
    lines = []
    for b in bins:
        bar = "█" * round(_BAR * b.count / most) or ("▏" if b.count else "")
        lines.append(
            f"{marked}{ms(b.low):>{edge}} to {ms(b.high):>{edge}} ms  {bar:<{_BAR}}  "
            f"{b.count:>6,}"
        )
    return "\n".join(["```", *lines, "```"])


def _segments(r: BenchReport) -> str:
    rows = []
    alone = len(r.latency.samples) <= 1  # then p95 is the same again
    for s in r.segments:
        found = s.latency.summary()
        marked = mark(r, s.latency.estimated)
        if found:
            times = [
                ms(found.p50, marked),
                ms(found.p95, marked),
                wording.share(found.p50, r),
            ]
        else:
            times = [""] * 3
        how = _cell(s.latency.how)
        rows.append(
            (
                _code(s.name),
                wording.place(s),
                _cell(s.backend),
                *(times[::2] if alone else times),
                how,
            )
        )
    if not rows:
        return ""
    header = (
        "segment",
        "place",
        "by",
        "p50 ms",
        *([] if alone else ["p95 ms"]),
        "share",
        "how",
    )
    table = _table(header, rows, "lllrrl" if alone else "lllrrrl")
    parts = [f"- {_prose(said)}" for s in r.segments if (said := wording.parts(s))]
    told = [
        table,
        legend(wording.segment_terms(r)),
        "\n".join(parts),
        legend(wording.part_terms(r)),
    ]
    return "\n\n".join(filter(None, told))


def _slowest(r: BenchReport) -> str:
    spent = wording.ranked(r)
    if all(one.whole for one in spent):
        return ""  # the segments are there already
    rows = []
    for one in spent[:_SLOWEST]:
        kind, macs = (one.kind, "") if one.whole else (_code(one.kind), count(one.macs))
        times = (ms(one.ms, mark(r, one.estimated)), wording.share(one.ms, r))
        rows.append(
            (
                _code(one.name),
                wording.place(one.segment),
                kind,
                _code(one.source),
                macs,
                *times,
            )
        )
    header = (
        "slowest" if len(spent) > _SLOWEST else "op",
        "place",
        "kind",
        "in the model",
        "MACs",
        "ms",
        "share",
    )
    table = _table(header, rows, "llllrrr")
    said = []
    if len(spent) > _SLOWEST:
        rest = sum(one.ms for one in spent[_SLOWEST:])
        marked = mark(r, any(one.estimated for one in spent))
        said.append(
            f"{len(spent) - _SLOWEST} more take {ms(rest, marked)} ms together."
        )
    if any(one.whole for one in spent):
        said.append(
            "A segment on the Edge TPU has no times per op and stands there as a whole."
        )
    if r.profile_overhead is not None:
        said.append(
            f"Profiling changes an inference by {r.profile_overhead:+.1%}; "
            "the latencies above are not profiled."
        )
    return "\n\n".join(filter(None, [table, " ".join(said)]))


def _stream(r: BenchReport) -> str:
    s = r.stream
    if s is None:
        return ""
    marked = mark(r, False)
    late = "" if s.latency is None else f", latency p95 {ms(s.latency.p95, marked)} ms"
    head = (
        f"Stream of {s.delivered} frames: {marked}{s.fps:.1f} frames/s{late}, "
        f"{s.dropped} dropped."
    )
    rows = [
        (
            _code(x.name),
            _cell(", ".join(x.backends)),
            ms(x.ms.p50, marked),
            ms(x.ms.p95, marked),
        )
        for x in s.stages
        if x.ms is not None
    ]
    return f"{head}\n\n{_table(('stage', 'by', 'p50 ms', 'p95 ms'), rows, 'llrr')}"


def _memory(r: BenchReport) -> str:
    rows = list(wording.memory_rows(r))
    if not rows:
        return ""
    table = _table(("memory", "size", "planned"), rows, "lrr")
    return f"{table}\n\n{legend(wording.memory_terms(r))}"


def _device(r: BenchReport) -> str:
    said = [f"- device: {_prose(wording.machine(r))}"]
    v = r.vitals
    if v is not None:
        after = "" if v.celsius_after is None else f", {v.celsius_after:.1f} °C after"
        said.append(f"- vitals: {_prose(v.table())}{after}")
    said.append(
        f"- bundle: {r.bundle_sha256[:16]}, compiled for {_prose(r.target)}; "
        f"edgec {r.edgec}, {r.when}"
    )
    return "\n".join(said)


def _notes(r: BenchReport) -> str:
    notes = [*r.notes, *(r.vitals.notes if r.vitals else ())]
    return "\n".join(f"- note: {_prose(text)}" for text in notes)


# ---- Markdown


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], sides: str) -> str:
    """A table that is aligned as text too. sides: "l" or "r" for each column."""
    widths = [
        max(3, *(len(row[i]) for row in [header, *rows])) for i in range(len(header))
    ]
    widths[-1] = 3 if sides[-1] == "l" else widths[-1]  # nothing stands behind it

    def line(cells: Sequence[str]) -> str:
        padded = [
            c.ljust(w) if side == "l" else c.rjust(w)
            for c, w, side in zip(cells, widths, sides, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        f"{'-' * (w - 1)}{':' if side == 'r' else '-'}"
        for w, side in zip(widths, sides, strict=True)
    ]
    return "\n".join([line(header), f"| {' | '.join(rule)} |", *map(line, rows)])


def _code(text: str) -> str:
    """A name as it is, which nothing in it changes the meaning of."""
    text = shortened(plain(text).replace("`", "'"), _NAME)
    return "`{}`".format(re.sub(r"\\*\|", r"\\|", text)) if text else ""


def _prose(text: str) -> str:
    """Words that may have names in them.

    What means nothing where it stands stays as it is: commands are copied.
    """
    text = re.sub(
        r"`|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)|\](?=\()|~(?=~)",
        r"\\\g<0>",
        plain(text),
    )
    text = text.replace("*", "\\*") if text.count("*") > 1 else text
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def _cell(text: str) -> str:
    """Words in a table."""
    return _prose(text).replace("|", "\\|")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
