"""What was seen of a device's clock, temperature and throttling, moment by moment of
its own clock.
"""

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
    """ns: of the device's CLOCK_MONOTONIC. mhz: of the fastest CPU; None, as celsius,
    where the device does not tell. reasons: what slowed it down since the moment
    before, in words.
    """

    ns: int
    mhz: float | None
    celsius: float | None
    reasons: tuple[str, ...]


def moments(launches: Iterable[Launch]) -> list[Moment]:
    """Of all launches, in order; what happened between two launches counts too."""
    seen = [one.vitals for one in launches if one.vitals]
    samples = [s for v in seen for s in (v["before"], *v["during"], v["after"])]
    found = []
    for last, s in pairwise([*samples[:1], *samples]):
        judged = judge([{"before": _told_by_now(last), "during": [s], "after": s}])
        found.append(Moment(s["ns"], judged.mhz_max, s.get("celsius"), judged.reasons))
    return found


def _told_by_now(s: Mapping[str, Any]) -> dict[str, Any]:
    """Of a sample, what tells whether something has happened since then; what was so at
    that moment does not.
    """
    word = s.get("throttled")
    gone = {"undervoltage": None, "cooling": None, "celsius": None}
    return {**s, **gone, "throttled": None if word is None else word & ~FLAGS_NOW}
