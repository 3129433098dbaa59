"""The first screen of a compile: what is worth mending, and each term once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgec.report.summary import Made, footnote, summary
from tests.partition.test_gains import refusal, report
from tests.report.test_checked import verification


def told(folder: Path, share: float) -> str:
    """The summary of a network; mending `light` would gain a share of the estimate."""
    r = report(refusal("light"))
    gain_ms = share * r.comparison.edgec.est_ms
    rows = []
    for op in r.ops:
        mended = bool(op.refusals) and op.refusals[0].rule == "light"
        rows.append(replace(op, gain_ms=gain_ms if mended else 0.0))
    made = Made(
        path=folder,
        bytes=1,
        model="tower",
        target="pi4+coral",
        segments=(),
        explained=replace(r, ops=tuple(rows)),
        sources={},
        verification=verification(),
        edgetpu_compiler=(),
        float_on_cpu=False,
    )
    return summary(made)


def test_only_what_is_worth_mending_is_named(tmp_path: Path) -> None:
    text = told(tmp_path, 0.3)
    named = [line for line in text.splitlines() if line.startswith("on the CPU: ")]
    assert len(named) == 1
    assert named[0].startswith("on the CPU: 1 x depthwise_conv2d, at most ")
    assert named[0].endswith(" ms to gain: the rule light")
    assert "edgec explain says why" in text

    small = told(tmp_path, 0.005)
    assert "on the CPU: " not in small
    assert "edgec explain says why" in small


def test_terms_are_in_the_footnote_alone(tmp_path: Path) -> None:
    assert "MACs = " not in told(tmp_path, 0.3)
    assert "above bound = " in footnote()
    assert "the reference = " in footnote()
