"""Collects the facts of a bench that may be shared."""

from __future__ import annotations

from collections import Counter
from typing import Any

from edgec_runtime import Manifest, SegmentInfo

from edgec.benching.result import BenchReport, SegmentReport
from edgec.emit.graph_file import GraphFile


def network_row(
    manifest: Manifest,
    graph: GraphFile,
    report: BenchReport,
    estimate: BenchReport | None,
) -> dict[str, Any]:
    """Return the fields of schema.NETWORK.

    Args:
        manifest: of the bundle.
        graph: its report/graph.json.
        report: the bench of it.
        estimate: the same by the models of the board; None: there is none.
    """
    plan = report.memory.plan
    # Weights of several targets are the same numbers in other orders.
    weights = [manifest.files[path].bytes for path in manifest.weights.values()]
    return {
        "target": manifest.target,
        "threads": report.settings.get("threads"),
        "macs": sum(segment.macs for segment in manifest.segments),
        "arena": plan.get("arena"),
        "tensors": plan.get("tensors"),
        "weights": max(weights, default=0),
        "kinds": _kinds(graph, report),
        "segments": _segments(manifest, graph, report, estimate),
    }


def _kinds(graph: GraphFile, report: BenchReport) -> list[dict[str, Any]]:
    """Return the histogram of operations, and the time of each kind if it is known."""
    # Only the kinds: names of operations are the author's.
    counts = Counter(op.kind for op in graph.ops)
    macs = Counter[str]()
    for op in graph.ops:
        macs[op.kind] += op.macs
    times: dict[str, float] = {}
    for segment in report.segments:
        for timed in segment.ops:
            times[timed.kind] = times.get(timed.kind, 0.0) + timed.ms

    rows = []
    for kind, count in sorted(counts.items()):
        rows.append(
            {"kind": kind, "count": count, "macs": macs[kind], "ms": times.get(kind)}
        )
    return rows


def _segments(
    manifest: Manifest,
    graph: GraphFile,
    report: BenchReport,
    estimate: BenchReport | None,
) -> list[dict[str, Any]]:
    """Return the segments in order, which have no names here."""
    estimated = {s.name: _median(s) for s in estimate.segments} if estimate else {}
    timed = {segment.name: segment for segment in report.segments}
    rows = []
    for info in manifest.segments:
        row = _segment(info, graph, timed.get(info.name))
        rows.append({**row, "estimate_ms": estimated.get(info.name)})
    return rows


def _segment(
    info: SegmentInfo, graph: GraphFile, timed: SegmentReport | None
) -> dict[str, Any]:
    """Return the facts about one segment."""
    # A bench that ended early has no times of a segment.
    summary = timed.latency.summary() if timed is not None else None
    return {
        "place": info.place,
        "backend": timed.backend if timed is not None else None,
        "ops": sum(op.segment == info.name for op in graph.ops),
        "macs": info.macs,
        "arena": info.arena,
        "constants": graph.segment(info.name).constants,
        "est_edgetpu_ms": info.est_ms,
        "p50_ms": summary.p50 if summary is not None else None,
        "p95_ms": summary.p95 if summary is not None else None,
    }


def _median(segment: SegmentReport) -> float | None:
    summary = segment.latency.summary()
    return summary.p50 if summary is not None else None


def latency_row(report: BenchReport, estimate: BenchReport | None) -> dict[str, Any]:
    """Return the fields of schema.LATENCY.

    estimate: the latency by the models of the board; None: there is none.
    """
    # The worst launch counts, since a person waits for it.
    row: dict[str, Any] = {
        "origin": _origin(report),
        "launches": report.settings.get("launches"),
        "first_ms": report.first.worst,
        "load_ms": report.load.worst,
        "rss": report.memory.rss,
    }
    summary = report.latency.summary()
    if summary is not None:
        figures = summary.as_dict()
        row["n"] = figures.pop("n")
        row |= {f"{name}_ms": ms for name, ms in figures.items()}
    beside = estimate.latency.summary() if estimate is not None else None
    if beside is not None:
        row["estimate_ms"] = beside.p50

    # A board that is not there has no clock and no temperature.
    vitals = report.vitals
    if vitals is not None:
        row |= {
            "slowed": vitals.throttled,
            "slowing_known": vitals.known,
            "celsius_before": vitals.celsius_before,
            "celsius_max": vitals.celsius_max,
            "mhz_min": vitals.mhz_min,
            "mhz_max": vitals.mhz_max,
        }
    return row


def _origin(report: BenchReport) -> str:
    """Return the word of schema.ORIGINS for the times of a bench."""
    if report.emulated:
        return "emulator"
    return "estimate" if report.estimated else "measured"
