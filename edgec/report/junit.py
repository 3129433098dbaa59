"""Writes verdicts as JUnit XML, each as a test case.

CI systems show it among their tests. The dialect is what Jenkins (its junit-10.xsd),
GitLab and the GitHub actions for test reports read: `testsuites` with one `testsuite`,
`properties` first, a `failure` or `skipped` with a message in a `testcase`.
"""

from __future__ import annotations

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

    def to_xml(self) -> str:
        """Return the document.

        The classname is MODEL.DEVICE: CI systems group test cases by the part of the
        classname before its last dot.
        """
        # A verdict is pass, fail or skipped, as a test case is.
        states = [verdict.state for verdict in self.verdicts]
        counts = {
            "tests": str(len(states)),
            "failures": str(states.count("fail")),
            "errors": "0",
            "skipped": str(states.count("skipped")),
            "time": "0",
        }
        attributes = {
            "name": plain(f"{self.name} {self.model}"),
            # The schema's timestamps have no time zone.
            "timestamp": self.when.removesuffix("+00:00"),
            "hostname": plain(self.hostname),
            **counts,
        }
        root = ElementTree.Element("testsuites", {"name": self.name, **counts})
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

        ElementTree.indent(root, " ")
        text = ElementTree.tostring(root, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


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
