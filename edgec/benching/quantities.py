"""Reads the figures that a budget may name from a bench's report.

    min p50 p90 p95 p99 max mean   latency of whole inferences; spread: p95 - p50;
                                   fps: 1000 / mean
    load first warmup              of the worst launch
    tpu cpu                        median of the time in the segments that ran there
    tpu.transfer .invoke .compute  the cost model's parts of the segments on the Edge
                                   TPU: always estimates
    seg0 seg0.p95 seg0.op3         a segment's median, its percentiles, an op's median
                                   by position
    rss arena code constants data  bytes: the process, and its parts by plan and by the
                                   sections of the file
    celsius mhz throttled          the highest, the lowest while it ran, 0 or 1
    latency.p95 stage.capture      of a stream, if one was run: a frame from capture on,
                                   a stage's median
    stage.seg0.p95 dropped         a stage of the model by its first segment; fps is
                                   then the stream's

A share (`seg0<=40%`, `spread<=10%`) is of the median latency; `spread` and the parts of
`tpu` need `%` or `ms`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgec_devices.estimates import COST_MODEL
from edgec_devices.flash import METRICS
from edgec_devices.intervals import EDGETPU_ERROR, ends, estimate_text
from edgec_devices.requirement import Figure, amount
from edgec_devices.throttling import Throttling
from edgec_runtime import Summary
from edgec_runtime.device_end.printable import printable
from edgec_runtime.session.meters import StreamFigures

from edgec.benching.result import (
    BenchReport,
    OncePerLaunch,
    OpReport,
    SegmentReport,
    Series,
)

ON_TPU = ("delegate", COST_MODEL)
"""Backends whose time is the Edge TPU's: measured on it, and estimated."""
TRANSFERS = ("input", "output", "code", "streamed")
"""Parts of the cost model that are transfers."""
STAGES = ("capture", "prepare", "inputs", "result", "picture", "out")
"""Stages of a bundle with a task, around its segments."""


@dataclass(frozen=True)
class Absent:
    """A figure that a run does not have, and the reason in words."""

    why: str


@dataclass(frozen=True)
class Value:
    """A value of a figure.

    Attributes:
        value: the number
        estimated: whether it is an estimate
        ends: the lower and the upper end of an estimate's interval; None without one
    """

    value: float
    estimated: bool = False
    ends: tuple[float, float] | None = None


Reading = Value | str
"""A value, or the reason why there is none."""
Reader = Callable[[BenchReport], Reading]
Culprit = Callable[[BenchReport], str]
"""Returns what contributes most to a figure, in words."""
Pick = Callable[[Summary], float]
"""Returns one of the figures of a series, for example its median."""


def _no_culprit(r: BenchReport) -> str:
    return ""


@dataclass(frozen=True)
class Quantity:
    """The way to read a figure.

    Attributes:
        unit: its unit
        read: reads it from a report
        culprit: returns what contributes most to it
        part: whether it may be given as a share of the median latency
    """

    unit: str
    read: Reader
    culprit: Culprit = _no_culprit
    part: bool = False

    def figure(self, r: BenchReport) -> Figure | Absent:
        """Return the figure of a report."""
        reading = self.read(r)
        if isinstance(reading, str):
            return Absent(reading)
        median = None
        summary = r.latency.summary()
        if self.part and summary:
            median = summary.p50
        culprit = self.culprit(r)
        return Figure(
            reading.value, self.unit, median, culprit, reading.estimated, reading.ends
        )


def spread(summary: Summary) -> float:
    """Return p95 - p50, a spread of latencies that a single outlier does not change."""
    return summary.p95 - summary.p50


def quantities(segments: Sequence[tuple[str, int]]) -> Mapping[str, Quantity]:
    """Return all figures of a model, by name.

    `segments` has the name and the number of ops of each segment. A segment that is
    named like a figure of the whole model does not hide it.
    """
    of_segments: dict[str, Quantity] = {}
    for name, ops in segments:
        for figure, metric in _metrics_of(name).items():
            pick = _metric(metric)
            read = _segment(name, pick)
            culprit = _slowest_op(name, pick)
            of_segments[figure] = Quantity("ms", read, culprit, part=figure == name)
        for i in range(ops):
            read = _op(name, i)
            culprit = _op_culprit(name, i)
            of_segments[f"{name}.op{i}"] = Quantity("ms", read, culprit, part=True)
    of_streams = stream_quantities([name for name, _ in segments])
    return {**of_segments, **of_streams, **WHOLE}


def _metrics_of(name: str) -> dict[str, str]:
    """Return the metric of each figure of a series: `name` alone is its median."""
    metrics = {name: "p50"}
    for metric in METRICS:
        metrics[f"{name}.{metric}"] = metric
    return metrics


# ---- whole inferences


def _of_series(series: Series, pick: Pick, why: str) -> Reading:
    """Return a figure of a series, or `why` if the series is empty."""
    summary = series.summary()
    if not summary:
        return why
    end_summaries = series.end_summaries()
    figure_ends = None
    if end_summaries is not None:
        # A rate is lowest where the time is longest.
        low, high = sorted(map(pick, end_summaries))
        figure_ends = (low, high)
    return Value(pick(summary), series.estimated, figure_ends)


def _metric(name: str) -> Pick:
    return lambda summary: summary.as_dict()[name]


def _latency(pick: Pick) -> Reader:
    """Return a reader of the latency of whole inferences."""

    def read(r: BenchReport) -> Reading:
        why = "no inference was timed"
        # The whole has no latency if one of its segments has none.
        for segment in r.segments:
            if not segment.latency.samples:
                why = _no_latency(segment)
                break
        return _of_series(r.latency, pick, why)

    return read


def _no_latency(segment: SegmentReport) -> str:
    return f"{segment.name} has no latency: {segment.latency.how}"


def _once(pick: Callable[[BenchReport], OncePerLaunch]) -> Reader:
    """Return a reader of a time of the worst launch."""

    def read(r: BenchReport) -> Reading:
        once = pick(r)
        if once.worst is None:
            return "it was not measured on this device"
        return Value(once.worst, once.estimated)

    return read


def _slowest(pick: Pick) -> Culprit:
    """Return a function that names the slowest segment and its slowest op."""
    return lambda r: _slowest_of(r.segments, pick)


def _slowest_of(segments: Sequence[SegmentReport], pick: Pick) -> str:
    """Return the slowest of some segments by a figure, and its slowest op, in words."""
    times = []
    timed = []
    for segment in segments:
        summary = segment.latency.summary()
        if summary:
            times.append(pick(summary))
            timed.append(segment)
    if not timed:
        return ""

    ms = max(times)
    slowest = timed[times.index(ms)]
    estimated, error = slowest.latency.estimated, slowest.latency.error
    place = "on the Edge TPU" if slowest.backend in ON_TPU else "on the CPU"
    text = f"{slowest.name} {place}, {time_text(ms, estimated, error)}"
    if not slowest.ops:
        return text
    op_times = [op.ms for op in slowest.ops]
    i = op_times.index(max(op_times))
    op = slowest.ops[i]
    return f"{text}, slowest op{i} {_op_name(op)} {time_text(op.ms, estimated, error)}"


def _widest(r: BenchReport) -> str:
    """Return the segment whose latencies are farthest apart, in words."""
    without_ops = [replace(segment, ops=()) for segment in r.segments]
    return _slowest_of(without_ops, spread)


def _op_name(op: OpReport) -> str:
    """Return an op's kind, and its name in the model if there is one.

    TFLite names a fused op by all of its parts: the first is enough.
    """
    kind = op.kind or op.name
    source = printable(op.source.split(";")[0])
    return f"{kind} ({source})" if source else kind


def time_text(ms: float, estimated: bool, error: float | None) -> str:
    """Return a time in words: with the relative error of an estimate its interval."""
    if error is not None:
        return f"est. {estimate_text(ms, error)} ms"
    prefix = "est. " if estimated else ""
    return f"{prefix}{amount(ms, 'ms')}"


def _ends(ms: float, error: float | None) -> tuple[float, float] | None:
    """Return the ends of the interval of an estimate; None of a time by a clock."""
    return None if error is None else ends(ms, error)


# ---- the Edge TPU and the CPU


def _segments_on(place: str, r: BenchReport) -> list[SegmentReport]:
    """Return the segments that ran on a place, "tpu" or "cpu"."""
    on_tpu = place == "tpu"
    return [s for s in r.segments if (s.backend in ON_TPU) is on_tpu]


def _nothing_on(place: str, r: BenchReport) -> str:
    """Return the reason why no segment ran on a place."""
    if place == "cpu":
        return "nothing ran on the CPU"
    elsewhere = []
    for segment in r.segments:
        if segment.place == "edgetpu":
            elsewhere.append(f"{segment.name} ran as {segment.backend}")
    why = ", ".join(elsewhere) or "no segment of this model is for it"
    return f"nothing ran on the Edge TPU: {why}"


def _time_on(place: str) -> Reader:
    """Return a reader of the median time that an inference spends on a place."""

    def read(r: BenchReport) -> Reading:
        segments = _segments_on(place, r)
        if not segments:
            return _nothing_on(place, r)
        for segment in segments:
            if not segment.latency.samples:
                return _no_latency(segment)

        # The segments were timed in the same inferences, so that their times add up
        # inference by inference.
        series = [segment.latency.samples for segment in segments]
        totals = map(sum, zip(*series, strict=True))
        estimated = any(segment.latency.estimated for segment in segments)
        total = statistics.median(totals)
        # Segments of one place have one model, and so one error.
        return Value(total, estimated, _ends(total, segments[0].latency.error))

    return read


def _slowest_on(place: str) -> Culprit:
    return lambda r: _slowest_of(_segments_on(place, r), lambda summary: summary.p50)


def _parts(*names: str) -> Reader:
    """Return a reader of the cost model's parts of the time on the Edge TPU."""

    def read(r: BenchReport) -> Reading:
        segments = _segments_on("tpu", r)
        if not segments:
            return _nothing_on("tpu", r)
        if not all(segment.parts for segment in segments):
            return "the bundle does not hold the cost model's parts; compile it again"
        # Each segment is a call of its own, with its own transfers.
        total = 0.0
        for segment in segments:
            for name in names:
                total += segment.parts.get(name, 0.0)
        return Value(total, True, ends(total, EDGETPU_ERROR))

    return read


def _largest_part(*names: str) -> Culprit:
    """Return a function that names the largest of the cost model's parts."""

    def culprit(r: BenchReport) -> str:
        largest = (0.0, "")
        for segment in _segments_on("tpu", r):
            for name in names:
                part = (segment.parts.get(name, 0.0), f"{segment.name}, {name}")
                largest = max(largest, part)
        ms, where = largest
        return f"{where} {time_text(ms, True, EDGETPU_ERROR)}" if where else ""

    return culprit


# ---- segments and ops


def _named(name: str, r: BenchReport) -> SegmentReport:
    """Return the segment of a name."""
    (segment,) = (s for s in r.segments if s.name == name)
    return segment


def _segment(name: str, pick: Pick) -> Reader:
    """Return a reader of the latency of a segment."""

    def read(r: BenchReport) -> Reading:
        segment = _named(name, r)
        return _of_series(segment.latency, pick, _no_latency(segment))

    return read


def _slowest_op(segment: str, pick: Pick) -> Culprit:
    return lambda r: _slowest_of([_named(segment, r)], pick)


def _op(segment: str, index: int) -> Reader:
    """Return a reader of the median time of an op, by its position."""

    def read(r: BenchReport) -> Reading:
        report = _named(segment, r)
        ms, latency = report.ops[index].ms, report.latency
        return Value(ms, latency.estimated, _ends(ms, latency.error))

    return read


def _op_culprit(segment: str, index: int) -> Culprit:
    return lambda r: _op_name(_named(segment, r).ops[index])


# ---- a stream


def stream_quantities(segments: Sequence[str]) -> Mapping[str, Quantity]:
    """Return the figures of a stream of a model with these segments, by name."""
    figures = {}
    for figure, metric in _metrics_of("latency").items():
        read = _streamed(_frame_latency(_metric(metric)))
        figures[figure] = Quantity("ms", read, _slowest_stage)
    for stage in (*STAGES, *segments):
        for figure, metric in _metrics_of(f"stage.{stage}").items():
            read = _streamed(_stage(stage, _metric(metric)))
            figures[figure] = Quantity("ms", read)
    dropped = _streamed(lambda stream: float(stream.dropped))
    figures["dropped"] = Quantity("", dropped, _slowest_stage)
    return figures


def _streamed(pick: Callable[[StreamFigures], float | str]) -> Reader:
    """Return a reader of a figure of the stream; a text is a reason against it."""

    def read(r: BenchReport) -> Reading:
        if r.stream is None:
            return "there was no stream"
        value = pick(r.stream)
        if isinstance(value, str):
            return value
        return Value(value, r.emulated)

    return read


def _frame_latency(pick: Pick) -> Callable[[StreamFigures], float | str]:
    """Return a reader of the latency of a frame from capture on."""

    def read(stream: StreamFigures) -> float | str:
        if stream.latency is None:
            return "no frame arrived"
        return pick(stream.latency)

    return read


def _stage(name: str, pick: Pick) -> Callable[[StreamFigures], float | str]:
    """Return a reader of the time of a stage."""

    def read(stream: StreamFigures) -> float | str:
        for stage in stream.stages:
            # A stage of several segments is named seg0+seg1 or seg0…seg3.
            first = re.split("[+…]", stage.name)[0]
            if first == name and stage.ms is not None:
                return pick(stage.ms)
        stages = ", ".join(stage.name for stage in stream.stages)
        return f"the stream has no stage {name}, but {stages}"

    return read


def _slowest_stage(r: BenchReport) -> str:
    """Return the slowest stage of the stream, which limits its rate, in words."""
    if r.stream is None:
        return ""
    slowest = ""
    slowest_ms = -1.0
    for stage in r.stream.stages:
        if stage.ms is not None and stage.ms.p50 > slowest_ms:
            slowest = stage.name
            slowest_ms = stage.ms.p50
    return f"stage {slowest}, {time_text(slowest_ms, False, None)}" if slowest else ""


def _frames_per_second(r: BenchReport) -> Reading:
    """Return the rate of the stream, or of inferences one after the other."""
    if r.stream is None:
        return _latency(_rate)(r)
    return Value(r.stream.fps, r.emulated)


def _rate_culprit(r: BenchReport) -> str:
    """Return what limits the rate."""
    if r.stream is None:
        return _slowest(_metric("mean"))(r)
    return _slowest_stage(r)


# ---- memory and the device


def _rss(r: BenchReport) -> Reading:
    """Return the peak resident size, in bytes."""
    memory = r.memory
    if memory.rss is None:
        return "the resident size was not measured"
    return Value(memory.rss, memory.rss_estimated)


def _section(pick: Callable[[BenchReport], int]) -> Reader:
    """Return a reader of the bytes of a section of the program's file."""

    def read(r: BenchReport) -> Reading:
        # A program without code is a file that could not be read.
        if not r.memory.code:
            return "the sections of the program's file are not known"
        return Value(pick(r))

    return read


def _arena(r: BenchReport) -> Reading:
    """Return the planned bytes of the largest arena."""
    if "arena" in r.memory.plan:
        return Value(r.memory.plan["arena"])
    return "the plan does not say"


def _largest_area(r: BenchReport) -> str:
    """Return the largest known area of memory, in words."""
    memory = r.memory
    # Constants of the file include those of the plan.
    sizes = {**memory.plan, "code": memory.code, "constants": memory.constants}
    names = ["code", "constants", *(n for n in memory.plan if n != "constants")]
    name = max(names, key=sizes.__getitem__)
    megabytes = round(sizes[name] / 1e6, 2)
    return f"{name}, {amount(megabytes, 'MB')}"


def _vital(pick: Callable[[Throttling], float | None], why: str) -> Reader:
    """Return a reader of a device's vitals; `why` is the reason if it has none."""

    def read(r: BenchReport) -> Reading:
        if r.vitals is None:
            return "nothing was read of the device's clock, temperature and throttling"
        value = pick(r.vitals)
        if value is None:
            return why
        return Value(value)

    return read


def _throttled(vitals: Throttling) -> float | None:
    """Return 1 or 0 for throttling; None if the device does not report it.

    A device that reports nothing may have throttled.
    """
    if vitals.known or vitals.throttled:
        return float(vitals.throttled)
    return None


def _rate(summary: Summary) -> float:
    """Return the inferences per second, one after the other."""
    return 1000 / summary.mean if summary.mean else 0.0


def _throttling_reasons(r: BenchReport) -> str:
    return "; ".join(r.vitals.reasons) if r.vitals else ""


WHOLE: Mapping[str, Quantity] = {
    **{m: Quantity("ms", _latency(_metric(m)), _slowest(_metric(m))) for m in METRICS},
    "spread": Quantity("ms", _latency(spread), _widest, part=True),
    "fps": Quantity("fps", _frames_per_second, _rate_culprit),
    "load": Quantity("ms", _once(lambda r: r.load)),
    "first": Quantity("ms", _once(lambda r: r.first)),
    "warmup": Quantity("ms", _once(lambda r: r.steadiness.warmup)),
    "tpu": Quantity("ms", _time_on("tpu"), _slowest_on("tpu"), part=True),
    "tpu.transfer": Quantity(
        "ms", _parts(*TRANSFERS), _largest_part(*TRANSFERS), part=True
    ),
    "tpu.invoke": Quantity("ms", _parts("invoke"), _largest_part("invoke"), part=True),
    "tpu.compute": Quantity(
        "ms", _parts("compute"), _largest_part("compute"), part=True
    ),
    "cpu": Quantity("ms", _time_on("cpu"), _slowest_on("cpu"), part=True),
    "rss": Quantity("B", _rss, _largest_area),
    "arena": Quantity("B", _arena),
    "code": Quantity("B", _section(lambda r: r.memory.code)),
    "constants": Quantity("B", _section(lambda r: r.memory.constants)),
    "data": Quantity("B", _section(lambda r: r.memory.data)),
    "celsius": Quantity(
        "C",
        _vital(lambda v: v.celsius_max, "the device does not tell its temperature"),
        _throttling_reasons,
    ),
    "mhz": Quantity(
        "MHz",
        _vital(lambda v: v.mhz_min, "the device does not tell its clock"),
        _throttling_reasons,
    ),
    "throttled": Quantity(
        "",
        _vital(_throttled, "the device does not tell whether it throttles"),
        _throttling_reasons,
    ),
}
"""Figures that every model has."""
