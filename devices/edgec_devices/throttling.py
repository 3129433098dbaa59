"""Whether a device was slowed down while it was measured: judges its vitals
(edgec_runtime/device_end/vitals.py).

The bits are those of `vcgencmd get_throttled` in Raspberry Pi's documentation: four for
now, and 16 higher whether it has happened since the board was booted (of the file in
sysfs: in the 2 s before).  Bit 2 says only that the clock is lowered, for heat or for
low voltage (raspberrypi/firmware#615).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgec_runtime.device_end.vitals import FLAGS_NOW

UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = range(4)
POWER_BITS = {
    UNDER_VOLTAGE: "under-voltage",
    CAPPED: "clock capped",
    THROTTLED: "throttled",
    SOFT_LIMIT: "soft temperature limit",
}
SINCE_BOOT = 16
HOT = 80.0
TOO_HOT = 85.0  # °C; a Raspberry Pi lowers its clock from 80 and more so from 85
NEARLY_HOT = 75.0
SUPPLY = (
    "use the power supply made for the board (a Pi 4: 5.1 V 3 A; a Pi 5: 5.1 V 5 A)"
)
FULL_SPEED = 0.98  # of the highest clock; what is above is rounding
BUSY = 1.0  # load average

Vitals = Mapping[str, Any]


@dataclass(frozen=True)
class Throttling:
    """What slowed a device down while it was measured, if anything.

    throttled: it happened between the first look and the last.  reasons: what happened,
    in words with values.  notes: what may matter but is no proof.  known: the device
    tells when its clock is lowered; without, that throttled is False may only mean that
    nobody can tell.  governor: "a/b" where CPUs differ.  celsius_…: of the CPU, before
    the first inference, at most, after the last.  mhz_…: the clocks seen meanwhile, of
    all CPUs; mhz_limit: of the fastest CPU.  Each None where the device does not tell.
    """

    throttled: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    known: bool = False
    governor: str | None = None
    celsius_before: float | None = None
    celsius_max: float | None = None
    celsius_after: float | None = None
    mhz_min: float | None = None
    mhz_max: float | None = None
    mhz_limit: float | None = None

    def table(self) -> str:
        """One line of figures, for example "governor ondemand, 600 to 1500 of 1800 MHz,
        48.2 to 61.9 °C".
        """
        said = [f"governor {self.governor}"] if self.governor else []
        if self.mhz_max is not None:
            limit = f" of {self.mhz_limit:.0f}" if self.mhz_limit else ""
            said.append(f"{_span(self.mhz_min, self.mhz_max, 0)}{limit} MHz")
        if self.celsius_max is not None:
            said.append(f"{_span(self.celsius_before, self.celsius_max, 1)} °C")
        return ", ".join(said) or "the device tells neither clock nor temperature"


def judge(rounds: Sequence[Vitals]) -> Throttling:
    """rounds: what Watch.as_dict() gave for each launch of one bench, in order."""
    rounds = [r for r in rounds if r]
    samples = [s for r in rounds for s in (r["before"], *r["during"], r["after"])]
    if not samples:
        return Throttling(
            False,
            notes=(
                "nothing was read of the device's clock, temperature and throttling",
            ),
        )
    running = [s for r in rounds for s in r["during"]] or [r["after"] for r in rounds]
    mhz = [m for s in running for m in _mhz(s)]
    limit = max(_seen(samples, "max_khz"), default=None)
    look = _Look(
        samples,
        running,
        limit and limit / 1000,
        max(_seen(samples, "celsius"), default=None),
    )
    reasons = tuple(_reasons(look))
    return Throttling(
        throttled=bool(reasons),
        reasons=reasons,
        notes=tuple(_notes(look, bool(reasons))),
        known=look.known,
        governor=samples[0].get("governor"),
        celsius_before=samples[0].get("celsius"),
        celsius_max=look.hottest,
        celsius_after=samples[-1].get("celsius"),
        mhz_min=min(mhz, default=None),
        mhz_max=max(mhz, default=None),
        mhz_limit=look.limit,
    )


@dataclass(frozen=True)
class _Look:
    """All samples; those of while the programs ran; the highest clock that the device
    has, MHz; the highest °C.
    """

    samples: Sequence[Vitals]
    running: Sequence[Vitals]
    limit: float | None
    hottest: float | None

    @property
    def known(self) -> bool:
        return any(
            _seen(self.samples, key)
            for key in ("throttled", "cooling", "throttle_count")
        )

    @property
    def at(self) -> str:
        return "" if self.hottest is None else f" at {self.hottest:.1f} °C"


def _seen(samples: Iterable[Vitals], key: str) -> list[Any]:
    return [s[key] for s in samples if s.get(key) is not None]


def _span(low: float | None, high: float, digits: int) -> str:
    top = f"{high:.{digits}f}"
    bottom = top if low is None else f"{low:.{digits}f}"
    return top if bottom == top else f"{bottom} to {top}"


def _mhz(sample: Vitals) -> list[float]:
    """Clocks of a sample.

    What the firmware measured counts more than what the kernel asked it for.
    """
    khz = [sample["arm_khz"]] if sample.get("arm_khz") else sample.get("khz") or []
    return [k / 1000 for k in khz]


def _happened(samples: Sequence[Vitals]) -> tuple[int, int]:
    """Bits of now that were seen or must have been set in between; and those that were
    set before the first look.

    A bit of "it has happened" that was not set at the look before, told by the same
    teller, was set meanwhile.
    """
    seen = 0
    earlier = 0
    last: dict[Any, int] = {}
    for s in samples:
        word = s.get("throttled")
        if word is None:
            continue
        by = s.get("throttled_by")
        seen |= word & FLAGS_NOW
        high = word >> SINCE_BOOT & FLAGS_NOW
        if by in last:
            seen |= high & ~last[by]
        else:
            earlier |= high
        last[by] = high
    if any(_seen(samples, "undervoltage")):
        seen |= 1 << UNDER_VOLTAGE
    return seen, earlier


def _reasons(look: _Look) -> Iterator[str]:
    seen, _ = _happened(look.samples)
    low = seen >> UNDER_VOLTAGE & 1
    if low:
        yield f"{POWER_BITS[UNDER_VOLTAGE]}: {SUPPLY}"
    if seen >> THROTTLED & 1:
        yield f"the firmware throttled the CPU{look.at}" + (
            ", or for the under-voltage" if low else ""
        )
    if seen >> CAPPED & 1:
        yield f"the clock was capped{_capped_at(look)}"
    if seen >> SOFT_LIMIT & 1:
        yield f"the soft temperature limit lowered the clock{look.at}"
    steps = max(_seen(look.samples, "cooling"), default=0)
    if steps > 0:
        yield (
            f"the kernel lowered the clock by {steps} step{'s' * (steps != 1)} to "
            f"cool the CPU{look.at}"
        )
    counts = _seen(look.samples, "throttle_count")
    grown = counts[-1] - counts[0] if counts else 0
    if grown > 0:
        yield (
            f"the CPU lowered its clock for its temperature{look.at}: "
            f"its throttle counts rose by {grown}"
        )


def _capped_at(look: _Look) -> str:
    """The lowest clock that was seen under the cap; "" where only the kernel tells it
    and knows nothing of the cap.
    """
    measured = _seen(look.running, "arm_khz")
    capped = [
        s
        for s in look.running
        if (s.get("throttled") or 0) >> CAPPED & 1 and s.get("khz")
    ]
    mhz = min(measured or [max(s["khz"]) for s in capped], default=0) / 1000
    if look.limit and 0 < mhz < FULL_SPEED * look.limit:
        return f" at {mhz:.0f} MHz of {look.limit:.0f}"
    return ""


def _notes(look: _Look, throttled: bool) -> Iterator[str]:
    governor = look.samples[0].get("governor")
    load = look.samples[0].get("load1")
    if not look.known:
        if _seen(look.samples, "undervoltage"):
            low = ", only whether it has under-voltage"
        else:
            low = ""
        yield f"the device does not tell whether it throttles{low}"
    _, earlier = _happened(look.samples)
    before = [text for bit, text in POWER_BITS.items() if earlier >> bit & 1]
    if before:
        yield f"{', '.join(before)}: has happened before this run"
    fastest = max((m for s in look.running for m in _mhz(s)), default=0.0)
    if governor and governor != "performance":
        yield (
            f"the governor is {governor}, not performance: "
            "the clock may change "
            f"from run to run; {set_governor()}"
        )
    elif look.limit and not throttled and 0 < fastest < FULL_SPEED * look.limit:
        yield (
            f"the clock was {fastest:.0f} of {look.limit:.0f} MHz under the "
            "governor "
            f"{governor or 'of unknown name'}"
        )
    firmware = bool(_seen(look.samples, "throttled"))
    if (
        firmware
        and not throttled
        and look.hottest is not None
        and look.hottest >= NEARLY_HOT
    ):
        yield f"{look.hottest:.1f} °C: from {HOT:.0f} °C on the clock is lowered"
    if load is not None and load >= BUSY:
        yield f"the device was busy before the run: load average {load:.2f}"


def set_governor(name: str = "performance") -> str:
    """A command that sets it until the next boot."""
    return (
        f"echo {name} | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    )
