"""The rows of tables of all networks of a cascade together, for a terminal and a page."""

from __future__ import annotations

from collections.abc import Sequence

from edgec.benching.bundle import BundleBench
from edgec.benching.figures import figures
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
            p50 = wording.figure(figures(report)["p50"], report)
        rows.append((share.name, p50, f"{share.runs(1):.2f}", how))
    return rows


def object_rows(bench: BundleBench) -> Sequence[tuple[str, ...]]:
    """Return the rows of the table of times by the number of objects."""
    rows = []
    for objects in bench.frames_per_second():
        frame = wording.figure(bench.frame(objects), bench.report)
        rate = wording.figure(bench.rate(objects), bench.report)
        rows.append((str(objects), frame, rate.removesuffix(" fps")))
    return rows
