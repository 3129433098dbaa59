"""JUnit XML: a case for each verdict, counts that agree, valid whatever a name is made
of.
"""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgec.benching.bundle import BundleBench
from edgec.benching.result import BenchReport
from edgec.benching.verdicts import passed, verdicts
from edgec.report.bench.junit import to_junit
from tests.benching.example import (
    EXAMPLES,
    estimated,
    measured,
    missed,
    throttled,
    unsure,
)

MEASURED = measured()


def suite_of(report: BenchReport) -> ElementTree.Element:
    root = ElementTree.fromstring(to_junit(BundleBench("m", {"m": report})).encode())
    assert root.tag == "testsuites"
    (suite,) = root
    return suite


def cases(report: BenchReport) -> dict[str, ElementTree.Element]:
    return {case.get("name", ""): case for case in suite_of(report).iter("testcase")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_counts_agree_with_the_cases(name: str) -> None:
    report = EXAMPLES[name]()
    suite = suite_of(report)
    found = list(suite.iter("testcase"))
    assert suite.get("tests") == str(len(found))
    assert suite.get("failures") == str(
        sum(case.find("failure") is not None for case in found)
    )
    assert suite.get("skipped") == str(
        sum(case.find("skipped") is not None for case in found)
    )
    assert passed(verdicts(report)) == (suite.get("failures") == "0")
    assert all(case.get("classname") for case in found)
    assert next(child.tag for child in suite) == "properties"


def test_a_missed_budget_is_a_failure_with_its_value() -> None:
    found = cases(missed())
    failure = found["p95<=11ms"].find("failure")
    assert failure is not None
    assert (
        failure.get("message")
        == "p95<=11ms: 12.3 ms, margin -1.3 ms, seg1 on the Edge TPU, 6.5 ms"
    )
    assert failure.text == failure.get("message")
    assert found["rss<=80MB"].find("failure") is None
    assert found["p50 against bench/attic.json"].find("failure") is not None


def test_throttling_is_a_failure() -> None:
    failure = cases(throttled())["no throttling"].find("failure")
    assert failure is not None
    assert "82.5 °C" in (failure.text or "")


def test_what_cannot_be_told_is_skipped_with_its_reason() -> None:
    skipped = cases(unsure())["p50 against bench/attic.json"].find("skipped")
    assert skipped is not None
    assert "9,000 runs" in (skipped.get("message") or "")


def properties(report: BenchReport) -> dict[str, str]:
    return {
        p.get("name", ""): p.get("value", "") for p in suite_of(report).iter("property")
    }


def test_figures_are_properties_and_estimates_marked() -> None:
    found = properties(measured())
    assert found["p50"] == "11.99 ms"
    assert found["tpu.transfer"] == "est. 3.3 to 4.8 ms"
    assert found["device"] == "Raspberry Pi 4 Model B Rev 1.4 (ssh://pi@attic)"
    timed = [
        value
        for value in properties(estimated()).values()
        if value.endswith((" ms", " fps"))
    ]
    assert timed
    assert all(value.startswith("est. ") for value in timed)


def test_the_class_is_grouped_by_model() -> None:
    (name,) = {case.get("classname") for case in cases(measured()).values()}
    assert name == "cartoon.Raspberry Pi 4 Model B Rev 1_4 (ssh://pi@attic)"


@given(st.text(st.characters(), max_size=20))
def test_any_name_gives_valid_xml(name: str) -> None:
    budgets = tuple(
        replace(c, what=name, why=name, holds=False) for c in MEASURED.budgets
    )
    device = replace(MEASURED.device, board=name, url=name)
    report = replace(MEASURED, model=name, device=device, budgets=budgets)
    assert suite_of(report).get("failures") == "2"
