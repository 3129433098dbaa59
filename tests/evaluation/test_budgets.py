"""Budgets on the figures of an evaluation, in the grammar of bench."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from edgec_runtime.errors import InputError

from edgec.evaluation.bootstrap import FigureEstimate
from edgec.evaluation.budgets import check_budgets, parse_budgets
from edgec.evaluation.images import PictureFidelity
from edgec.evaluation.measure import MeasuredFigure
from edgec.evaluation.points import PointError
from edgec.evaluation.report import EvaluatedSide, EvaluationReport
from edgec.report.evaluation.junit import to_junit
from edgec.report.evaluation.text import drop_text, figure_text, to_text

PAINTED = PictureFidelity().figures
SIDES = ("float", "bundle", "device")


def estimate(value: float) -> FigureEstimate:
    return FigureEstimate(value, value - 1, value + 1)


def report(
    sides: Mapping[str, float], figure: MeasuredFigure, drop: float | None
) -> EvaluationReport:
    """A report of one figure. sides: its value by the key of the side."""
    rows = []
    for key, value in sides.items():
        row = EvaluatedSide(
            key, f"the {key}", "by hand", {figure.name: estimate(value)}
        )
        rows.append(row)
    return EvaluationReport(
        bundle="net",
        bundle_sha256="0" * 64,
        target="host",
        data="set",
        task="image",
        pictures=10,
        measured=(figure,),
        sides=tuple(rows),
        drops={} if drop is None else {figure.name: estimate(drop)},
        resamples=100,
        when="2026-01-01T00:00:00+00:00",
        edgec="0",
    )


def test_a_figure_alone_is_of_the_last_side() -> None:
    psnr = PAINTED[0]
    texts = ["psnr>=30dB,bundle.psnr>=30dB", "drop.psnr<=0.5dB"]
    budgets = parse_budgets(texts, PAINTED, SIDES)
    made = report({"float": 35, "bundle": 31, "device": 29}, psnr, 6.0)
    verdicts = check_budgets(budgets, made)
    assert [v.state for v in verdicts] == ["fail", "pass", "fail"]
    assert verdicts[0].value == "29 dB"
    assert verdicts[0].why == "95 % interval 28 dB to 30 dB"
    assert not replace(made, verdicts=verdicts).passed


def test_errors_are_better_if_lower() -> None:
    (nme,) = PointError(3).figures
    budgets = parse_budgets(["nme<=5%", "drop.nme<=1%"], (nme,), ("float", "bundle"))
    made = report({"float": 3, "bundle": 4.5}, nme, 1.5)
    assert [v.state for v in check_budgets(budgets, made)] == ["pass", "fail"]


def test_what_has_no_value_fails() -> None:
    psnr = PAINTED[0]
    budgets = parse_budgets(["psnr>=30dB"], PAINTED, ("bundle",))
    (verdict,) = check_budgets(budgets, report({"bundle": math.nan}, psnr, None))
    assert (verdict.state, verdict.value) == ("fail", "none")
    assert "nothing to measure it on" in verdict.why
    # A side that was wanted and could not run.
    budgets = parse_budgets(["bundle.psnr>=30dB"], PAINTED, ("bundle", "device"))
    (verdict,) = check_budgets(budgets, report({"device": 40}, psnr, None))
    assert (verdict.state, verdict.why) == ("fail", "no bundle ran")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("psnr>=30ms", "psnr has no ms"),
        ("psnr", "is not a requirement"),
        ("ssim>=0.9dB", "ssim has no dB"),
        ("float.psnr>=30dB", "there is no figure float.psnr"),
        ("map>=30%", "there is no figure map"),
    ],
)
def test_budgets_that_are_none(text: str, said: str) -> None:
    with pytest.raises(InputError) as e:
        parse_budgets([text], PAINTED, ("bundle",))
    assert said in e.value.what
    assert e.value.at == "--budget"


def test_reports_in_words_and_in_xml() -> None:
    psnr, ssim = PAINTED
    budgets = parse_budgets(["psnr>=30dB"], PAINTED, ("float", "bundle"))
    made = report({"float": 35, "bundle": 31}, psnr, 4.0)
    made = replace(made, verdicts=check_budgets(budgets, made))
    text = to_text(made)
    assert "PSNR  35.00 dB (34.00 to 36.00)" in text
    assert "+4.00 dB (+3.00 to +5.00)" in text
    assert text.endswith("95 % interval 30 dB to 32 dB\n")

    suite = ElementTree.fromstring(to_junit(made)).find("testsuite")
    assert suite is not None
    properties = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert properties["float.psnr"] == "35.00 dB (34.00 to 36.00)"
    assert properties["drop.psnr"] == "+4.00 dB (+3.00 to +5.00)"
    assert [case.get("classname") for case in suite.iter("testcase")] == [
        "net.the bundle"
    ]
    # Without a unit numbers are of 0 to 1, and nothing is neither more nor less.
    assert (
        figure_text(FigureEstimate(0.98, 0.97, 0.99), ssim)
        == "0.9800 (0.9700 to 0.9900)"
    )
    assert (
        drop_text(FigureEstimate(0.0, -1e-9, 0.001), ssim)
        == "0.0000 (0.0000 to +0.0010)"
    )
    assert figure_text(FigureEstimate(math.nan, math.nan, math.nan), ssim) == "none"
