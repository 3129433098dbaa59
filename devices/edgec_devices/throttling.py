"""Decides from a device's vitals whether it was slowed down during a measurement.

The vitals are those of edgec_runtime/device_end/vitals.py. The bits are those of
`vcgencmd get_throttled` in Raspberry Pi's documentation: four for the present, and 16
higher whether it has happened since the board was booted (in the file of sysfs: in the
last 2 s). Bit 2 says only that the clock is lowered, for heat or for low voltage
(raspberrypi/firmware#615).
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
TOO_HOT = 85.0
"""A Raspberry Pi lowers its clock from 80 °C, and more so from 85 °C."""
NEARLY_HOT = 75.0
"""A device this warm may become hot in a longer run, °C."""
SUPPLY = (
    "use the power supply made for the board (a Pi 4: 5.1 V 3 A; a Pi 5: 5.1 V 5 A)"
)
FULL_SPEED = 0.98
"""Share of the highest clock from which the difference is rounding."""
BUSY = 1.0
"""Load average from which another program was running."""

Vitals = Mapping[str, Any]
"""A sample of a device's clock, temperature and throttling, or a round of samples."""


@dataclass(frozen=True)
class Throttling:
    """The throttling of a device during a measurement; unknown values are None.

    Attributes:
        throttled: whether it throttled between the first sample and the last
        reasons: causes of throttling, in words with values
        notes: remarks on circumstances that may matter but prove nothing
        known: whether the device reports that its clock is lowered; otherwise a False
            `throttled` proves nothing
        governor: the CPU frequency governor; "a/b" if CPUs differ
        celsius_before: temperature of the CPU before the first inference, °C
        celsius_max: highest temperature, °C
        celsius_after: temperature after the last inference, °C
        mhz_min: lowest clock of all CPUs while programs ran, MHz
        mhz_max: highest clock of all CPUs while programs ran, MHz
        mhz_limit: highest clock that the fastest CPU has, MHz
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
        """Return one line of figures.

        An example is "governor ondemand, 600 to 1500 of 1800 MHz, 48.2 to 61.9 °C".
        """
        figures = []
        if self.governor:
            figures.append(f"governor {self.governor}")
        if self.mhz_max is not None:
            clocks = _span(self.mhz_min, self.mhz_max, 0)
            limit = f" of {self.mhz_limit:.0f}" if self.mhz_limit else ""
            figures.append(f"{clocks}{limit} MHz")
        if self.celsius_max is not None:
            temperatures = _span(self.celsius_before, self.celsius_max, 1)
            figures.append(f"{temperatures} °C")
        return ", ".join(figures) or "the device tells neither clock nor temperature"


def judge(rounds: Sequence[Vitals]) -> Throttling:
    """Return the throttling of one bench.

    `rounds` has the result of Watch.as_dict() of each launch, in order.
    """
    samples: list[Vitals] = []
    running: list[Vitals] = []
    for launch in filter(None, rounds):
        samples += [launch["before"], *launch["during"], launch["after"]]
        running += launch["during"]
    if not samples:
        note = "nothing was read of the device's clock, temperature and throttling"
        return Throttling(False, notes=(note,))
    # Launches may be too short for a sample during them.
    if not running:
        running = [launch["after"] for launch in filter(None, rounds)]

    # A value may be missing in some samples: files of sysfs come and go.
    limit_khz = max(_known(samples, "max_khz"), default=None)
    observation = _Observation(
        samples=samples,
        running=running,
        limit=limit_khz and limit_khz / 1000,
        hottest=max(_known(samples, "celsius"), default=None),
    )
    reasons = tuple(_reasons(observation))
    notes = tuple(_notes(observation, bool(reasons)))
    mhz = [clock for sample in running for clock in _mhz(sample)]
    return Throttling(
        throttled=bool(reasons),
        reasons=reasons,
        notes=notes,
        known=observation.reports_throttling,
        governor=samples[0].get("governor"),
        celsius_before=samples[0].get("celsius"),
        celsius_max=observation.hottest,
        celsius_after=samples[-1].get("celsius"),
        mhz_min=min(mhz, default=None),
        mhz_max=max(mhz, default=None),
        mhz_limit=observation.limit,
    )


@dataclass(frozen=True)
class _Observation:
    """The samples of a bench.

    Attributes:
        samples: all samples
        running: samples while programs ran
        limit: highest clock that the device has, MHz
        hottest: highest temperature, °C
    """

    samples: Sequence[Vitals]
    running: Sequence[Vitals]
    limit: float | None
    hottest: float | None

    @property
    def reports_throttling(self) -> bool:
        keys = ("throttled", "cooling", "throttle_count")
        return any(_known(self.samples, key) for key in keys)

    @property
    def at_temperature(self) -> str:
        return "" if self.hottest is None else f" at {self.hottest:.1f} °C"

    def below_full_speed(self, mhz: float) -> bool:
        """Return whether a clock is known, and lower than the highest one."""
        return bool(self.limit) and 0 < mhz < FULL_SPEED * (self.limit or 0)


def _known(samples: Iterable[Vitals], key: str) -> list[Any]:
    """Return the known values of a field."""
    return [sample[key] for sample in samples if sample.get(key) is not None]


def _span(low: float | None, high: float, digits: int) -> str:
    """Return "low to high", or one number if they are the same."""
    top = f"{high:.{digits}f}"
    bottom = top if low is None else f"{low:.{digits}f}"
    return top if bottom == top else f"{bottom} to {top}"


def _mhz(sample: Vitals) -> list[float]:
    """Return the clocks of a sample, MHz.

    The clock measured by the firmware is better than the one requested by the kernel.
    """
    if sample.get("arm_khz"):
        return [sample["arm_khz"] / 1000]
    return [khz / 1000 for khz in sample.get("khz") or []]


def _power_bits(samples: Sequence[Vitals]) -> tuple[int, int]:
    """Return the bits set during the bench, and the bits set before the first sample.

    A bit of "it has happened" was set during the bench if the sample before, from the
    same source, does not have it.
    """
    during = 0
    earlier = 0
    previous: dict[Any, int] = {}
    # Bits since boot stay set, so only a new one belongs to this bench. Files and
    # vcgencmd keep separate bits.
    for sample in samples:
        word = sample.get("throttled")
        if word is None:
            continue
        during |= word & FLAGS_NOW
        since_boot = word >> SINCE_BOOT & FLAGS_NOW
        source = sample.get("throttled_by")
        if source in previous:
            during |= since_boot & ~previous[source]
        else:
            earlier |= since_boot
        previous[source] = since_boot
    if any(_known(samples, "undervoltage")):
        # The kernel's own sensor, on boards without the firmware's flags.
        during |= 1 << UNDER_VOLTAGE
    return during, earlier


def _reasons(observation: _Observation) -> Iterator[str]:
    """Yield the causes of throttling in words."""
    bits, _ = _power_bits(observation.samples)
    at = observation.at_temperature
    under_voltage = bits >> UNDER_VOLTAGE & 1
    if under_voltage:
        yield f"{POWER_BITS[UNDER_VOLTAGE]}: {SUPPLY}"
    if bits >> THROTTLED & 1:
        # The bit does not tell heat from low voltage.
        other = ", or for the under-voltage" if under_voltage else ""
        yield f"the firmware throttled the CPU{at}{other}"
    if bits >> CAPPED & 1:
        yield f"the clock was capped{_capped_at(observation)}"
    if bits >> SOFT_LIMIT & 1:
        yield f"the soft temperature limit lowered the clock{at}"

    steps = max(_known(observation.samples, "cooling"), default=0)
    if steps > 0:
        plural = "s" if steps != 1 else ""
        yield f"the kernel lowered the clock by {steps} step{plural} to cool the CPU{at}"
    counts = _known(observation.samples, "throttle_count")
    # The counter runs since boot: its growth is of this bench.
    increase = counts[-1] - counts[0] if counts else 0
    if increase > 0:
        yield (
            f"the CPU lowered its clock for its temperature{at}: "
            f"its throttle counts rose by {increase}"
        )


def _capped_at(observation: _Observation) -> str:
    """Return the lowest clock under the cap in words.

    It is "" if only the kernel reports the clock, which knows nothing of the cap.
    """
    khz = _known(observation.running, "arm_khz")
    if not khz:
        for sample in observation.running:
            capped = (sample.get("throttled") or 0) >> CAPPED & 1
            if capped and sample.get("khz"):
                khz.append(max(sample["khz"]))
    mhz = min(khz, default=0) / 1000
    if observation.below_full_speed(mhz):
        return f" at {mhz:.0f} MHz of {observation.limit:.0f}"
    return ""


def _notes(observation: _Observation, throttled: bool) -> Iterator[str]:
    """Yield remarks on circumstances that may matter."""
    if not observation.reports_throttling:
        exception = ""
        if _known(observation.samples, "undervoltage"):
            exception = ", only whether it has under-voltage"
        yield f"the device does not tell whether it throttles{exception}"
    _, earlier = _power_bits(observation.samples)
    before = [text for bit, text in POWER_BITS.items() if earlier >> bit & 1]
    if before:
        yield f"{', '.join(before)}: has happened before this run"
    yield from _clock_notes(observation, throttled)
    yield from _temperature_notes(observation, throttled)
    load = observation.samples[0].get("load1")
    if load is not None and load >= BUSY:
        yield f"the device was busy before the run: load average {load:.2f}"


def _clock_notes(observation: _Observation, throttled: bool) -> Iterator[str]:
    """Yield a remark if the clock may change, or was low without throttling."""
    governor = observation.samples[0].get("governor")
    if governor and governor != "performance":
        yield (
            f"the governor is {governor}, not performance: "
            "the clock may change "
            f"from run to run; {set_governor()}"
        )
        return
    clocks = [mhz for sample in observation.running for mhz in _mhz(sample)]
    # Idle cores are slow at all times, so only the fastest one tells.
    fastest = max(clocks, default=0.0)
    if not throttled and observation.below_full_speed(fastest):
        yield (
            f"the clock was {fastest:.0f} of {observation.limit:.0f} MHz under the "
            "governor "
            f"{governor or 'of unknown name'}"
        )


def _temperature_notes(observation: _Observation, throttled: bool) -> Iterator[str]:
    """Yield a remark if a Raspberry Pi is nearly so hot that it throttles."""
    # Other boards have other limits.
    is_pi = bool(_known(observation.samples, "throttled"))
    hottest = observation.hottest
    if throttled or not is_pi or hottest is None:
        return
    if hottest >= NEARLY_HOT:
        yield f"{hottest:.1f} °C: from {HOT:.0f} °C on the clock is lowered"


def set_governor(name: str = "performance") -> str:
    """Return a command that sets the governor until the next boot."""
    return (
        f"echo {name} | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    )
