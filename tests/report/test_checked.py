"""What a compile says of its checks: nothing to worry about where nothing is wrong."""

from __future__ import annotations

import pytest

from edgec.measure.agreement import Agreement
from edgec.quantize.observe.layers import LayerNoise
from edgec.quantize.observe.verification import SegmentCheck, Verification
from edgec.report.checks import accuracy, checks

WORST = LayerNoise("y", "conv2d", "/conv", "seg0", -14.7, -14.7)


def verification(sqnr_db: float = 30.0, calibrated: int = 8) -> Verification:
    """Checks of one segment and one output."""
    near = SegmentCheck("seg1", "cpu", "C", 1e-6, 1e-4)
    return Verification(
        samples=2,
        exact=1,
        source="photos/",
        calibrated=calibrated,
        seen=False,
        reference="C",
        segments=(SegmentCheck("seg0", "cpu", "C", 0.0, 0.0), near),
        whole={"y": Agreement(0.999, sqnr_db, None, 2), "z": Agreement(1, 99, None, 2)},
        quantized=True,
        worst=WORST,
    )


@pytest.mark.parametrize(("calibrated", "warned"), [(5, True), (6, False), (7, False)])
def test_few_samples_are_those_of_fewer_than_eight_photos(
    calibrated: int, warned: bool
) -> None:
    """Of the demo's ten photos 7 calibrate, of eight 6: a quarter is held back."""
    text = "\n".join(accuracy(verification(calibrated=calibrated)))
    assert ("that is few: give 8 samples" in text) == warned


@pytest.mark.parametrize(("sqnr_db", "blamed"), [(46.3, False), (39.9, True)])
def test_no_op_is_blamed_where_all_is_well(sqnr_db: float, blamed: bool) -> None:
    text = "\n".join(accuracy(verification(sqnr_db)))
    assert ("largest loss in one op" in text) == blamed


def test_checks_name_the_reference() -> None:
    exact, near = checks(verification())
    assert exact.endswith("runs as the reference does, bit for bit (1 sample)")
    assert near.endswith("within 1e-06 of the reference (0.0001 allowed; 1 sample)")
