"""Writes a bench's report as JUnit XML, where every verdict is a test case."""

from __future__ import annotations

from edgec_devices.requirement import amount

from edgec.benching.figures import figures
from edgec.benching.quantities import Absent
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import verdicts
from edgec.report.bench import wording
from edgec.report.junit import VerdictSuite

SUITE = "edgec bench"


def to_junit(r: BenchReport) -> str:
    """Return an XML document."""
    suite = VerdictSuite(
        name=SUITE,
        model=r.model,
        device=wording.device(r),
        hostname=r.device.url,
        when=r.when,
        properties=_properties(r),
        verdicts=verdicts(r),
    )
    return suite.to_xml()


def _properties(r: BenchReport) -> dict[str, str]:
    """Return the bundle, the device, and every figure of the whole model.

    Figures of segments and operations are only in the JSON.
    """
    values = {
        "model": r.model,
        "bundle": r.bundle_sha256,
        "target": r.target,
        "device": wording.device(r),
        "machine": wording.machine(r),
        "edgec": r.edgec,
    }
    for name, figure in figures(r).items():
        if isinstance(figure, Absent) or _of_segment(name, r):
            continue
        mark = wording.mark(r, figure.estimated)
        values[name] = f"{mark}{amount(figure.value, figure.unit)}"
    return values


def _of_segment(figure: str, r: BenchReport) -> bool:
    """Return whether a figure is of a segment or an operation, by its name."""
    return any(
        figure == segment.name or figure.startswith(f"{segment.name}.")
        for segment in r.segments
    )
