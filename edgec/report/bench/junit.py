"""Writes a bench's report as JUnit XML, where every verdict is a test case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgec.benching.bundle import BundleBench
from edgec.benching.figures import figures
from edgec.benching.quantities import Absent
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import BudgetVerdict, verdicts
from edgec.report.bench import wording
from edgec.report.junit import VerdictSuite, to_xml

SUITE = "edgec bench"


def to_junit(bench: BundleBench) -> str:
    """Return an XML document with the verdicts.

    It has a suite for each network, and one for a whole cascade before them.
    """
    # A suite each, so that a CI system shows which network missed its budget.
    suites = []
    if bench.cascade is not None:
        suites.append(_whole(bench))
    for name, report in bench.networks.items():
        model = report.model if bench.cascade is None else f"{bench.model} {name}"
        suite = _suite(report, model, _properties(report), verdicts(report))
        suites.append(suite)
    return to_xml(suites)


def _whole(bench: BundleBench) -> VerdictSuite:
    """Return the suite of the verdicts on a whole cascade."""
    properties = {"cascade": bench.model, "device": wording.device(bench.report)}
    for objects in bench.frames_per_second():
        properties[f"fps.{objects}"] = wording.figure(bench.rate(objects), bench.report)
    return _suite(bench.report, bench.model, properties, bench.own_verdicts())


def _suite(
    r: BenchReport,
    model: str,
    properties: Mapping[str, str],
    judged: Sequence[BudgetVerdict],
) -> VerdictSuite:
    """Return a suite of verdicts with the device and the time of a report."""
    return VerdictSuite(
        name=SUITE,
        model=model,
        device=wording.device(r),
        hostname=r.device.url,
        when=r.when,
        properties=properties,
        verdicts=judged,
    )


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
        values[name] = wording.figure(figure, r)
    return values


def _of_segment(figure: str, r: BenchReport) -> bool:
    """Return whether a figure is of a segment or an operation, by its name."""
    return any(
        figure == segment.name or figure.startswith(f"{segment.name}.")
        for segment in r.segments
    )
