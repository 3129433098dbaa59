"""Where the time of a bench went, for a trace viewer: Chrome's Trace Event Format,
which Perfetto opens too.

Timestamps are of the device's CLOCK_MONOTONIC, in us as the format wants them, and not
shifted. Each launch is a process with a track for whole inferences, one for segments on
the CPU and one for those on the Edge TPU; in profiled inferences the operations are
inside their segments. Of segments and operations only durations are measured: they are
laid out one after the other from where the inference began, and what lies between two
of them is at the end. In a profiled inference, a segment without operations is given
its median. An estimate is one inference from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from edgec_devices.measurement import Launch, Measurement

from edgec.benching.figures import ON_TPU
from edgec.benching.result import BenchReport
from edgec.report.bench import wording
from edgec.report.bench.timeline import moments
from edgec.report.bench.wording import EST
from edgec.report.wording import plain

MOST = 100_000
"""Events of inferences and segments; with more, of each launch only the first
inferences are there.
"""

Event = dict[str, Any]

_DEVICE = 1  # the process of the counters; launches follow
_INFERENCE = 1
_CPU = 2
_TPU = 3
_TRACKS = {_INFERENCE: "inference", _CPU: "CPU segments", _TPU: "Edge TPU segments"}


def to_trace(m: Measurement, r: BenchReport) -> dict[str, Any]:
    """A JSON object with "traceEvents"; "otherData" says what the timestamps are and
    what was left out.
    """
    told = {
        "model": plain(r.model),
        "device": wording.device(r),
        "edgec": r.edgec,
        "when": r.when,
        "clock": "CLOCK_MONOTONIC of the device, us"
        if m.launches
        else "none: an estimate, laid out from 0",
    }
    if not m.launches:
        events = _estimated(r)
    else:
        inferences = sum(len(one.total) for one in m.timed)
        share = max(1, MOST // (1 + len(r.segments)) // max(1, len(m.timed)))
        shown = sum(min(len(one.total), share) for one in m.timed)
        if shown < inferences:
            told["left_out"] = (
                f"{inferences - shown} of {inferences} inferences: of each launch, "
                f"all after its {share}th"
            )
        events = [
            *_device(m, r),
            *(
                e
                for i, one in enumerate(m.launches)
                for e in _launch(i, one, r, m, share)
            ),
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": told}


# ---- measured


def _device(m: Measurement, r: BenchReport) -> Iterator[Event]:
    """Counters, and a mark over the whole width where something slowed the device down."""
    seen = moments(m.launches)
    if seen:
        yield from _process(_DEVICE, wording.device(r), None)
    for moment in seen:
        at = {"ph": "C", "pid": _DEVICE, "tid": 0, "ts": moment.ns / 1000}
        if moment.mhz is not None:
            yield {"name": "clock", **at, "args": {"MHz": moment.mhz}}
        if moment.celsius is not None:
            yield {"name": "temperature", **at, "args": {"°C": moment.celsius}}
        if moment.reasons:
            said = plain("; ".join(moment.reasons))
            yield {
                "name": f"throttled: {said}",
                **at,
                "ph": "i",
                "s": "g",
                "cat": "throttling",
                "args": {},
            }


def _launch(
    i: int, one: Launch, r: BenchReport, m: Measurement, share: int
) -> Iterator[Event]:
    pid = _DEVICE + 1 + i
    mark = wording.mark(r, r.estimated)
    yield from _process(pid, f"{mark}launch {i + 1}", one.backends)
    if one.load is not None and one.at:
        # until the first inference: that it could begin a little earlier is not known
        yield _slice(
            pid, _INFERENCE, f"{mark}load", "load", one.at[0] - one.load, one.load
        )
    if one in m.timed:
        steady = len(one.total) - len(r.latency.rounds[m.timed.index(one)])
    else:
        steady = len(one.total)
    for n in range(min(len(one.total), share)):
        name = "first inference" if n == 0 else "warm-up" if n < steady else "inference"
        yield _slice(
            pid,
            _INFERENCE,
            mark + name,
            "inference",
            one.at[n],
            one.total[n],
            {"number": n},
        )
        times = [series[n] for series in one.segments]
        for s, by, start, ns in zip(
            r.segments, one.backends, _starts(one.at[n], times), times, strict=True
        ):
            yield _slice(
                pid,
                _track(by),
                mark + plain(s.name),
                "segment",
                start,
                ns,
                {"by": plain(by)},
            )
    if one.profile is not None:
        for run, (at, total) in enumerate(
            zip(one.profile.at, one.profile.total, strict=True)
        ):
            yield _slice(
                pid,
                _INFERENCE,
                f"{mark}profiled inference",
                "inference",
                at,
                total,
                {"number": run},
            )
            yield from _ops(
                pid,
                r,
                one.backends,
                at,
                [[op[run] for op in segment] for segment in one.profile.ops],
            )


def _ops(
    pid: int,
    r: BenchReport,
    backends: Sequence[str],
    at: float,
    times: Sequence[Sequence[float]],
) -> Iterator[Event]:
    """Of one inference: each segment that was profiled, ns, and its operations inside."""
    mark = wording.mark(r, r.estimated)
    for s, by, ops in zip(r.segments, backends, times, strict=True):
        if not ops:
            # How long it took is known of the inferences that were not profiled.
            usual = s.latency.summary()
            at += usual.p50 * 1e6 if usual else 0
            continue
        yield _slice(
            pid,
            _track(by),
            mark + plain(s.name),
            "segment",
            at,
            sum(ops),
            {"by": plain(by)},
        )
        # The report has no operations of a segment that ran on the Edge TPU in the
        # other launches.
        for op, start, ns in zip(s.ops, _starts(at, ops), ops, strict=False):
            args = {
                "in the model": plain(op.source),
                "output": plain(op.output),
                "MACs": op.macs,
            }
            yield _slice(pid, _track(by), mark + plain(op.name), "op", start, ns, args)
        at += sum(ops)


# ---- estimated


def _estimated(r: BenchReport) -> list[Event]:
    """One inference."""
    pid = _DEVICE + 1
    at = 0.0
    events = list(
        _process(
            pid,
            f"{EST}one inference on {wording.device(r)}",
            [s.backend for s in r.segments],
        )
    )
    for s in r.segments:
        found = s.latency.summary()
        if found is None:
            continue
        args = {"by": plain(s.backend), "how": plain(s.latency.how)}
        events.append(
            _slice(
                pid,
                _track(s.backend),
                EST + plain(s.name),
                "segment",
                at,
                found.p50 * 1e6,
                args,
            )
        )
        times = [op.ms * 1e6 for op in s.ops]
        for op, start, ns in zip(s.ops, _starts(at, times), times, strict=True):
            events.append(
                _slice(
                    pid,
                    _track(s.backend),
                    EST + plain(op.name),
                    "op",
                    start,
                    ns,
                    {"MACs": op.macs},
                )
            )
        at += found.p50 * 1e6
    whole = r.latency.summary()
    if whole is not None:
        events.append(
            _slice(pid, _INFERENCE, f"{EST}inference", "inference", 0, whole.p50 * 1e6)
        )
    return events


# ---- events


def _track(backend: str) -> int:
    return _TPU if backend in ON_TPU else _CPU


def _process(pid: int, name: str, backends: Iterable[str] | None) -> Iterator[Event]:
    """Names. backends: of its segments; None: it has no tracks."""
    about = {"ph": "M", "pid": pid, "ts": 0}
    yield {"name": "process_name", **about, "tid": 0, "args": {"name": name}}
    yield {"name": "process_sort_index", **about, "tid": 0, "args": {"sort_index": pid}}
    for tid in [] if backends is None else sorted({_INFERENCE, *map(_track, backends)}):
        yield {
            "name": "thread_name",
            **about,
            "tid": tid,
            "args": {"name": _TRACKS[tid]},
        }
        yield {
            "name": "thread_sort_index",
            **about,
            "tid": tid,
            "args": {"sort_index": tid},
        }


def _slice(
    pid: int,
    tid: int,
    name: str,
    category: str,
    ns: float,
    duration: float,
    args: dict[str, Any] | None = None,
) -> Event:
    where = {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": round(ns) / 1000,
        "dur": round(duration) / 1000,
    }
    return {"name": name, "cat": category, **where, "args": args or {}}


def _starts(first: float, durations: Sequence[float]) -> list[float]:
    return list(accumulate(durations, initial=first))[: len(durations)]
