"""Writes a bench's report as Markdown, for terminals and the pages of CI runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from edgec_devices.estimates import COST_MODEL
from edgec_devices.intervals import CPU, EDGETPU, EstimatedPart, error_of_sum
from edgec_runtime.session.meters import StreamFigures

from edgec.benching.bundle import BundleBench
from edgec.benching.figures import figures
from edgec.benching.quantities import Absent, spread
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import WORDS, BudgetVerdict, verdicts
from edgec.report.bench import wording
from edgec.report.bench.histogram import histogram
from edgec.report.bench.whole import (
    ALONE,
    NETWORKS,
    OBJECTS,
    network_rows,
    object_rows,
)
from edgec.report.bench.wording import mark, ms
from edgec.report.legend import legend
from edgec.report.wording import count, plain, shortened

MAX_OPS = 10
"""Operations in the table of the slowest."""
BAR_WIDTH = 40
BINS = 8
"""Size of the histogram, in characters and lines."""
MAX_NAME = 36
"""Characters of a name in a table."""


def to_markdown(bench: BundleBench, verdicts_last: bool = False) -> str:
    """Return the bench in GitHub's Markdown; the terms that it uses stand at its end.

    `verdicts_last` is for a terminal, where the end stays on the screen; the report on
    each network of a cascade is left out there.
    """
    report = bench.report
    networks: list[str] = []
    if bench.cascade is None:
        head, tables = report_head(report), [report_body(report)]
        terms = report_terms(report)
    else:
        head = f"## {plain(bench.model)} on {wording.device(report)}"
        tables = _whole(bench)
        terms = wording.latency_terms(report)
    judged = verdict_section(bench.verdicts(), verdicts_last)
    if verdicts_last:
        return paragraphs(head, *tables, legend(terms), judged) + "\n"
    if bench.cascade is not None:
        # A terminal would scroll the tables away, which are what a person looks at.
        terms = []
        for one in bench.networks.values():
            section = verdict_section(verdicts(one), last=False)
            networks += [report_head(one), section, report_body(one)]
            terms += report_terms(one)
    blocks = [head, judged, *tables, *networks, legend(dict.fromkeys(terms))]
    return paragraphs(*blocks) + "\n"


def _whole(bench: BundleBench) -> list[str]:
    """Return the tables of all networks of a cascade together."""
    tables = [markdown_table(NETWORKS, network_rows(bench), "lrrl")]
    objects = object_rows(bench)
    if objects:
        tables += [markdown_table(OBJECTS, objects, "rrr"), f"({ALONE})"]
    if bench.stream is not None:
        tables.append(stream_section(bench.stream, mark(bench.report, False)))
    return tables


def report_head(r: BenchReport) -> str:
    """Return the headline: what was measured where, and the key figures."""
    headline = f"## {_prose(r.model)} on {_prose(wording.device(r))}"
    return f"{headline}: {', '.join(_key_figures(r))}"


def report_body(r: BenchReport) -> str:
    """Return the tables and remarks between head and terms."""
    return paragraphs(
        _latency(r),
        _segments(r),
        _slowest(r),
        _stream(r),
        _memory(r),
        _device(r),
        _notes(r),
    )


def report_terms(r: BenchReport) -> list[str]:
    """Return the terms that a report uses, in the order in which they stand."""
    names = wording.latency_terms(r)
    names += wording.segment_terms(r)
    names += wording.part_terms(r)
    if any(wording.memory_rows(r)):
        names += wording.memory_terms(r)
    return list(dict.fromkeys(names))


def _key_figures(r: BenchReport) -> list[str]:
    """Return the figures of the headline.

    A board that was not run has no rate, and an emulated one no figure at all.
    """
    if r.emulated:
        return [
            "its times are an emulator's, and nothing follows from them for a board"
        ]
    all_figures = figures(r)
    texts = []
    for name in ("p50",) if r.estimated else ("p50", "p95", "fps"):
        figure = all_figures[name]
        if isinstance(figure, Absent):
            return [f"no latency: {_prose(figure.why)}"]

        if r.estimated:
            label = ""
        elif name != "fps":
            label = f"{name} "
        else:
            label = "stream " if r.stream is not None else ""
        texts.append(f"{label}{wording.figure(figure, r)}")

    # The percentiles of one latency are all the same.
    if len(r.latency.samples) <= 1 and not r.estimated:
        return texts[:1]
    return texts


def verdict_section(all_verdicts: Sequence[BudgetVerdict], last: bool) -> str:
    """Return the table of verdicts and the outcome; with `last`, the outcome below."""
    rows = []
    states = []
    for verdict in all_verdicts:
        states.append(verdict.state)
        rows.append(
            (
                WORDS[verdict.state],
                _code(verdict.name),
                verdict.value,
                verdict.margin,
                _cell(verdict.why),
            )
        )
    if not rows:
        return ""
    outcome = _outcome(states)
    table = markdown_table(("", "must hold", "value", "margin", ""), rows, "llrrl")
    return f"{table}\n\n{outcome}" if last else f"{outcome}\n\n{table}"


def _outcome(states: Sequence[str]) -> str:
    """Return the line that says PASS or FAIL."""
    failed = states.count("fail")
    if failed:
        verb = "does" if failed == 1 else "do"
        return f"FAIL: {failed} of {len(states)} {verb} not hold"

    passed = states.count("pass")
    unknown = states.count("skipped")
    line = f"PASS: {passed} hold" if passed else "PASS: nothing failed"
    if unknown:
        return f"{line}, {unknown} unknown"
    return line


def _latency(r: BenchReport) -> str:
    """Return the percentiles, the conditions of the run and the histogram."""
    summary = r.latency.summary()
    if summary is None:
        return ""
    marked = mark(r, r.latency.estimated)
    if summary.n == 1:
        latency = ms(summary.p50, marked, r.latency.error)
        table = f"Latency {latency} ms: {_prose(r.latency.how)}."
    else:
        columns = {
            "min": summary.min,
            "p50": summary.p50,
            "p90": summary.p90,
            "p95": summary.p95,
            "p99": summary.p99,
            "max": summary.max,
            "mean": summary.mean,
            "p95-p50": spread(summary),
        }
        header = (f"{marked}ms", *columns)
        row = ("latency", *map(ms, columns.values()))
        table = markdown_table(header, [row], "l" + "r" * len(columns))

    conditions = _sentence(wording.conditions(r))
    return paragraphs(table, conditions, _histogram(r))


def _histogram(r: BenchReport) -> str:
    """Return a histogram of characters, or "" for fewer than two bins."""
    bins = histogram(r.latency.samples, BINS)
    if len(bins) < 2:
        return ""
    highest = max(b.count for b in bins)
    width = max(len(ms(b.high)) for b in bins)
    marked = mark(r, r.latency.estimated)
    lines = []
    for b in bins:
        bar = "█" * round(BAR_WIDTH * b.count / highest)
        if b.count and not bar:
            bar = "▏"
        low = f"{ms(b.low):>{width}}"
        high = f"{ms(b.high):>{width}}"
        lines.append(f"{marked}{low} to {high} ms  {bar:<{BAR_WIDTH}}  {b.count:>6,}")
    return "\n".join(["```", *lines, "```"])


def _segments(r: BenchReport) -> str:
    """Return the table of segments, and the cost model's parts of their times."""
    if not r.segments:
        return ""
    columns = {
        "segment": "l",
        "place": "l",
        "by": "l",
        "p50 ms": "r",
        "p95 ms": "r",
        "share": "r",
        "how": "l",
    }
    # The 95th percentile of one latency is the median again.
    single = len(r.latency.samples) <= 1
    if single:
        del columns["p95 ms"]

    rows = []
    for segment in r.segments:
        summary = segment.latency.summary()
        marked = mark(r, segment.latency.estimated)
        cells = {
            "segment": _code(segment.name),
            "place": wording.place(segment),
            "by": _cell(segment.backend),
            "how": _cell(segment.latency.how),
        }
        if summary:
            error = segment.latency.error
            cells["p50 ms"] = ms(summary.p50, marked, error)
            cells["p95 ms"] = ms(summary.p95, marked, error)
            cells["share"] = wording.share(summary.p50, r)
        rows.append([cells.get(name, "") for name in columns])
    table = markdown_table(list(columns), rows, "".join(columns.values()))

    # Only segments on the Edge TPU have parts.
    parts = filter(None, map(wording.parts, r.segments))
    part_list = "\n".join(f"- {_prose(text)}" for text in parts)
    return paragraphs(table, part_list)


def _slowest(r: BenchReport) -> str:
    """Return the table of the slowest operations."""
    times = wording.ranked(r)
    if all(time.whole for time in times):
        return ""  # They are in the table of segments already.

    rows = []
    for time in times[:MAX_OPS]:
        rows.append(
            (
                _code(time.name),
                wording.place(time.segment),
                time.kind if time.whole else _code(time.kind),
                _code(time.source),
                "" if time.whole else count(time.macs),
                ms(time.ms, mark(r, time.estimated), time.error),
                wording.share(time.ms, r),
            )
        )

    # "op" where the table has all of them.
    title = "slowest" if len(times) > MAX_OPS else "op"
    header = (title, "place", "kind", "in the model", "MACs", "ms", "share")

    table = markdown_table(header, rows, "llllrrr")
    return paragraphs(table, " ".join(_remarks(r, times)))


def _remarks(r: BenchReport, times: Sequence[wording.TimeSpent]) -> Iterator[str]:
    """Yield sentences about the table of the slowest operations."""
    others = times[MAX_OPS:]
    if others:
        yield f"{len(others)} more take {_together(r, others)} ms together."
    if any(time.whole for time in times):
        yield (
            "A segment on the Edge TPU has no times per op and stands there as a whole."
        )
    if r.profile_overhead is not None:
        yield (
            f"Profiling changes an inference by {r.profile_overhead:+.1%}; "
            "the latencies above are not profiled."
        )


def _together(r: BenchReport, times: Sequence[wording.TimeSpent]) -> str:
    """Return the sum of times."""
    parts = []
    for time in times:
        if time.error is not None:
            model = EDGETPU if time.segment.backend == COST_MODEL else CPU
            parts.append(EstimatedPart(time.ms, time.error, model))
    marked = mark(r, any(time.estimated for time in times))
    error = error_of_sum(parts) if parts else None
    return ms(sum(time.ms for time in times), marked, error)


def _stream(r: BenchReport) -> str:
    """Return the rate and the stages of the stream, or "" if none was run."""
    return "" if r.stream is None else stream_section(r.stream, mark(r, False))


def stream_section(stream: StreamFigures, marked: str) -> str:
    """Return the rate and the stages of a stream; `marked` is the prefix of times."""
    latency = ""
    if stream.latency is not None:
        latency = f", latency p95 {ms(stream.latency.p95, marked)} ms"
    head = (
        f"Stream of {stream.delivered} frames: {marked}{stream.fps:.1f} "
        f"frames/s{latency}, {stream.dropped} dropped."
    )

    table = markdown_table(
        ("stage", "by", "p50 ms", "p95 ms"), stage_rows(stream, marked), "llrr"
    )
    return f"{head}\n\n{table}"


def stage_rows(stream: StreamFigures, marked: str) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of stages that ran; see `stream_section`."""
    rows = []
    for stage in stream.stages:
        if stage.ms is None:
            continue
        backends = _cell(", ".join(stage.backends))
        p50 = ms(stage.ms.p50, marked)
        p95 = ms(stage.ms.p95, marked)
        rows.append((_code(stage.name), backends, p50, p95))
    return rows


def _memory(r: BenchReport) -> str:
    """Return the table of memory, or "" if nothing is known."""
    rows = list(wording.memory_rows(r))
    if not rows:
        return ""
    return markdown_table(("memory", "size", "planned"), rows, "lrr")


def _device(r: BenchReport) -> str:
    """Return a list of the device, its vitals and the bundle."""
    lines = [f"- device: {_prose(wording.machine(r))}"]
    vitals = r.vitals
    if vitals is not None:
        line = f"- vitals: {_prose(vitals.table())}"
        if vitals.celsius_after is not None:
            line += f", {vitals.celsius_after:.1f} °C after"
        lines.append(line)

    # The first digits tell bundles apart well enough.
    bundle = r.bundle_sha256[:16]
    target = _prose(r.target)
    lines.append(
        f"- bundle: {bundle}, compiled for {target}; edgec {r.edgec}, {r.when}"
    )
    return "\n".join(lines)


def _notes(r: BenchReport) -> str:
    notes = list(r.notes)
    if r.vitals:
        notes += r.vitals.notes
    return "\n".join(f"- note: {_prose(text)}" for text in notes)


# ---- Markdown


def paragraphs(*blocks: str) -> str:
    """Join the blocks that are not empty."""
    return "\n\n".join(filter(None, blocks))


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], sides: str
) -> str:
    """Return a table that is aligned as plain text too.

    `sides` has "l" or "r" for each column.
    """
    widths = []
    for column in zip(header, *rows, strict=True):
        widths.append(max(3, *map(len, column)))
    # Nothing stands behind a left-aligned last column: no need to pad it.
    if sides[-1] == "l":
        widths[-1] = 3

    rule = []
    for width, side in zip(widths, sides, strict=True):
        end = ":" if side == "r" else "-"
        rule.append("-" * (width - 1) + end)
    lines = [_padded(header, widths, sides), _padded(rule, widths, sides)]
    for row in rows:
        lines.append(_padded(row, widths, sides))
    return "\n".join(lines)


def _padded(cells: Sequence[str], widths: Sequence[int], sides: str) -> str:
    """Return a line of a table."""
    padded = []
    for cell, width, side in zip(cells, widths, sides, strict=True):
        padded.append(cell.rjust(width) if side == "r" else cell.ljust(width))
    return f"| {' | '.join(padded)} |"


def _code(text: str) -> str:
    """Return a name as code, in which no character is Markdown."""
    text = shortened(plain(text).replace("`", "'"), MAX_NAME)
    if not text:
        return ""
    # A bar would end the cell, and a backslash before it would escape the escape.
    escaped = re.sub(r"\\*\|", r"\\|", text)
    return f"`{escaped}`"


def _prose(text: str) -> str:
    """Return words that may have names in them, with Markdown escaped.

    Characters that are no markup in their place stay, because people copy commands.
    """
    text = re.sub(
        r"`|<(?=[A-Za-z/!?])|\\(?=[!-/:-@\[-`{-~])|&(?=#?\w+;)|\](?=\()|~(?=~)",
        r"\\\g<0>",
        plain(text),
    )
    # Only a pair of asterisks is emphasis, and an underscore only beside a space.
    if text.count("*") > 1:
        text = text.replace("*", "\\*")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def _cell(text: str) -> str:
    """Return words of a table's cell."""
    return _prose(text).replace("|", "\\|")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
