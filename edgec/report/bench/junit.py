"""Writes a bench's report as JUnit XML, where every verdict is a test case.

CI systems show it among their tests. The dialect is what Jenkins (its junit-10.xsd),
GitLab and the GitHub actions for test reports read: `testsuites` with one `testsuite`,
`properties` first, a `failure` or `skipped` with a message in a `testcase`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from edgec_devices.requirement import amount

from edgec.benching.figures import figures
from edgec.benching.quantities import Absent
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import BudgetVerdict, verdicts
from edgec.report.bench import wording
from edgec.report.wording import plain

SUITE = "edgec bench"


@dataclass(frozen=True)
class Suite:
    """A test suite: the verdicts on a network, or on a cascade.

    Attributes:
        model: name of what was measured.
        report: a report of the run, which has the device and the time.
        properties: values by name.
        cases: the verdicts.
    """

    model: str
    report: BenchReport
    properties: Mapping[str, str]
    cases: tuple[BudgetVerdict, ...]

    def counts(self) -> dict[str, int]:
        """Return the number of test cases, and of those in each state."""
        return {
            "tests": len(self.cases),
            "failures": sum(verdict.state == "fail" for verdict in self.cases),
            "errors": 0,
            "skipped": sum(verdict.state == "skipped" for verdict in self.cases),
            "time": 0,
        }


def to_junit(r: BenchReport) -> str:
    """Return an XML document with the verdicts on a network."""
    return document([suite_of(r, r.model)])


def suite_of(r: BenchReport, model: str) -> Suite:
    """Return the suite of a report; `model` is its name in the document."""
    return Suite(model, r, _properties(r), verdicts(r))


def document(suites: Sequence[Suite]) -> str:
    """Return the XML document of test suites.

    The classname is MODEL.DEVICE: CI systems group test cases by the part of the
    classname before its last dot.
    """
    totals: Counter[str] = Counter()
    for suite in suites:
        totals.update(suite.counts())
    root = ElementTree.Element("testsuites", {"name": SUITE, **_texts(totals)})
    for suite in suites:
        _add_suite(root, suite)

    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _texts(counts: Mapping[str, int]) -> dict[str, str]:
    """Return counts as attributes."""
    return {name: str(count) for name, count in counts.items()}


def _add_suite(root: ElementTree.Element, suite: Suite) -> None:
    """Add a suite to the document."""
    r = suite.report
    attributes = {
        "name": plain(f"{SUITE} {suite.model}"),
        # The schema's timestamps have no time zone.
        "timestamp": r.when.removesuffix("+00:00"),
        "hostname": plain(r.device.url),
        **_texts(suite.counts()),
    }
    element = ElementTree.SubElement(root, "testsuite", attributes)
    properties = ElementTree.SubElement(element, "properties")
    for name, value in suite.properties.items():
        ElementTree.SubElement(properties, "property", name=name, value=plain(value))

    # A dot in a name would be taken for the one between model and device.
    names = (plain(suite.model), wording.device(r))
    classname = ".".join(name.replace(".", "_") for name in names)
    for verdict in suite.cases:
        _case(element, verdict, classname)


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
