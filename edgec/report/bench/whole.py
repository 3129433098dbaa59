"""The rows of tables of all networks of a cascade together, for a terminal and a page."""

from __future__ import annotations

from collections.abc import Sequence

from edgec.benching.bundle import MS_PER_S, BundleBench
from edgec.report.bench import wording

NETWORKS = ("network", "p50", "runs a frame", "how")
OBJECTS = ("objects", "a frame", "frames/s")
"""Headers of tables."""
ALONE = "the networks alone: without the camera, crops and pictures"


def network_rows(bench: BundleBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of networks."""
    rows = []
    for share in bench.shares:
        report = share.report
        how = report.latency.how
        if report.estimated:
            how = f"estimate: {how}"
        p50 = "no figure"
        if share.latency is not None:
            mark = wording.mark(report, report.estimated)
            p50 = f"{mark}{share.latency:.2f} ms"
        rows.append((share.name, p50, f"{share.runs(1):.2f}", how))
    return rows


def object_rows(bench: BundleBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of times by the number of objects."""
    rows = []
    # One estimate among the times of a frame makes their sum an estimate.
    estimated = any(report.estimated for report in bench.networks.values())
    mark = wording.mark(bench.report, estimated)
    for objects, rate in bench.frames_per_second().items():
        ms = MS_PER_S / rate
        rows.append((str(objects), f"{mark}{ms:.2f} ms", f"{mark}{rate:.1f}"))
    return rows
