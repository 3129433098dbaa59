"""Writes a bench's report as JUnit XML, where every verdict is a test case.

CI systems show it among their tests. The dialect is what Jenkins (its junit-10.xsd),
GitLab and the GitHub actions for test reports read: `testsuites` with one `testsuite`,
`properties` first, a `failure` or `skipped` with a message in a `testcase`.
"""

from __future__ import annotations

from xml.etree import ElementTree

from edgec_devices.requirement import amount

from edgec.benching.figures import figures
from edgec.benching.quantities import Absent
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import BudgetVerdict, verdicts
from edgec.report.bench import wording
from edgec.report.wording import plain

SUITE = "edgec bench"


def to_junit(r: BenchReport) -> str:
    """Return an XML document.

    The classname is MODEL.DEVICE: CI systems group test cases by the part of the
    classname before its last dot.
    """
    cases = verdicts(r)
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(verdict.state == "fail" for verdict in cases)),
        "errors": "0",
        "skipped": str(sum(verdict.state == "skipped" for verdict in cases)),
        "time": "0",
    }
    attributes = {
        "name": plain(f"{SUITE} {r.model}"),
        # The schema's timestamps have no time zone.
        "timestamp": r.when.removesuffix("+00:00"),
        "hostname": plain(r.device.url),
        **counts,
    }
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    _properties(suite, r)

    # A dot in a name would be taken for the one between model and device.
    names = (plain(r.model), wording.device(r))
    classname = ".".join(name.replace(".", "_") for name in names)
    for verdict in cases:
        _case(suite, verdict, classname)

    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _properties(suite: ElementTree.Element, r: BenchReport) -> None:
    """Add the bundle, the device, and every figure of the whole model.

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

    properties = ElementTree.SubElement(suite, "properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=plain(value))


def _of_segment(figure: str, r: BenchReport) -> bool:
    """Return whether a figure is of a segment or an operation, by its name."""
    return any(
        figure == segment.name or figure.startswith(f"{segment.name}.")
        for segment in r.segments
    )


def _case(suite: ElementTree.Element, verdict: BudgetVerdict, classname: str) -> None:
    """Add the test case of a verdict."""
    name = plain(verdict.name)
    case = ElementTree.SubElement(
        suite, "testcase", classname=classname, name=name, time="0"
    )
    margin = f"margin {verdict.margin}" if verdict.margin else ""
    details = ", ".join(filter(None, [verdict.value, margin, plain(verdict.why)]))

    message = ": ".join(filter(None, [name, details]))

    if verdict.state == "fail":
        failure = ElementTree.SubElement(
            case, "failure", message=message, type="missed"
        )
        # GitLab shows only the text of a failure, Jenkins also its message.
        failure.text = message
    elif verdict.state == "skipped":
        ElementTree.SubElement(case, "skipped", message=message)
    else:
        ElementTree.SubElement(case, "system-out").text = message
