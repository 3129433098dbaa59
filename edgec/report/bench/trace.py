"""Writes a bench as a trace in Chrome's Trace Event Format, which Perfetto opens too.

Timestamps are of the device's CLOCK_MONOTONIC, in us as the format wants them, and not
shifted. Each launch is a process with a track for whole inferences, one for segments on
the CPU and one for segments on the Edge TPU; in profiled inferences the operations are
inside their segments.

Only durations of segments and operations are measured: they are laid out one after the
other from the start of the inference, and the time between two of them is at the end.
In a profiled inference, a segment without operations is given its median. An estimate
is one inference from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from edgec_devices.measurement import Launch, Measurement

from edgec.benching.quantities import ON_TPU
from edgec.benching.result import BenchReport
from edgec.report.bench import wording
from edgec.report.bench.timeline import moments
from edgec.report.bench.wording import EST
from edgec.report.wording import plain

MOST = 100_000
"""Events of inferences and segments; in a longer bench, only the first inferences of
each launch are in the trace.
"""

Event = dict[str, Any]
Trace = dict[str, Any]
"""A JSON object with "traceEvents"."""

DEVICE_PID = 1
"""Process of the counters; the launches follow."""
PIDS_APART = 1000
"""Processes of the traces of two networks have numbers so far apart: more than the
launches of a bench.
"""
INFERENCE_TRACK = 1
CPU_TRACK = 2
TPU_TRACK = 3
TRACK_NAMES = {
    INFERENCE_TRACK: "inference",
    CPU_TRACK: "CPU segments",
    TPU_TRACK: "Edge TPU segments",
}


@dataclass(frozen=True)
class _Process:
    """A process of the trace.

    Attributes:
        pid: its number
        mark: prefix of the names of its events, which tells estimates apart
    """

    pid: int
    mark: str

    def slice(
        self,
        track: int,
        name: str,
        category: str,
        span: tuple[float, float],
        args: dict[str, Any] | None = None,
    ) -> Event:
        """Return an event with a duration; `span` is its start and duration, ns."""
        start, duration = span
        return {
            "name": self.mark + name,
            "cat": category,
            "ph": "X",
            "pid": self.pid,
            "tid": track,
            "ts": round(start) / 1000,
            "dur": round(duration) / 1000,
            "args": args or {},
        }


def joined(traces: Mapping[str, Trace]) -> Trace:
    """Return the traces of all networks as one, each network's processes named by it."""
    events = []
    about: dict[str, Any] = {}
    pids = 0
    for name, trace in traces.items():
        for event in trace["traceEvents"]:
            # Viewers tell processes apart by their number alone.
            moved = {**event, "pid": event["pid"] + pids}
            if event["name"] == "process_name":
                moved["args"] = {"name": f"{name}: {event['args']['name']}"}
            events.append(moved)
        about[name] = trace["otherData"]
        pids += PIDS_APART
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def to_trace(m: Measurement, r: BenchReport) -> Trace:
    """Return the trace of a bench.

    "otherData" says what the timestamps are and how many inferences were left out.
    """
    about = {
        "model": plain(r.model),
        "device": wording.device(r),
        "edgec": r.edgec,
        "when": r.when,
    }
    if m.launches:
        about["clock"] = "CLOCK_MONOTONIC of the device, us"
        events = list(_measured(m, r, about))
    else:
        about["clock"] = "none: an estimate, laid out from 0"
        events = list(_estimated(r))
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


# ---- measured


def _measured(m: Measurement, r: BenchReport, about: dict[str, str]) -> Iterator[Event]:
    """Yield the events of a measurement; `about` gets the number left out."""
    events_per_inference = 1 + len(r.segments)
    # All launches share the limit, so that each has its beginning in the trace.
    limit = max(1, MOST // events_per_inference // max(1, len(m.timed)))
    inferences = sum(len(launch.total) for launch in m.timed)
    shown = sum(min(len(launch.total), limit) for launch in m.timed)
    if shown < inferences:
        about["left_out"] = (
            f"{inferences - shown} of {inferences} inferences: of each launch, "
            f"all after its {limit}th"
        )
    yield from _device(m, r)
    for i, launch in enumerate(m.launches):
        yield from _launch(i, launch, r, m, limit)


def _device(m: Measurement, r: BenchReport) -> Iterator[Event]:
    """Yield counters of clock and temperature, and a mark where the device throttled."""
    timeline = moments(m.launches)
    if timeline:
        yield from _process_names(DEVICE_PID, wording.device(r), None)
    for moment in timeline:
        at = {"ph": "C", "pid": DEVICE_PID, "tid": 0, "ts": moment.ns / 1000}
        if moment.mhz is not None:
            yield {"name": "clock", **at, "args": {"MHz": moment.mhz}}
        if moment.celsius is not None:
            yield {"name": "temperature", **at, "args": {"°C": moment.celsius}}
        if moment.reasons:
            reasons = plain("; ".join(moment.reasons))
            yield {
                "name": f"throttled: {reasons}",
                **at,
                "ph": "i",
                "s": "g",  # global: a line over the whole height
                "cat": "throttling",
                "args": {},
            }


def _launch(
    i: int, launch: Launch, r: BenchReport, m: Measurement, limit: int
) -> Iterator[Event]:
    """Yield the events of launch `i`, of at most `limit` inferences."""
    process = _Process(DEVICE_PID + 1 + i, wording.mark(r, r.estimated))
    name = f"{process.mark}launch {i + 1}"
    yield from _process_names(process.pid, name, launch.backends)

    if launch.load is not None and launch.at:
        # Loading is drawn up to the first inference: whether it began a little earlier
        # is not known.
        start = launch.at[0] - launch.load
        span = (start, launch.load)
        yield process.slice(INFERENCE_TRACK, "load", "load", span)

    warmup = len(launch.total)
    if launch in m.timed:
        warmup -= len(r.latency.rounds[m.timed.index(launch)])
    for number in range(min(len(launch.total), limit)):
        yield from _inference(process, launch, r, number, warmup)

    profile = launch.profile
    if profile is None:
        return
    for run, start in enumerate(profile.at):
        whole = (start, profile.total[run])
        yield process.slice(
            INFERENCE_TRACK, "profiled inference", "inference", whole, {"number": run}
        )
        times = [[op[run] for op in segment] for segment in profile.ops]
        yield from _profiled_segments(process, launch, r, start, times)


def _inference(
    process: _Process, launch: Launch, r: BenchReport, number: int, warmup: int
) -> Iterator[Event]:
    """Yield the events of one inference and its segments."""
    if number == 0:
        name = "first inference"
    elif number < warmup:
        name = "warm-up"
    else:
        name = "inference"
    start = launch.at[number]
    whole = (start, launch.total[number])
    args: dict[str, Any] = {"number": number}
    yield process.slice(INFERENCE_TRACK, name, "inference", whole, args)

    times = [series[number] for series in launch.segments]
    # When a segment began was not measured, only how long it took.
    spans = _consecutive(start, times)
    for segment, backend, span in zip(r.segments, launch.backends, spans, strict=True):
        args = {"by": plain(backend)}
        track = _track(backend)
        yield process.slice(track, plain(segment.name), "segment", span, args)


def _profiled_segments(
    process: _Process,
    launch: Launch,
    r: BenchReport,
    start: float,
    times: Sequence[Sequence[float]],
) -> Iterator[Event]:
    """Yield the segments of a profiled inference, with their operations inside.

    `times` has the duration of each operation of each segment, ns.
    """
    rows = zip(r.segments, launch.backends, times, strict=True)
    for segment, backend, op_times in rows:
        if not op_times:
            # The duration is known only of the inferences that were not profiled.
            usual = segment.latency.summary()
            start += usual.p50 * 1e6 if usual else 0
            continue

        track = _track(backend)
        span = (start, sum(op_times))
        args = {"by": plain(backend)}
        yield process.slice(track, plain(segment.name), "segment", span, args)

        # A segment that ran on the Edge TPU in the other launches has no operations in
        # the report: hence strict=False.
        spans = _consecutive(start, op_times)
        for op, op_span in zip(segment.ops, spans, strict=False):
            op_args = {
                "in the model": plain(op.source),
                "output": plain(op.output),
                "MACs": op.macs,
            }
            yield process.slice(track, plain(op.name), "op", op_span, op_args)
        start += sum(op_times)


# ---- estimated


def _estimated(r: BenchReport) -> Iterator[Event]:
    """Yield the events of one estimated inference."""
    process = _Process(DEVICE_PID + 1, EST)
    name = f"{EST}one inference on {wording.device(r)}"
    backends = [segment.backend for segment in r.segments]
    yield from _process_names(process.pid, name, backends)

    start = 0.0
    for segment in r.segments:
        summary = segment.latency.summary()
        if summary is None:
            continue
        track = _track(segment.backend)
        duration = summary.p50 * 1e6
        args = {"by": plain(segment.backend), "how": plain(segment.latency.how)}
        span = (start, duration)
        yield process.slice(track, plain(segment.name), "segment", span, args)

        spans = _consecutive(start, [op.ms * 1e6 for op in segment.ops])
        for op, op_span in zip(segment.ops, spans, strict=True):
            yield process.slice(track, plain(op.name), "op", op_span, {"MACs": op.macs})
        start += duration

    latency = r.latency.summary()
    if latency is not None:
        span = (0, latency.p50 * 1e6)
        yield process.slice(INFERENCE_TRACK, "inference", "inference", span)


# ---- events


def _track(backend: str) -> int:
    return TPU_TRACK if backend in ON_TPU else CPU_TRACK


def _process_names(
    pid: int, name: str, backends: Iterable[str] | None
) -> Iterator[Event]:
    """Yield the names and the order of a process and its tracks.

    `backends` ran its segments; None for a process without tracks.
    """
    about = {"ph": "M", "pid": pid, "ts": 0}
    yield {"name": "process_name", **about, "tid": 0, "args": {"name": name}}
    yield {"name": "process_sort_index", **about, "tid": 0, "args": {"sort_index": pid}}
    if backends is None:
        return

    for track in sorted({INFERENCE_TRACK, *map(_track, backends)}):
        on_track = {**about, "tid": track}
        title = {"name": TRACK_NAMES[track]}
        yield {"name": "thread_name", **on_track, "args": title}
        order = {"sort_index": track}
        yield {"name": "thread_sort_index", **on_track, "args": order}


def _consecutive(start: float, durations: Sequence[float]) -> list[tuple[float, float]]:
    """Return (start, duration) of slices one after the other, ns."""
    starts = accumulate(durations, initial=start)
    return list(zip(starts, durations, strict=False))
