"""Requirements on figures, as people write them: `p95<=33ms`, `rss <= 80 MB`,
`tpu.macs>=95%`, `throttled==0`.

One grammar for `explain --require`, `flash --health` and the budgets of `bench`: FIGURE
OP NUMBER [UNIT]. OP is >=, <=, >, <, == or =. Without a unit the number is in the
figure's own; with one, the unit must be of the figure's dimension, or % of the whole
that the figure is a part of. A bare number up to 100 is refused where a share is what
people ask for: `tpu.macs>=95` would always hold. Nothing in it is a comma, so commas
may separate several.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgec_runtime import InputError
from edgec_runtime.errors import did_you_mean

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*(>=|<=|==|=|>|<)\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([^\s,]*)\s*"
)


@dataclass(frozen=True)
class Unit:
    """dimension: in words. factor: how many of the dimension's first unit it is."""

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
    "fps": Unit("a rate", 1),
    "/s": Unit("a rate", 1),
    "C": Unit("a temperature", 1),
    "°C": Unit("a temperature", 1),
    "MHz": Unit("a frequency", 1),
    "GHz": Unit("a frequency", 1e3),
}
"""By how they are written. kB, MB and GB are decimal."""

_SIGNED = "a temperature"  # the only dimension that goes below 0


@dataclass(frozen=True)
class Kind:
    """What is known of a figure before there is one.

    unit: of UNITS. part: of a whole, so a share can be asked for. share: that is how it
    is mostly asked for, so that a number without a unit is taken for a forgotten %.
    """

    unit: str = ""
    part: bool = False
    share: bool = False

    def takes(self, unit: str) -> bool:
        """Whether a number in this unit, one of UNITS, can be compared with it."""
        return (
            unit == ""
            or (unit == "%" and self.part)
            or UNITS[unit].dimension == UNITS[self.unit].dimension
        )


@dataclass(frozen=True)
class Figure:
    """One number, measured or, if `estimated`, not on the hardware that it speaks of.

    unit: of UNITS. whole: what it is a part of, in the same unit; None: of nothing.
    culprit: what stands in the way of a better number, in words; empty when nothing
    does.
    """

    value: float
    unit: str = ""
    whole: float | None = None
    culprit: str = ""
    estimated: bool = False

    def measured(self, unit: str) -> float:
        """The number in `unit`, which its Kind takes.

        Of nothing, nothing is a part: 0 %.
        """
        if unit == "%" and self.unit != "%":
            return 100.0 * self.value / self.whole if self.whole else 0.0
        return self.value * UNITS[self.unit].factor / UNITS[unit or self.unit].factor


@dataclass(frozen=True)
class RequirementOutcome:
    """A requirement and what was measured; margin: how far on the right side, in the
    same unit (negative: missed).
    """

    text: str
    measured: float
    unit: str
    margin: float
    holds: bool
    culprit: str

    def line(self) -> str:
        """One line for a terminal: the value, the requirement, the margin, and what
        stands in the way.
        """
        word = "holds" if self.holds else "MISSED"
        line = (
            f"{word:<6}  {self.text}: {amount(self.measured, self.unit)}, "
            "margin "
            f"{amount(self.margin, self.unit)}"
        )
        if self.holds or not self.culprit:
            return line
        return f"{line}; in the way: {self.culprit}"


@dataclass(frozen=True)
class Requirement:
    """One expression, parsed. unit: as written, "" if none; the figure takes it."""

    text: str
    figure: str
    operator: str
    value: float
    unit: str

    def check(self, figure: Figure) -> RequirementOutcome:
        """Whether it holds of its figure."""
        measured = figure.measured(self.unit)
        gap = measured - self.value
        # 29 of 29 is 100 %, however it was divided
        if abs(gap) < 1e-9 * max(1.0, abs(self.value)):
            gap = 0.0
        holds = _OPERATORS[self.operator](gap, 0.0)
        if self.operator in (">=", ">"):
            margin = gap
        else:
            margin = -gap if self.operator in ("<=", "<") else -abs(gap)
        culprit = "" if holds else figure.culprit
        return RequirementOutcome(
            self.text, measured, self.unit or figure.unit, margin + 0.0, holds, culprit
        )


@dataclass(frozen=True)
class Vocabulary:
    """The figures that can be asked for in one place.

    where: the option or the file that states the requirements, for messages. short:
    other names of figures. listed: the figures in words, for messages; empty: all their
    names. example: a requirement.
    """

    known: Mapping[str, Kind]
    where: str
    example: str
    short: Mapping[str, str] = field(default_factory=dict)
    listed: str = ""

    def parse(self, text: str) -> Requirement:
        """The requirement that `text` states.

        Raises InputError for anything else, with what it could have been.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            what = f'"{text}" is not a requirement'
            raise InputError(
                what, self.where, f"write FIGURE OP NUMBER, for example {self.example}"
            )
        name, sign, digits, unit = match.groups()
        name = self.short.get(name, name)
        if name not in self.known:
            what = (
                f'"{text}": there is no figure {name}{did_you_mean(name, self.known)}'
            )
            raise InputError(
                what, self.where, f"figures: {self.listed or ', '.join(self.known)}"
            )
        self._check_unit(text, name, unit)
        value = float(digits)
        if not math.isfinite(value):
            raise InputError(
                f'"{text}": the number is too large',
                self.where,
                f"for example {self.example}",
            )
        self._check_bare(name, sign, digits, value, unit)
        if value < 0 and UNITS[unit or self.known[name].unit].dimension != _SIGNED:
            raise InputError(
                f'"{text}": {name} is never below 0',
                self.where,
                f"for example {self.example}",
            )
        return Requirement(
            text.strip(), name, sign if sign in _OPERATORS else "==", value, unit
        )

    def parse_all(self, texts: Iterable[str]) -> list[Requirement]:
        """Of texts that may each hold several, separated by commas.

        Raises InputError.
        """
        return [self.parse(one) for text in texts for one in text.split(",")]

    def _check_bare(
        self, name: str, sign: str, digits: str, value: float, unit: str
    ) -> None:
        """A number that may lack its %.

        Zero is the same either way, and more than 100 cannot be a share.
        """
        kind = self.known[name]
        if unit or not kind.share or not 0 < value <= 100:
            return
        if kind.unit:
            own = (
                f", or {name}{sign}{digits}{kind.unit} for {UNITS[kind.unit].dimension}"
            )
        else:
            own = ""
        what = (
            f"{name}{sign}{digits} has no unit, and {name} is mostly asked for as "
            "a "
            "percentage"
        )
        percent = f"{100 * value:g}" if value < 1 else digits
        raise InputError(what, self.where, f"write {name}{sign}{percent}%{own}")

    def _check_unit(self, text: str, name: str, unit: str) -> None:
        kind = self.known[name]
        own = UNITS[kind.unit].dimension
        able = [u for u in UNITS if u and kind.takes(u)]
        use = f"it is {own}{f' in {kind.unit}' if kind.unit else ''}; " + (
            f"use {', '.join(able)} or no unit" if able else "leave the unit out"
        )
        if unit not in UNITS:
            meant = next((u for u in UNITS if u.lower() == unit.lower()), None)
            guess = f'; did you mean "{meant}"?' if meant else ""
            raise InputError(
                f'"{text}": there is no unit {unit}{guess}',
                self.where,
                f"{name}: {use}",
            )
        if not kind.takes(unit):
            raise InputError(f'"{text}": {name} has no {unit}', self.where, use)


def amount(value: float, unit: str) -> str:
    """A number and its unit: four significant digits, and more where rounding would
    hide that it is not whole.
    """
    text = _number(value)
    return f"{text} {unit}" if unit else text


def _number(x: float) -> str:
    for digits in (4, 6, 9):
        text = f"{x:.{digits}g}"
        if (float(text) == x) or not float(text).is_integer():
            break
    return text if "e" not in text else f"{x:.0f}" if abs(x) >= 1 else f"{x:.2g}"
