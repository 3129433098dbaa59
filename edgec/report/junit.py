"""Writes verdicts as JUnit XML, each as a test case.

CI systems show it among their tests. The dialect is what Jenkins (its junit-10.xsd),
GitLab and the GitHub actions for test reports read: `testsuites` with one `testsuite`,
`properties` first, a `failure` or `skipped` with a message in a `testcase`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from edgec.benching.verdicts import BudgetVerdict
from edgec.report.wording import plain


@dataclass(frozen=True)
class VerdictSuite:
    """The verdicts of a run.

    Attributes:
        name: what ran: "edgec bench"
        model: the network
        device: where it ran, for people
        hostname: URL of the device
        when: time in UTC, with its zone
        properties: further facts, by name
        verdicts: the verdicts
    """

    name: str
    model: str
    device: str
    hostname: str
    when: str
    properties: Mapping[str, str]
    verdicts: Sequence[BudgetVerdict]

    def counts(self) -> dict[str, int]:
        """Return the number of test cases, and of those in each state."""
        # A verdict is pass, fail or skipped, as a test case is.
        states = [verdict.state for verdict in self.verdicts]
        return {
            "tests": len(states),
            "failures": states.count("fail"),
            "errors": 0,
            "skipped": states.count("skipped"),
            "time": 0,
        }

    def add_to(self, root: ElementTree.Element) -> None:
        """Add the suite to a document.

        The classname is MODEL.DEVICE: CI systems group test cases by the part of the
        classname before its last dot.
        """
        attributes = {
            "name": plain(f"{self.name} {self.model}"),
            # The schema's timestamps have no time zone.
            "timestamp": self.when.removesuffix("+00:00"),
            "hostname": plain(self.hostname),
            **_texts(self.counts()),
        }
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in self.properties.items():
            ElementTree.SubElement(
                properties, "property", name=name, value=plain(value)
            )

        # A dot in a name would be taken for the one between model and device.
        names = (plain(self.model), self.device)
        classname = ".".join(name.replace(".", "_") for name in names)
        for verdict in self.verdicts:
            _case(suite, verdict, classname)


def to_xml(suites: Sequence[VerdictSuite]) -> str:
    """Return the document of one or more suites of the same name."""
    totals: Counter[str] = Counter()
    for suite in suites:
        totals.update(suite.counts())
    attributes = {"name": suites[0].name, **_texts(totals)}
    root = ElementTree.Element("testsuites", attributes)
    for suite in suites:
        suite.add_to(root)

    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _texts(counts: Mapping[str, int]) -> dict[str, str]:
    """Return counts as attributes."""
    return {name: str(count) for name, count in counts.items()}


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
