"""Writes the report of an evaluation as JUnit XML: a test case for each budget."""

from __future__ import annotations

from edgec.evaluation.report import EvaluationReport
from edgec.report.evaluation.text import drop_text, figure_text
from edgec.report.junit import VerdictSuite, to_xml

SUITE = "edgec eval"


def to_junit(r: EvaluationReport) -> str:
    """Return an XML document."""
    values = {
        "model": r.bundle,
        "bundle": r.bundle_sha256,
        "target": r.target,
        "data": r.data,
        "pictures": str(r.pictures),
        "edgec": r.edgec,
    }
    for figure in r.measured:
        for side in r.sides:
            name = f"{side.key}.{figure.name}"
            values[name] = figure_text(side.figures[figure.name], figure)
        if r.drops:
            values[f"drop.{figure.name}"] = drop_text(r.drops[figure.name], figure)

    suite = VerdictSuite(
        name=SUITE,
        model=r.bundle,
        device=r.last.title,
        hostname=r.last.key,
        when=r.when,
        properties=values,
        verdicts=r.verdicts,
    )
    return to_xml([suite])
