"""Parses requirements on figures: `p95<=33ms`, `tpu.macs>=95%`, `throttled==0`.

One grammar for `explain --require`, `flash --health` and the budgets of `bench`: FIGURE
OP NUMBER [UNIT]. OP is >=, <=, >, <, == or =. Without a unit the number is in the
figure's own; with one, the unit must be of the figure's dimension, or % of the whole
that the figure is a part of. A bare number up to 100 is refused for a figure that
people usually give as a share: `tpu.macs>=95` would always hold. A requirement has no
comma, so that commas may separate several.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from edgec_runtime import InputError
from edgec_runtime.errors import did_you_mean

from edgec_devices.intervals import interval_text, two_digits

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*(>=|<=|==|=|>|<)\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([^\s,]*)\s*"
)


@dataclass(frozen=True)
class Unit:
    """A unit: its dimension in words, and its size in the dimension's first unit."""

    dimension: str
    factor: float


UNITS: Mapping[str, Unit] = {
    "": Unit("a count", 1),
    "%": Unit("a share", 1),
    "ms": Unit("a time", 1),
    "ns": Unit("a time", 1e-6),
    "us": Unit("a time", 1e-3),
    "µs": Unit("a time", 1e-3),
    "s": Unit("a time", 1e3),
    "B": Unit("a size", 1),
    "kB": Unit("a size", 1e3),
    "MB": Unit("a size", 1e6),
    "GB": Unit("a size", 1e9),
    "KiB": Unit("a size", 2**10),
    "MiB": Unit("a size", 2**20),
    "GiB": Unit("a size", 2**30),
    "dB": Unit("a level", 1),
    "fps": Unit("a rate", 1),
    "/s": Unit("a rate", 1),
    "C": Unit("a temperature", 1),
    "°C": Unit("a temperature", 1),
    "MHz": Unit("a frequency", 1),
    "GHz": Unit("a frequency", 1e3),
}
"""Units by their text. kB, MB and GB are decimal."""

SIGNED_DIMENSION = "a temperature"
"""The only dimension with values below 0."""
TOLERANCE = 1e-9
"""Share by which a figure may miss its limit through rounding: 29 of 29 is 100 %,
however it was divided.
"""


@dataclass(frozen=True)
class Kind:
    """The properties of a figure that are known before it is measured.

    Attributes:
        unit: its unit, one of UNITS
        part: whether it is a part of a whole, and may be given as a share
        share: whether it is usually given as a share, so that a number without a unit
            is taken for a forgotten %
    """

    unit: str = ""
    part: bool = False
    share: bool = False

    def takes(self, unit: str) -> bool:
        """Return whether a number in this unit, one of UNITS, can be compared with it."""
        if unit == "" or (unit == "%" and self.part):
            return True
        return UNITS[unit].dimension == UNITS[self.unit].dimension


@dataclass(frozen=True)
class Figure:
    """A measured or estimated number.

    Attributes:
        value: the number
        unit: its unit, one of UNITS
        whole: the whole that it is a part of, in the same unit; None for no whole
        culprit: the obstacle to a better number, in words; "" if there is none
        estimated: whether it was not measured on the target's hardware
        ends: the lower and the upper end of the interval of an estimate
            (edgec_devices.intervals); None of a figure without one
    """

    value: float
    unit: str = ""
    whole: float | None = None
    culprit: str = ""
    estimated: bool = False
    ends: tuple[float, float] | None = None

    def measured(self, unit: str) -> float:
        """Return the number in `unit`, which its Kind accepts.

        The share of a whole of zero is 0 %.
        """
        # A figure in % is a number of its own; of others, % is the part of their whole.
        if self._as_share(unit):
            return 100.0 * self.value / self.whole if self.whole else 0.0
        return self._converted(self.value, unit)

    def ends_in(self, unit: str) -> tuple[float, float] | None:
        """Return the ends of its interval in `unit`; None without one.

        A share of the whole has none: the errors of part and whole mostly cancel.
        """
        if self.ends is None or self._as_share(unit):
            return None
        low, high = self.ends
        return self._converted(low, unit), self._converted(high, unit)

    def text(self) -> str:
        """Return the number with its unit; of an estimate with an interval its ends."""
        if self.ends is None:
            return amount(self.value, self.unit)
        return f"{interval_text(*self.ends)} {self.unit}"

    def _as_share(self, unit: str) -> bool:
        return unit == "%" and self.unit != "%"

    def _converted(self, value: float, unit: str) -> float:
        return value * UNITS[self.unit].factor / UNITS[unit or self.unit].factor


@dataclass(frozen=True)
class JudgedInterval:
    """The interval of an estimate, and the end by which a requirement is judged.

    Attributes:
        low: its lower end
        high: its upper end
        judged: the judged end; "neither" if it is the estimate itself
    """

    low: float
    high: float
    judged: Literal["lower", "upper", "neither"]

    @property
    def value(self) -> float | None:
        """Return the judged end; None if it is the estimate itself."""
        return {"lower": self.low, "upper": self.high}.get(self.judged)

    def text(self, unit: str) -> str:
        """Return, for example, "upper end of est. 8.2 to 10.4 ms"."""
        interval = f"est. {interval_text(self.low, self.high)} {unit}"
        return (
            interval if self.judged == "neither" else f"{self.judged} end of {interval}"
        )


@dataclass(frozen=True)
class RequirementOutcome:
    """A requirement and the measured figure.

    Attributes:
        text: the requirement
        measured: the figure in `unit`
        unit: unit of the requirement
        margin: distance to the limit in `unit`; negative if the requirement is missed
        holds: whether it holds
        culprit: the obstacle, in words
        interval: the interval of an estimate in `unit`; None of a figure without one
    """

    text: str
    measured: float
    unit: str
    margin: float
    holds: bool
    culprit: str
    interval: JudgedInterval | None = None

    def line(self) -> str:
        """Return one line: the value, the requirement, the margin and the obstacle."""
        word = "holds" if self.holds else "MISSED"
        measured = amount(self.measured, self.unit)
        margin = amount(self.margin, self.unit)
        if self.interval is not None:
            measured = self.interval.text(self.unit)
            margin = f"{two_digits(self.margin)} {self.unit}"
        line = f"{word:<6}  {self.text}: {measured}, margin {margin}"
        if self.holds or not self.culprit:
            return line
        return f"{line}; in the way: {self.culprit}"


@dataclass(frozen=True)
class Requirement:
    """A parsed expression; `unit` is "" if none was written."""

    text: str
    figure: str
    operator: str
    value: float
    unit: str

    def check(self, figure: Figure) -> RequirementOutcome:
        """Return whether it holds for a figure.

        An estimate is judged by the worse end of its interval: the upper one for a
        limit that it must not exceed, the lower one for one that it must reach.
        """
        measured = figure.measured(self.unit)
        interval = self._interval(figure)
        judged = measured
        if interval is not None and interval.value is not None:
            judged = interval.value
        gap = judged - self.value
        # A limit that is met exactly must hold, however the figure was divided.
        if abs(gap) < TOLERANCE * max(1.0, abs(self.value)):
            gap = 0.0
        holds = _OPERATORS[self.operator](gap, 0.0)
        if self.operator in (">=", ">"):
            margin = gap
        elif self.operator in ("<=", "<"):
            margin = -gap
        else:
            margin = -abs(gap)
        # Nothing is in the way of a requirement that holds.
        culprit = "" if holds else figure.culprit
        return RequirementOutcome(
            self.text,
            measured,
            self.unit or figure.unit,
            margin + 0.0,
            holds,
            culprit,
            interval,
        )

    def _interval(self, figure: Figure) -> JudgedInterval | None:
        """Return the interval of an estimate; None of a figure without one."""
        ends = figure.ends_in(self.unit)
        if ends is None:
            return None
        if self.operator in (">=", ">"):
            return JudgedInterval(*ends, "lower")
        if self.operator in ("<=", "<"):
            return JudgedInterval(*ends, "upper")
        return JudgedInterval(*ends, "neither")


@dataclass(frozen=True)
class Vocabulary:
    """The figures that requirements of one option may name.

    Attributes:
        known: the figures by name
        where: the option or file of the requirements, for messages
        example: a requirement, for messages
        short: other names of figures
        listed: the figures in words, for messages; "" for all names
    """

    known: Mapping[str, Kind]
    where: str
    example: str
    short: Mapping[str, str] = field(default_factory=dict)
    listed: str = ""

    def parse(self, text: str) -> Requirement:
        """Parse a requirement; raises InputError with a suggestion for other texts."""
        match = _FORM.fullmatch(text)
        if match is None:
            message = f'"{text}" is not a requirement'
            raise InputError(
                message,
                self.where,
                f"write FIGURE OP NUMBER, for example {self.example}",
            )
        name, sign, digits, unit = match.groups()
        # Messages and JSON have the long name, whatever a person typed.
        name = self.short.get(name, name)
        if name not in self.known:
            message = (
                f'"{text}": there is no figure {name}{did_you_mean(name, self.known)}'
            )
            raise InputError(
                message, self.where, f"figures: {self.listed or ', '.join(self.known)}"
            )
        self._check_unit(text, name, unit)
        value = float(digits)
        # Too many digits make an infinity.
        if not math.isfinite(value):
            raise InputError(
                f'"{text}": the number is too large',
                self.where,
                f"for example {self.example}",
            )
        self._check_bare(name, sign, digits, value, unit)
        dimension = UNITS[unit or self.known[name].unit].dimension
        if value < 0 and dimension != SIGNED_DIMENSION:
            raise InputError(
                f'"{text}": {name} is never below 0',
                self.where,
                f"for example {self.example}",
            )
        return Requirement(
            text.strip(), name, sign if sign in _OPERATORS else "==", value, unit
        )

    def parse_all(self, texts: Iterable[str]) -> list[Requirement]:
        """Parse texts of several requirements each, separated by commas.

        Raises InputError.
        """
        requirements = []
        for text in texts:
            requirements += [self.parse(part) for part in text.split(",")]
        return requirements

    def _check_bare(
        self, name: str, sign: str, digits: str, value: float, unit: str
    ) -> None:
        """Raise InputError for a number that may lack its %.

        Zero is the same either way, and more than 100 cannot be a share.
        """
        kind = self.known[name]
        if unit or not kind.share or not 0 < value <= 100:
            return
        example = ""
        if kind.unit:
            dimension = UNITS[kind.unit].dimension
            example = f", or {name}{sign}{digits}{kind.unit} for {dimension}"
        message = (
            f"{name}{sign}{digits} has no unit, and {name} is mostly asked for as "
            "a "
            "percentage"
        )
        percent = f"{100 * value:g}" if value < 1 else digits
        raise InputError(message, self.where, f"write {name}{sign}{percent}%{example}")

    def _check_unit(self, text: str, name: str, unit: str) -> None:
        """Raise InputError for a unit that the figure cannot have."""
        kind = self.known[name]
        in_unit = f" in {kind.unit}" if kind.unit else ""
        remedy = "leave the unit out"
        units = [u for u in UNITS if u and kind.takes(u)]
        if units:
            remedy = f"use {', '.join(units)} or no unit"
        use = f"it is {UNITS[kind.unit].dimension}{in_unit}; {remedy}"

        if unit not in UNITS:
            guess = ""
            # "mb" or "Ms" may mean several units, so it is only a suggestion.
            for known_unit in UNITS:
                if known_unit.lower() == unit.lower():
                    guess = f'; did you mean "{known_unit}"?'
                    break
            raise InputError(
                f'"{text}": there is no unit {unit}{guess}',
                self.where,
                f"{name}: {use}",
            )
        if not kind.takes(unit):
            raise InputError(f'"{text}": {name} has no {unit}', self.where, use)


def by_network(
    texts: Iterable[str], networks: Iterable[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Split requirements on a cascade into those on the whole and on each network.

    A network's begin with its name, as in `mesh.p95<=9ms`, and are returned without.

    Args:
        texts: texts of several requirements each, separated by commas
        networks: the names of the networks
    """
    general: list[str] = []
    of_networks: dict[str, list[str]] = {name: [] for name in networks}
    for text in texts:
        for part in text.split(","):
            requirement = part.strip()
            prefix, _, rest = requirement.partition(".")
            if prefix in of_networks:
                of_networks[prefix].append(rest)
            else:
                general.append(requirement)
    return general, of_networks


def amount(value: float, unit: str) -> str:
    """Return a number and its unit, with four significant digits.

    There are more digits if rounding would hide that the number is not whole.
    """
    text = _number(value)
    return f"{text} {unit}" if unit else text


def _number(x: float) -> str:
    """Return a number without an exponent, unless it is very small."""
    # 99.99999 must not be shown as 100, which would seem to meet a limit.
    for digits in (4, 6, 9):
        text = f"{x:.{digits}g}"
        rounded = float(text)
        if rounded == x or not rounded.is_integer():
            break
    if "e" not in text:
        return text
    return f"{x:.0f}" if abs(x) >= 1 else f"{x:.2g}"
