"""Builds a bench's report from raw times, or from the estimates of the cost model."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from edgec_devices.decoding import from_json
from edgec_devices.estimates import COST_MODEL
from edgec_devices.measurement import Launch, Measurement, OpProfile, SegmentEstimate
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
"""Share of the time that other programs may have the processor without a note."""
NS_PER_MS = 1e6


def read_graph(bundle: Bundle) -> GraphFile:
    """Return the bundle's report/graph.json; an empty graph for bundles without one.

    Raises InputError for a damaged file.
    """
    if GRAPH_FILE not in bundle.manifest.files:
        return GraphFile()
    hint = "compile the model again"
    data = bundle.read(GRAPH_FILE)
    graph = from_json(data, GraphFile, GRAPH_FILE, str(bundle.path), hint)
    for i, op in enumerate(graph.ops):
        in_order = all(0 <= read < i for read in op.reads)
        if op.index != i or not in_order:
            raise InputError(
                f"{GRAPH_FILE} is damaged: op {i} stands before what it reads",
                str(bundle.path),
                hint,
            )
    return graph


def build_report(
    bundle: Bundle, m: Measurement, settings: Mapping[str, Any]
) -> BenchReport:
    """Return the report of a measurement, without budgets and comparison."""
    graph = read_graph(bundle)
    # A session loads the library, any other runner launches the program.
    if m.runner == "session":
        files = bundle.manifest.libraries
    else:
        files = bundle.manifest.programs
    target = m.device.target
    file = files.get(target)
    # A size of 0 was not measured.
    rss = [launch.rss for launch in m.timed if launch.rss]
    # Only a device that is there has launches.
    estimated = not m.launches
    times = _estimated(bundle, m, graph) if estimated else _measured(bundle, m, graph)
    return BenchReport(
        model=bundle.manifest.name,
        bundle_sha256=hashlib.sha256(bundle.path.read_bytes()).hexdigest(),
        target=bundle.manifest.target,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        edgec=VERSION,
        device=DeviceReport(**asdict(m.device), runner=m.runner),
        settings=settings,
        memory=memory(bundle, file, target, graph, rss, estimated),
        stream=m.stream,
        **times,
    )


# ---- measured


def _measured(bundle: Bundle, m: Measurement, graph: GraphFile) -> dict[str, Any]:
    """Return the fields of a report that come from the times of launches."""
    starts = []
    unsteady = 0
    for launch in m.timed:
        start, reached = steady_part(launch)
        starts.append(start)
        unsteady += not reached

    segments = []
    for i, info in enumerate(bundle.manifest.segments):
        segments.append(_measured_segment(i, info, m, graph, starts))
    latency = _series(m, [launch.total for launch in m.timed], starts)
    vitals = [launch.vitals for launch in m.launches if launch.vitals is not None]

    # A launch that nobody timed from its start has no time of loading.
    loads = [launch.load for launch in m.timed if launch.load is not None]
    first = [launch.total[0] for launch in m.timed]
    pairs = zip(m.timed, starts, strict=True)
    warmup = [sum(launch.total[:start]) for launch, start in pairs]
    # Most launches must become steady.
    reached = 2 * unsteady < len(starts)
    return {
        "load": _once_per_launch(m, loads),
        "first": _once_per_launch(m, first),
        "steadiness": Steadiness(reached, max(starts), _once_per_launch(m, warmup)),
        "latency": latency,
        "segments": tuple(segments),
        "profile_overhead": _overhead(m.profiles),
        "vitals": judge(vitals) if vitals else None,
        "waited": _waited(m, starts),
        "yardstick": tuple(_in_ms(launch.yardstick) for launch in m.timed),
        "notes": (*m.notes, *_measured_notes(bundle, m, unsteady)),
    }


def _measured_segment(
    i: int, info: SegmentInfo, m: Measurement, graph: GraphFile, starts: Sequence[int]
) -> SegmentReport:
    """Return the report of segment `i`, from the first steady inferences on."""
    backend = m.backends[i]
    latency = _series(m, [launch.segments[i] for launch in m.timed], starts)
    parts: Mapping[str, float] = {}
    ops: tuple[OpReport, ...] = ()
    # Only the delegate runs on the Edge TPU, which the cost model describes.
    if backend == "delegate":
        parts = graph.segment(info.name).est_parts
    elif backend == "c":
        ops = _profiled(graph, info, [profile.ops[i] for profile in m.profiles])
    return SegmentReport(
        name=info.name,
        place=info.place,
        backend=backend,
        latency=latency,
        parts=parts,
        ops=ops,
        ops_how=latency.how,
    )


def _origin(m: Measurement) -> tuple[bool, str]:
    """Return whether times are estimates, and how they were found.

    The clock of an emulated machine measures the emulator, not the board.
    """
    return (True, EMULATOR) if m.device.emulated else (False, "measured")


def _series(
    m: Measurement, series: Sequence[Sequence[int]], starts: Sequence[int]
) -> Series:
    estimated, how = _origin(m)
    return Series(_steady_ms(series, starts), estimated, how)


def _once_per_launch(m: Measurement, ns: Sequence[int]) -> OncePerLaunch:
    estimated, how = _origin(m)
    return OncePerLaunch(_in_ms(ns), estimated, how)


def steady_part(launch: Launch) -> tuple[int, bool]:
    """Return the first steady inference of a launch, and whether it became steady.

    The steady part never begins before the warm-up is over.
    """
    # Without the time that other programs had the processor: it comes and goes, and
    # says nothing about warming up.
    waited = launch.waited or (0,) * len(launch.total)
    busy_ms = []
    for total, away in zip(launch.total, waited, strict=True):
        busy_ms.append((total - away) / NS_PER_MS)

    steady = steady_from(busy_ms)
    # An unsteady launch counts too, from the end of its planned warm-up on.
    if not steady.reached or steady.start >= len(launch.total):
        return launch.warmup, False
    return max(steady.start, launch.warmup), True


def _in_ms(ns: Sequence[int]) -> tuple[float, ...]:
    return tuple(time / NS_PER_MS for time in ns)


def _steady_ms(
    series: Sequence[Sequence[int]], starts: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """Return the times of each launch in ms, from its first steady inference on."""
    pairs = zip(series, starts, strict=True)
    return tuple(_in_ms(ns[start:]) for ns, start in pairs)


def _waited(m: Measurement, starts: Sequence[int]) -> tuple[tuple[float, ...], ...]:
    """Return the time without a processor of each steady inference, ms.

    It is empty if a launch did not report it.
    """
    if not all(launch.waited for launch in m.timed):
        return ()
    return _steady_ms([launch.waited for launch in m.timed], starts)


def _overhead(profiles: Sequence[OpProfile]) -> float | None:
    """Return how much longer a profiled inference takes, 0.01 is 1 %.

    Pairs of inferences were run one after the other, so that a slow phase of the
    machine slows both.
    """
    ratios = []
    for profile in profiles:
        # The pairs follow each other in time.
        for profiled, plain in zip(profile.total, profile.plain, strict=True):
            # A clock may show no time at all for a tiny model, which gives no ratio.
            if plain:
                ratios.append(profiled / plain)
    return statistics.median(ratios) - 1 if ratios else None


def _measured_notes(bundle: Bundle, m: Measurement, unsteady: int) -> list[str]:
    """Return remarks on launches that were disturbed or ran otherwise than planned."""
    notes = []
    if unsteady:
        notes.append(
            f"{unsteady} of {len(m.timed)} launches did not become steady; "
            "all of what followed their warm-up counts."
        )

    # Over all launches: a short burst in one of them does not matter.
    waited = sum(sum(launch.waited) for launch in m.timed)
    total = sum(sum(launch.total) for launch in m.timed)
    if waited > BUSY * total:
        notes.append(
            f"{waited / total:.0%} of the time it waited for a processor that other "
            "programs had."
        )

    on_cpu = []
    for info, backend in zip(bundle.manifest.segments, m.backends, strict=True):
        if info.place == "edgetpu" and backend == "c":
            on_cpu.append(info.name)
    if on_cpu:
        notes.append(f"{', '.join(on_cpu)} ran as C on the CPU, not on an Edge TPU.")
    return notes


# ---- estimated


def _estimated(bundle: Bundle, m: Measurement, graph: GraphFile) -> dict[str, Any]:
    """Return the fields of a report that come from the estimates of segments."""
    segments = []
    known = []
    pairs = zip(bundle.manifest.segments, m.estimates, strict=True)
    for i, (info, estimate) in enumerate(pairs):
        segments.append(_estimated_segment(info, m.backends[i], estimate, graph))
        if estimate.ms is not None:
            known.append(estimate.ms)

    # The whole is the sum of its segments, if all are known.
    rounds: tuple[tuple[float, ...], ...] = ()
    if len(known) == len(segments):
        rounds = ((sum(known) + m.between_ms,),)
    # A cost model does not know loading and warming up.
    nothing = OncePerLaunch((), True, "not estimated")
    return {
        "load": nothing,
        "first": nothing,
        "steadiness": Steadiness(True, 0, nothing),
        "latency": Series(rounds, True, "the sum of its segments", m.error),
        "segments": tuple(segments),
        "profile_overhead": None,
        "vitals": None,
        "notes": m.notes,
    }


def _estimated_segment(
    info: SegmentInfo, backend: str, estimate: SegmentEstimate, graph: GraphFile
) -> SegmentReport:
    """Return the report of an estimated segment."""
    rounds = () if estimate.ms is None else ((estimate.ms,),)
    parts: Mapping[str, float] = {}
    # Only the cost model of the Edge TPU splits its estimate into parts.
    if backend == COST_MODEL:
        parts = graph.segment(info.name).est_parts
    ops = []
    for call, op in enumerate(estimate.ops):
        ops.append(_op(graph, info, call, op.ms))
    return SegmentReport(
        name=info.name,
        place=info.place,
        backend=backend,
        latency=Series(rounds, True, estimate.how, estimate.error),
        parts=parts,
        ops=tuple(ops),
        ops_how=estimate.how,
    )


# ---- both


def _profiled(
    graph: GraphFile, s: SegmentInfo, launches: Sequence[Sequence[Sequence[int]]]
) -> tuple[OpReport, ...]:
    """Return the ops of a segment with their median times.

    `launches` has, of each launch and each op, the times of profiled inferences (ns).
    """
    reports = []
    # Launches may have profiled different numbers of ops: those of all launches count.
    for call in range(min(map(len, launches), default=0)):
        times = [ns for launch in launches for ns in launch[call]]
        if times:
            median = statistics.median(times) / NS_PER_MS
            reports.append(_op(graph, s, call, median))
    return tuple(reports)


def _op(graph: GraphFile, s: SegmentInfo, call: int, ms: float) -> OpReport:
    """Return the report of a segment's function, by its position.

    Ops that the graph does not list have no kind and no source.
    """
    names = graph.segment(s.name).functions
    name = names[call] if call < len(names) else f"op{call}"
    for op in graph.ops:
        if op.segment == s.name and op.call == call:
            return OpReport(name, op.kind, op.source, op.type, op.macs, ms)
    return OpReport(name, "", "", "", 0, ms)
