"""How far the time of a board may be from an estimate of it.

An estimate t with the relative error e stands for the interval from t (1 - e) to
t (1 + e). e is the root mean square of the relative errors of estimates of networks
whose times others have published (docs/measured.md): the published times of about two
of three networks are within the interval, those of the third are beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

RelativeError = Annotated[float, Meta(gt=0, lt=1)]

UNCHECKED = 0.3
"""Relative error of an estimate that nobody has compared with published times: as far
as the worst board was off before its model was fitted to such times. No board without
them can claim to be better known.
"""
EDGETPU_ERROR = 0.197
"""Relative error of the cost model of the Edge TPU: the root mean square of the errors of
sources that its fit has not seen, each source counting the same (make cost-table). Its
parts (transfer, invoke, compute) were published by nobody: they are given that of the
whole.
"""
MOST_DECIMALS = 3
CPU = "cpu"
EDGETPU = "edgetpu"
"""The two models that estimate times."""


class ErrorFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """The relative errors of a board's estimates: of one thread, and of more."""

    one: RelativeError = UNCHECKED
    more: RelativeError = UNCHECKED


@dataclass(frozen=True)
class EstimatedPart:
    """A part of an estimated time.

    Attributes:
        ms: its estimate
        error: its relative error
        model: the model that estimates it, CPU or EDGETPU
    """

    ms: float
    error: float
    model: str


def error_of_sum(parts: Iterable[EstimatedPart]) -> float:
    """Return the relative error of the sum of parts; 0 for a sum of 0 ms.

    Errors of one model have one cause, and add up; those of two models have nothing to
    do with each other, so that their squares add up:

        sqrt((sum of cpu ms * error)^2 + (sum of edgetpu ms * error)^2) / sum of all ms
    """
    total = 0.0
    errors = {CPU: 0.0, EDGETPU: 0.0}
    for part in parts:
        total += part.ms
        errors[part.model] += part.ms * part.error
    return math.hypot(*errors.values()) / total if total else 0.0


def ends(estimate: float, error: float) -> tuple[float, float]:
    """Return the lower and the upper end of the interval of an estimate."""
    return estimate * (1 - error), estimate * (1 + error)


def interval_text(low: float, high: float) -> str:
    """Return "8.2 to 10.4": the lower end with two significant digits, the upper one
    with as many decimals.
    """
    decimals = _decimals(low)
    texts = (_rounded(low, decimals), _rounded(high, decimals))
    return " to ".join(dict.fromkeys(texts))


def estimate_text(estimate: float, error: float) -> str:
    """Return the interval of an estimate as `interval_text` has it."""
    return interval_text(*ends(estimate, error))


def two_digits(estimate: float) -> str:
    """Return an estimate that stands beside others of the same model, such as 8.2.

    Whoever compares them looks at their ratio, in which the model's error cancels.
    """
    return _rounded(estimate, _decimals(estimate))


def _decimals(value: float) -> int:
    """Return the decimals of two significant digits; negative for hundreds and more.

    At most three: a thousandth of a millisecond is nobody's concern.
    """
    if not value:
        return 0
    # 9.96 is 10 with two digits, not 10.0: the exponent is that of the rounded number.
    exponent = int(f"{value:.1e}".partition("e")[2])
    return min(MOST_DECIMALS, 1 - exponent)


def _rounded(value: float, decimals: int) -> str:
    return f"{round(value, decimals):.{max(0, decimals)}f}"
