"""The figures of a bench's report that a budget may name, and whether budgets hold.

    min p50 p90 p95 p99 max mean   of the latency of whole inferences; spread: p95 - p50; fps:
                                   1000 / mean
    load first warmup              of the worst launch
    tpu cpu                        the median of the time in segments that ran there
    tpu.transfer .invoke .compute  the cost model's parts of what ran on the Edge TPU: always
                                   estimates
    seg0 seg0.p95 seg0.op3         a segment's median, its percentiles, an op's median by position
    rss arena code constants data  bytes: the process, and its parts by plan and by the file's
                                   sections
    celsius mhz throttled          the highest, the lowest while it ran, 0 or 1
    latency.p95 stage.capture      of a stream, where one was run: of a frame from capture on, a
                                   stage's median;
    stage.seg0.p95 dropped         a stage of the model by its first segment; fps is then the
                                   stream's

A share (`seg0<=40%`, `spread<=10%`) is of the median latency; `spread` and the parts of
`tpu` need `%` or `ms`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgec_devices.estimating import COST_MODEL
from edgec_devices.flash import METRICS
from edgec_devices.requirement import Figure, Kind, Requirement, Vocabulary, amount
from edgec_devices.throttling import Throttling
from edgec_runtime import Bundle, Summary
from edgec_runtime.device_end.printable import printable
from edgec_runtime.session.meters import StreamFigures

from edgec.benching.build import read_graph
from edgec.benching.result import (
    EMULATOR,
    BenchReport,
    Check,
    OncePerLaunch,
    OpReport,
    SegmentReport,
    Series,
)
from edgec.errors import InputError

ON_TPU = ("delegate", COST_MODEL)
"""Backends whose time is the Edge TPU's: measured on it, and estimated of it."""

_TRANSFERS = ("input", "output", "code", "streamed")
_SHARES = ("spread", "tpu.transfer", "tpu.invoke", "tpu.compute")
"""What is mostly asked for as a share of the latency: a number without a unit lacks its
%.
"""
_EXAMPLE = "p95<=33ms, first<=500ms or rss<=80MB"


@dataclass(frozen=True)
class Absent:
    """A figure that this run does not have. why: in words."""

    why: str


_Read = tuple[float, bool] | str
"""A value and whether it is an estimate, or why there is none."""


def _none(r: BenchReport) -> str:
    """No culprit."""
    return ""


@dataclass(frozen=True)
class _Quantity:
    """How a figure is made of a report. part: of the median latency."""

    unit: str
    read: Callable[[BenchReport], _Read]
    culprit: Callable[[BenchReport], str] = _none
    part: bool = False

    def figure(self, r: BenchReport) -> Figure | Absent:
        """It, of a report."""
        found = self.read(r)
        if isinstance(found, str):
            return Absent(found)
        whole = r.latency.summary() if self.part else None
        return Figure(
            found[0], self.unit, whole.p50 if whole else None, self.culprit(r), found[1]
        )


class Figures(Mapping[str, Figure | Absent]):
    """Every figure that a report of this form can have, by name; made when asked for:
    samples may be a million.
    """

    def __init__(self, report: BenchReport) -> None:
        self._report = report
        self._quantities = _quantities([(s.name, len(s.ops)) for s in report.segments])
        self._made: dict[str, Figure | Absent] = {}

    def __getitem__(self, name: str) -> Figure | Absent:
        if name not in self._made:
            self._made[name] = self._quantities[name].figure(self._report)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._quantities)

    def __len__(self) -> int:
        return len(self._quantities)


def figures(report: BenchReport) -> Figures:
    """The figures of a report."""
    return Figures(report)


def parse_budgets(
    texts: Iterable[str], bundle: Bundle, where: str = "--budget", streams: bool = True
) -> list[Requirement]:
    """Budgets on figures that a bench of this bundle could have, read before anything
    is measured.

    Each text may hold several, separated by commas. where: states them, for messages.
    streams: whether there will be a stream. Raises InputError for any other figure,
    unit or form.
    """
    ops = {s.name: len(s.functions) for s in read_graph(bundle).segments}
    shape = [(s.name, ops.get(s.name, 0)) for s in bundle.manifest.segments]
    known = {
        name: Kind(q.unit, q.part, share=name in _SHARES)
        for name, q in _quantities(shape).items()
    }
    listed = [
        *_WHOLE,
        "latency",
        "dropped",
        "stage.capture",
        *(_span(name, n) for name, n in shape),
    ]
    wanted = Vocabulary(known, where, _EXAMPLE, listed=", ".join(listed)).parse_all(
        texts
    )
    of_stream = {*_of_stream([name for name, _ in shape])}
    for budget in wanted:
        if budget.figure in of_stream and not streams:
            raise InputError(
                f"{budget.figure} is of a stream, and none is run",
                where,
                "give --frames 250, or --source",
            )
    return wanted


def check_budgets(
    budgets: Iterable[Requirement], report: BenchReport, accept_estimates: bool = False
) -> tuple[Check, ...]:
    """How each came out.

    A figure that is not there never holds, nor does an emulator's time; an estimate
    only if `accept_estimates`.
    """
    found = figures(report)
    return tuple(
        _check(
            budget,
            found.get(budget.figure) or _unprofiled(budget.figure, report),
            report,
            accept_estimates,
        )
        for budget in budgets
    )


def spread(summary: Summary) -> float:
    """How far latencies lie apart: p95 - p50, which a single outlier does not change."""
    return summary.p95 - summary.p50


def _check(
    budget: Requirement, figure: Figure | Absent, r: BenchReport, accept_estimates: bool
) -> Check:
    if isinstance(figure, Figure) and budget.unit == "%" and figure.whole is None:
        figure = Absent("there is no median latency for it to be a share of")
    if isinstance(figure, Absent):
        return Check(budget.text, False, None, budget.unit, None, False, figure.why)
    out = budget.check(figure)
    holds = out.holds
    why = out.culprit
    if figure.estimated and r.emulated:
        holds = False
        why = EMULATOR + (f"; --on emulated:{r.board} estimates one" if r.board else "")
    elif holds and figure.estimated and not accept_estimates:
        estimate = amount(out.measured, out.unit)
        holds = False
        why = f"est. {estimate} would hold; give --accept-estimates to let estimates count"
    return Check(
        out.text, holds, out.measured, out.unit, out.margin, figure.estimated, why
    )


def _unprofiled(name: str, r: BenchReport) -> Absent:
    """Of an op that the bundle lists and the report does not have."""
    for s in r.segments:
        if name.startswith(f"{s.name}."):
            if s.backend in ON_TPU:
                why = "ran on the Edge TPU, which has no times per op"
            else:
                why = "was not profiled per op"
            return Absent(f"{s.name} {why}")
    return Absent("the run has no such segment")


def _span(segment: str, ops: int) -> str:
    """The names of a segment's figures, in words."""
    named = f"{segment}, {segment}.min to {segment}.mean"
    if not ops:
        return named
    return f"{named}, {segment}.op0" + (f" to {segment}.op{ops - 1}" if ops > 1 else "")


# ---- of whole inferences


def _of_series(series: Series, pick: Callable[[Summary], float], why: str) -> _Read:
    found = series.summary()
    return (pick(found), series.estimated) if found else why


def _metric(name: str) -> Callable[[Summary], float]:
    return lambda summary: summary.as_dict()[name]


def _latency(pick: Callable[[Summary], float]) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        untimed = next(
            (
                f"{s.name} has no latency: {s.latency.how}"
                for s in r.segments
                if not s.latency.samples
            ),
            "",
        )
        return _of_series(r.latency, pick, untimed or "no inference was timed")

    return read


def _once(
    pick: Callable[[BenchReport], OncePerLaunch],
) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        once = pick(r)
        if once.worst is None:
            return "it was not measured on this device"
        return (once.worst, once.estimated)

    return read


def _slowest(pick: Callable[[Summary], float]) -> Callable[[BenchReport], str]:
    """The segment that is worst by a figure, and its slowest op."""
    return lambda r: _slowest_of(r.segments, pick)


def _slowest_of(
    segments: Sequence[SegmentReport], pick: Callable[[Summary], float]
) -> str:
    found = [(pick(summary), s) for s in segments if (summary := s.latency.summary())]
    if not found:
        return ""
    ms, s = max(found, key=lambda pair: pair[0])
    place = "on the Edge TPU" if s.backend in ON_TPU else "on the CPU"
    text = f"{s.name} {place}, {_ms(ms, s.latency.estimated)}"
    if not s.ops:
        return text
    i = max(range(len(s.ops)), key=lambda i: s.ops[i].ms)
    op = s.ops[i]
    return f"{text}, slowest op{i} {_named(op)} {_ms(op.ms, s.latency.estimated)}"


def _widest(r: BenchReport) -> str:
    """The segment whose latencies lie farthest apart."""
    return _slowest_of([replace(s, ops=()) for s in r.segments], spread)


def _named(op: OpReport) -> str:
    """An op's kind and its name in the model: the first, where the model's file names
    all that were fused.
    """
    source = printable(op.source.split(";")[0])
    return f"{op.kind or op.name} ({source})" if source else op.kind or op.name


def _ms(ms: float, estimated: bool) -> str:
    return f"{'est. ' * estimated}{amount(ms, 'ms')}"


# ---- of places


def _on(place: str, r: BenchReport) -> list[SegmentReport]:
    return [s for s in r.segments if (s.backend in ON_TPU) is (place == "tpu")]


def _no_segment(place: str, r: BenchReport) -> str:
    """Why none ran there."""
    if place == "cpu":
        return "nothing ran on the CPU"
    twins = [f"{s.name} ran as {s.backend}" for s in r.segments if s.place == "edgetpu"]
    said = ", ".join(twins) if twins else "no segment of this model is for it"
    return f"nothing ran on the Edge TPU: {said}"


def _time_on(place: str) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        segments = _on(place, r)
        if not segments:
            return _no_segment(place, r)
        series = [s.latency.samples for s in segments]
        if not all(series):
            return next(
                f"{s.name} has no latency: {s.latency.how}"
                for s in segments
                if not s.latency.samples
            )
        # One inference after the other: the segments of a run are timed in the same
        # inferences.
        return statistics.median(map(sum, zip(*series, strict=True))), any(
            s.latency.estimated for s in segments
        )

    return read


def _slowest_on(place: str) -> Callable[[BenchReport], str]:
    return lambda r: _slowest_of(_on(place, r), lambda summary: summary.p50)


def _parts(*names: str) -> Callable[[BenchReport], _Read]:
    """Of what ran on the Edge TPU, by the cost model."""

    def read(r: BenchReport) -> _Read:
        segments = _on("tpu", r)
        if not segments:
            return _no_segment("tpu", r)
        if not all(s.parts for s in segments):
            return "the bundle does not hold the cost model's parts; compile it again"
        return sum(s.parts.get(name, 0.0) for s in segments for name in names), True

    return read


def _largest(*names: str) -> Callable[[BenchReport], str]:
    """The part that is largest, and of which segment."""

    def culprit(r: BenchReport) -> str:
        found = [
            (s.parts.get(name, 0.0), f"{s.name}, {name}")
            for s in _on("tpu", r)
            for name in names
        ]
        ms, where = max(found, default=(0.0, ""))
        return f"{where} {_ms(ms, True)}" if where else ""

    return culprit


# ---- of segments and ops


def _segment(
    name: str, pick: Callable[[Summary], float]
) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        (s,) = (s for s in r.segments if s.name == name)
        return _of_series(s.latency, pick, f"{name} has no latency: {s.latency.how}")

    return read


def _slowest_op(
    name: str, pick: Callable[[Summary], float]
) -> Callable[[BenchReport], str]:
    return lambda r: _slowest_of([s for s in r.segments if s.name == name], pick)


def _op(name: str, index: int) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        (s,) = (s for s in r.segments if s.name == name)
        return s.ops[index].ms, s.latency.estimated

    return read


def _op_culprit(name: str, index: int) -> Callable[[BenchReport], str]:
    def culprit(r: BenchReport) -> str:
        (s,) = (s for s in r.segments if s.name == name)
        return _named(s.ops[index])

    return culprit


def _quantities(segments: Sequence[tuple[str, int]]) -> Mapping[str, _Quantity]:
    """Of a model with these segments and so many ops in each.

    What is said of the whole keeps its names.
    """
    of_segments: dict[str, _Quantity] = {}
    for name, ops in segments:
        named = {name: "p50"} | {f"{name}.{metric}": metric for metric in METRICS}
        for figure, metric in named.items():
            pick = _metric(metric)
            of_segments[figure] = _Quantity(
                "ms", _segment(name, pick), _slowest_op(name, pick), part=figure == name
            )
        for i in range(ops):
            of_segments[f"{name}.op{i}"] = _Quantity(
                "ms", _op(name, i), _op_culprit(name, i), part=True
            )
    return {**of_segments, **_of_stream([name for name, _ in segments]), **_WHOLE}


# ---- of a stream

_STAGES = ("capture", "prepare", "inputs", "result", "picture", "out")
"""Those of a bundle with a task, and around its segments."""


def _of_stream(segments: Sequence[str]) -> Mapping[str, _Quantity]:
    named = {"latency": "p50"} | {f"latency.{m}": m for m in METRICS}
    found = {
        name: _Quantity("ms", _streamed(_late(_metric(m))), _slowest_stage)
        for name, m in named.items()
    }
    for stage in (*_STAGES, *segments):
        own = {f"stage.{stage}": "p50"} | {f"stage.{stage}.{m}": m for m in METRICS}
        found |= {
            name: _Quantity("ms", _streamed(_stage(stage, _metric(m))))
            for name, m in own.items()
        }
    return {
        **found,
        "dropped": _Quantity("", _streamed(lambda s: float(s.dropped)), _slowest_stage),
    }


def _streamed(
    pick: Callable[[StreamFigures], float | str],
) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        found = "there was no stream" if r.stream is None else pick(r.stream)
        return found if isinstance(found, str) else (found, r.emulated)

    return read


def _late(pick: Callable[[Summary], float]) -> Callable[[StreamFigures], float | str]:
    return lambda s: "no frame arrived" if s.latency is None else pick(s.latency)


def _stage(
    name: str, pick: Callable[[Summary], float]
) -> Callable[[StreamFigures], float | str]:
    """A stage of several segments has the name of its first."""

    def read(s: StreamFigures) -> float | str:
        for stage in s.stages:
            if re.split("[+…]", stage.name)[0] == name and stage.ms is not None:
                return pick(stage.ms)
        return (
            f"the stream has no stage {name}, but {', '.join(x.name for x in s.stages)}"
        )

    return read


def _slowest_stage(r: BenchReport) -> str:
    """What keeps a stream from being faster."""
    if r.stream is not None:
        stages = [s for s in r.stream.stages if s.ms is not None]
    else:
        stages = []
    slow = max(
        stages, key=lambda s: s.ms.p50 if s.ms is not None else 0.0, default=None
    )
    if slow is None or slow.ms is None:
        return ""
    return f"stage {slow.name}, {_ms(slow.ms.p50, False)}"


def _frames_per_second(r: BenchReport) -> _Read:
    return _latency(_rate)(r) if r.stream is None else (r.stream.fps, r.emulated)


def _slows(r: BenchReport) -> str:
    return _slowest(_metric("mean"))(r) if r.stream is None else _slowest_stage(r)


# ---- of memory and of the device


def _rss(r: BenchReport) -> _Read:
    m = r.memory
    if m.rss is None:
        return "the resident size was not measured"
    return (m.rss, m.rss_estimated)


def _section(pick: Callable[[BenchReport], int]) -> Callable[[BenchReport], _Read]:
    # A program without code is a file that could not be read.
    return lambda r: (
        (pick(r), False)
        if r.memory.code
        else "the sections of the program's file are not known"
    )


def _arena(r: BenchReport) -> _Read:
    if "arena" in r.memory.plan:
        return (r.memory.plan["arena"], False)
    return "the plan does not say"


def _biggest(r: BenchReport) -> str:
    """What of memory is largest, of what is known."""
    m = r.memory
    sizes = {
        "code": m.code,
        "constants": m.constants,
        **{k: v for k, v in m.plan.items() if k != "constants"},
    }
    name = max(sizes, key=sizes.__getitem__)
    return f"{name}, {amount(round(sizes[name] / 1e6, 2), 'MB')}"


def _vital(
    pick: Callable[[Throttling], float | None], why: str
) -> Callable[[BenchReport], _Read]:
    def read(r: BenchReport) -> _Read:
        if r.vitals is None:
            return "nothing was read of the device's clock, temperature and throttling"
        found = pick(r.vitals)
        return why if found is None else (found, False)

    return read


def _throttled(v: Throttling) -> float | None:
    """None where nobody can tell: that is not the same as a device that did not
    throttle.
    """
    return float(v.throttled) if v.known or v.throttled else None


def _rate(summary: Summary) -> float:
    """Inferences per second, one after the other."""
    return 1000 / summary.mean if summary.mean else 0.0


def _slowed(r: BenchReport) -> str:
    return "; ".join(r.vitals.reasons) if r.vitals else ""


_WHOLE: Mapping[str, _Quantity] = {
    **{m: _Quantity("ms", _latency(_metric(m)), _slowest(_metric(m))) for m in METRICS},
    "spread": _Quantity("ms", _latency(spread), _widest, part=True),
    "fps": _Quantity("fps", _frames_per_second, _slows),
    "load": _Quantity("ms", _once(lambda r: r.load)),
    "first": _Quantity("ms", _once(lambda r: r.first)),
    "warmup": _Quantity("ms", _once(lambda r: r.steadiness.warmup)),
    "tpu": _Quantity("ms", _time_on("tpu"), _slowest_on("tpu"), part=True),
    "tpu.transfer": _Quantity(
        "ms", _parts(*_TRANSFERS), _largest(*_TRANSFERS), part=True
    ),
    "tpu.invoke": _Quantity("ms", _parts("invoke"), _largest("invoke"), part=True),
    "tpu.compute": _Quantity("ms", _parts("compute"), _largest("compute"), part=True),
    "cpu": _Quantity("ms", _time_on("cpu"), _slowest_on("cpu"), part=True),
    "rss": _Quantity("B", _rss, _biggest),
    "arena": _Quantity("B", _arena),
    "code": _Quantity("B", _section(lambda r: r.memory.code)),
    "constants": _Quantity("B", _section(lambda r: r.memory.constants)),
    "data": _Quantity("B", _section(lambda r: r.memory.data)),
    "celsius": _Quantity(
        "C",
        _vital(lambda v: v.celsius_max, "the device does not tell its temperature"),
        _slowed,
    ),
    "mhz": _Quantity(
        "MHz",
        _vital(lambda v: v.mhz_min, "the device does not tell its clock"),
        _slowed,
    ),
    "throttled": _Quantity(
        "", _vital(_throttled, "the device does not tell whether it throttles"), _slowed
    ),
}
"""What every run could have."""
