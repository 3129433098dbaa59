"""A bench's report as JUnit XML, for CI systems that show tests: every verdict is a
test case.

The dialect is what Jenkins (its junit-10.xsd), GitLab and the GitHub actions for test
reports read: `testsuites` with one `testsuite`, `properties` first, a `failure` or
`skipped` with a message in a `testcase`. GitLab shows only a failure's text, Jenkins
its message too, so both say it.
"""

from __future__ import annotations

from xml.etree import ElementTree

from edgec_devices.requirement import amount

from edgec.benching.figures import Absent, figures
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import BudgetVerdict, verdicts
from edgec.report.bench import wording
from edgec.report.wording import plain

_SUITE = "edgec bench"


def to_junit(r: BenchReport) -> str:
    """An XML document. classname is MODEL.DEVICE: CI systems group by what stands
    before its last dot.
    """
    cases = verdicts(r)
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(v.state == "fail" for v in cases)),
        "errors": "0",
        "skipped": str(sum(v.state == "skipped" for v in cases)),
        "time": "0",
    }
    root = ElementTree.Element("testsuites", {"name": _SUITE, **counts})
    when = r.when.removesuffix("+00:00")  # of the schema's form, which has no zone
    about = {
        "name": plain(f"{_SUITE} {r.model}"),
        "timestamp": when,
        "hostname": plain(r.device.url),
    }
    suite = ElementTree.SubElement(root, "testsuite", {**about, **counts})
    _properties(suite, r)
    classname = ".".join(
        part.replace(".", "_") for part in (plain(r.model), wording.device(r))
    )
    for verdict in cases:
        _case(suite, verdict, classname)
    ElementTree.indent(root, " ")
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _properties(suite: ElementTree.Element, r: BenchReport) -> None:
    """What was run where, and every figure of the whole; those of segments and ops are
    in the JSON.
    """
    told = {
        "model": r.model,
        "bundle": r.bundle_sha256,
        "target": r.target,
        "device": wording.device(r),
        "machine": wording.machine(r),
        "edgec": r.edgec,
    }
    parts = {s.name for s in r.segments}
    for name, figure in figures(r).items():
        if not isinstance(figure, Absent) and not any(
            name == p or name.startswith(f"{p}.") for p in parts
        ):
            told[name] = (
                f"{wording.mark(r, figure.estimated)}{amount(figure.value, figure.unit)}"
            )
    below = ElementTree.SubElement(suite, "properties")
    for name, value in told.items():
        ElementTree.SubElement(below, "property", name=name, value=plain(value))


def _case(suite: ElementTree.Element, v: BudgetVerdict, classname: str) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=classname, name=plain(v.name), time="0"
    )
    told = ", ".join(
        filter(None, [v.value, f"margin {v.margin}" if v.margin else "", plain(v.why)])
    )
    message = ": ".join(filter(None, [plain(v.name), told]))
    if v.state == "fail":
        ElementTree.SubElement(
            case, "failure", message=message, type="missed"
        ).text = message
    elif v.state == "skipped":
        ElementTree.SubElement(case, "skipped", message=message)
    else:
        ElementTree.SubElement(case, "system-out").text = message
