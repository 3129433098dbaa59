"""Puts a device's clock, temperature and throttling in order of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from edgec_devices.measurement import Launch
from edgec_devices.throttling import judge
from edgec_runtime.device_end.vitals import FLAGS_NOW


@dataclass(frozen=True)
class Moment:
    """The vitals of a device at one time.

    Attributes:
        ns: the device's CLOCK_MONOTONIC, ns
        mhz: clock of the fastest CPU, MHz; None if the device does not report it
        celsius: temperature, °C; None if the device does not report it
        reasons: causes of throttling since the moment before, in words
    """

    ns: int
    mhz: float | None
    celsius: float | None
    reasons: tuple[str, ...]


def moments(launches: Iterable[Launch]) -> list[Moment]:
    """Return the samples of all launches in order.

    Throttling between two launches belongs to the first moment after it.
    """
    samples = []
    for launch in launches:
        vitals = launch.vitals
        if vitals:
            samples += [vitals["before"], *vitals["during"], vitals["after"]]

    timeline = []
    # The first sample is its own predecessor, so that its state is a moment too.
    for previous, sample in pairwise([*samples[:1], *samples]):
        # `judge` would count a state at the moment before again for this one.
        before = _without_state(previous)
        interval = {"before": before, "during": [sample], "after": sample}
        throttling = judge([interval])
        timeline.append(
            Moment(
                sample["ns"],
                throttling.mhz_max,
                sample.get("celsius"),
                throttling.reasons,
            )
        )
    return timeline


def _without_state(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample without the values that hold only at its moment.

    The rest, counters and sticky flags, tells whether something happened afterwards.
    """
    flags = sample.get("throttled")
    if flags is not None:
        flags &= ~FLAGS_NOW
    cleared = {"undervoltage": None, "cooling": None, "celsius": None}
    return {**sample, **cleared, "throttled": flags}
