"""Intervals of estimates: their ends, their digits, and the error of a sum."""

from __future__ import annotations

import math

import pytest
from edgec_devices.boards import Board, boards
from edgec_devices.intervals import (
    CPU,
    EDGETPU,
    UNCHECKED,
    EstimatedPart,
    ends,
    error_of_sum,
    estimate_text,
    interval_text,
    two_digits,
)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (8.184, 10.416, "8.2 to 10.4"),
        (9.96, 12.6, "10 to 13"),
        (99.4, 131.2, "99 to 131"),
        (237.0, 301.0, "240 to 300"),
        (0.01234, 0.01567, "0.012 to 0.016"),
        (4100.0, 5300.0, "4100 to 5300"),
        (0.00234, 0.00291, "0.002 to 0.003"),
        (0.000004, 0.00001, "0.000"),
        (5.0, 5.0, "5.0"),
        (0.0, 0.0, "0"),
    ],
)
def test_an_interval_has_two_digits(low: float, high: float, text: str) -> None:
    assert interval_text(low, high) == text


def test_ends_are_as_far_apart_as_the_error() -> None:
    assert ends(10.0, 0.12) == pytest.approx((8.8, 11.2))
    assert estimate_text(10.0, 0.12) == "8.8 to 11.2"


@pytest.mark.parametrize(
    ("value", "text"), [(74.3, "74"), (348.48, "350"), (0.3194, "0.32"), (9.96, "10")]
)
def test_an_estimate_among_others_has_two_digits(value: float, text: str) -> None:
    assert two_digits(value) == text


def test_errors_of_one_model_add_up_and_those_of_two_are_independent() -> None:
    cpu = [EstimatedPart(10.0, 0.1, CPU), EstimatedPart(30.0, 0.1, CPU)]
    assert error_of_sum(cpu) == pytest.approx(0.1)
    tpu = EstimatedPart(40.0, 0.2, EDGETPU)
    assert error_of_sum([*cpu, tpu]) == pytest.approx(math.sqrt(4**2 + 8**2) / 80)
    assert error_of_sum([]) == 0.0


def test_a_board_that_nobody_compared_claims_no_small_error() -> None:
    unchecked = Board.load("host").error
    assert (unchecked.one, unchecked.more) == (UNCHECKED, UNCHECKED)
    for name in boards():
        error = Board.load(name).error
        assert 0 < error.one <= error.more <= UNCHECKED, name
