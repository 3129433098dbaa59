"""From the raw times of a device, or the estimates of one that is not there, to a
report.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from edgec_devices.decoding import from_json
from edgec_devices.estimating import COST_MODEL
from edgec_devices.measurement import Launch, Measurement, OpProfile
from edgec_devices.throttling import judge
from edgec_runtime import Bundle, SegmentInfo

from edgec.benching.memory import memory
from edgec.benching.result import (
    EMULATOR,
    BenchReport,
    DeviceReport,
    OncePerLaunch,
    OpReport,
    SegmentReport,
    Series,
    Steadiness,
)
from edgec.benching.steady import steady_from
from edgec.emit.graph_file import GRAPH_FILE, GraphFile
from edgec.errors import InputError
from edgec.version import VERSION

BUSY = 0.02
"""Share of the time that others may have the processor without a word."""


def read_graph(bundle: Bundle) -> GraphFile:
    """Its report/graph.json; an empty one for a bundle of before there was one.

    Raises InputError for a damaged one.
    """
    if GRAPH_FILE not in bundle.manifest.files:
        return GraphFile()
    hint = "compile the model again"
    graph = from_json(
        bundle.read(GRAPH_FILE), GraphFile, GRAPH_FILE, str(bundle.path), hint
    )
    for i, op in enumerate(graph.ops):
        if op.index != i or not all(0 <= r < i for r in op.reads):
            raise InputError(
                f"{GRAPH_FILE} is damaged: op {i} stands before what it reads",
                str(bundle.path),
                hint,
            )
    return graph


def build_report(
    bundle: Bundle, m: Measurement, settings: Mapping[str, Any]
) -> BenchReport:
    """Without budgets and comparison."""
    graph = read_graph(bundle)
    shared = {
        "model": bundle.manifest.name,
        "bundle_sha256": hashlib.sha256(bundle.path.read_bytes()).hexdigest(),
        "target": bundle.manifest.target,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "edgec": VERSION,
        "device": DeviceReport(**asdict(m.device), runner=m.runner),
        "settings": settings,
    }
    estimated = not m.launches
    if m.runner == "session":
        files = bundle.manifest.libraries
    else:
        files = bundle.manifest.programs
    rss = [one.rss for one in m.timed if one.rss]
    sizes = memory(
        bundle, files.get(m.device.target), m.device.target, graph, rss, estimated
    )
    make = _estimated if estimated else _measured
    return BenchReport(
        **shared,  # type: ignore[arg-type]
        memory=sizes,
        stream=m.stream,
        **make(bundle, m, graph),
    )


# ---- measured


def _measured(bundle: Bundle, m: Measurement, graph: GraphFile) -> dict[str, Any]:
    how, estimated = ("measured", False) if not m.device.emulated else (EMULATOR, True)
    starts = [steady_part(one) for one in m.timed]
    cut = [one for one, _ in starts]
    unsteady = sum(not reached for _, reached in starts)
    segments = tuple(
        SegmentReport(
            name=s.name,
            place=s.place,
            backend=m.backends[i],
            latency=Series(
                _rounds([one.segments[i] for one in m.timed], cut), estimated, how
            ),
            parts=_parts(graph, s) if m.backends[i] == "delegate" else {},
            ops=_profiled(graph, s, [p.ops[i] for p in m.profiles])
            if m.backends[i] == "c"
            else (),
            ops_how=how,
        )
        for i, s in enumerate(bundle.manifest.segments)
    )
    warmup = OncePerLaunch(
        tuple(sum(one.total[:n]) / 1e6 for one, n in zip(m.timed, cut, strict=True)),
        estimated,
        how,
    )
    loads = tuple(one.load / 1e6 for one in m.timed if one.load is not None)
    seen = [one.vitals for one in m.launches if one.vitals is not None]
    return {
        "load": OncePerLaunch(loads, estimated, how),
        "first": OncePerLaunch(
            tuple(one.total[0] / 1e6 for one in m.timed), estimated, how
        ),
        "steadiness": Steadiness(2 * unsteady < len(starts), max(cut), warmup),
        "latency": Series(_rounds([one.total for one in m.timed], cut), estimated, how),
        "segments": segments,
        "profile_overhead": _overhead(m.profiles),
        "vitals": judge(seen) if seen else None,
        "waited": _rounds([one.waited for one in m.timed], cut)
        if all(one.waited for one in m.timed)
        else (),
        "yardstick": tuple(tuple(ns / 1e6 for ns in one.yardstick) for one in m.timed),
        "notes": (*m.notes, *_measured_notes(bundle, m, unsteady)),
    }


def steady_part(one: Launch) -> tuple[int, bool]:
    """From which inference a launch is steady, not before its warm-up is over, and
    whether it became so.
    """
    # Without the time that other programs had the processor: that comes and goes, and
    # says nothing about warming up.
    waited = one.waited or (0,) * len(one.total)
    found = steady_from(
        [(ns - away) / 1e6 for ns, away in zip(one.total, waited, strict=True)]
    )
    if not found.reached or found.start >= len(one.total):
        return one.warmup, False
    return max(found.start, one.warmup), True


def _rounds(
    series: Sequence[Sequence[int]], cut: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    return tuple(
        tuple(ns / 1e6 for ns in one[n:]) for one, n in zip(series, cut, strict=True)
    )


def _overhead(profiles: Sequence[OpProfile]) -> float | None:
    """Of pairs that were run one after the other: a slow phase of the machine slows
    both.
    """
    pairs = [
        new / old
        for p in profiles
        for new, old in zip(p.total, p.plain, strict=True)
        if old
    ]
    return statistics.median(pairs) - 1 if pairs else None


def _measured_notes(bundle: Bundle, m: Measurement, unsteady: int) -> list[str]:
    notes = []
    if unsteady:
        notes.append(
            f"{unsteady} of {len(m.timed)} launches did not become steady; "
            "all of what followed their warm-up counts."
        )
    waited, total = (
        sum(map(sum, series))
        for series in ([o.waited for o in m.timed], [o.total for o in m.timed])
    )
    if waited > BUSY * total:
        notes.append(
            f"{waited / total:.0%} of the time it waited for a processor that other "
            "programs had."
        )
    pairs = zip(bundle.manifest.segments, m.backends, strict=True)
    twins = [s.name for s, backend in pairs if (s.place, backend) == ("edgetpu", "c")]
    if twins:
        notes.append(f"{', '.join(twins)} ran as C on the CPU, not on an Edge TPU.")
    return notes


# ---- estimated


def _estimated(bundle: Bundle, m: Measurement, graph: GraphFile) -> dict[str, Any]:
    segments = tuple(
        SegmentReport(
            name=s.name,
            place=s.place,
            backend=m.backends[i],
            latency=Series(((e.ms,),) if e.ms is not None else (), True, e.how),
            parts=_parts(graph, s) if m.backends[i] == COST_MODEL else {},
            ops=tuple(_op(graph, s, call, op.ms) for call, op in enumerate(e.ops)),
            ops_how=e.how,
        )
        for i, (s, e) in enumerate(
            zip(bundle.manifest.segments, m.estimates, strict=True)
        )
    )
    known = [s.latency.rounds[0][0] for s in segments if s.latency.rounds]
    whole = ((sum(known) + m.between_ms,),) if len(known) == len(segments) else ()
    nothing = OncePerLaunch((), True, "not estimated")
    return {
        "load": nothing,
        "first": nothing,
        "steadiness": Steadiness(True, 0, nothing),
        "latency": Series(whole, True, "the sum of its segments"),
        "segments": segments,
        "profile_overhead": None,
        "vitals": None,
        "notes": m.notes,
    }


# ---- both


def _parts(graph: GraphFile, s: SegmentInfo) -> Mapping[str, float]:
    return graph.segment(s.name).est_parts


def _profiled(
    graph: GraphFile, s: SegmentInfo, launches: Sequence[Sequence[Sequence[int]]]
) -> tuple[OpReport, ...]:
    """launches: of each, of each op of the segment, ns by profiled inference."""
    series = [
        [ns for launch in launches for ns in launch[call]]
        for call in range(min(map(len, launches), default=0))
    ]
    return tuple(
        _op(graph, s, call, statistics.median(ns) / 1e6)
        for call, ns in enumerate(series)
        if ns
    )


def _op(graph: GraphFile, s: SegmentInfo, call: int, ms: float) -> OpReport:
    """What the graph says of a segment's function, by its position."""
    names = graph.segment(s.name).functions
    name = names[call] if call < len(names) else f"op{call}"
    for row in graph.ops:
        if (row.segment, row.call) == (s.name, call):
            return OpReport(name, row.kind, row.source, row.type, row.macs, ms)
    return OpReport(name, "", "", "", 0, ms)
