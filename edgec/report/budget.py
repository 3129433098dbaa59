"""Requirements on reported figures, as people write them: `tpu.macs>=95%`, `ms<=12.5ms`, `cpu.ops==0`.

One grammar for every verb: FIGURE OP NUMBER [UNIT]. OP is >=, <=, >, <, == or =. UNIT is % (of the whole that the
figure is a part of) or ms; without one the number is in the figure's own unit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from edgec.errors import InputError, did_you_mean

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(>=|<=|==|=|>|<)\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+))\s*(\S*)\s*")
_UNITS = ("", "%", "ms")
_EXAMPLES = "for example tpu.macs>=95%, cpu.ops<=3 or ms<=12.5ms"


@dataclass(frozen=True)
class Figure:
    """One reported number.

    unit: "" for a count, "ms", or "%". whole: what it is a part of, so that a share can be asked for; None: of nothing.
    culprit: what stands in the way of a better number, in words; empty when nothing does.
    """

    value: float
    unit: str = ""
    whole: float | None = None
    culprit: str = ""

    def measured(self, unit: str) -> float | None:
        """The number in `unit`; None if it has no such form. Of nothing, nothing is a part: 0 %."""
        if unit == "%" and self.unit != "%":
            return None if self.whole is None else 100.0 * self.value / self.whole if self.whole else 0.0
        return self.value if unit in ("", self.unit) else None


@dataclass(frozen=True)
class Outcome:
    """A requirement and what was measured; margin: how far on the right side, in the same unit (negative: missed)."""

    text: str
    measured: float
    unit: str
    margin: float
    holds: bool
    culprit: str

    def line(self) -> str:
        """One line for a terminal: the value, the requirement, the margin, and what stands in the way."""
        unit = f" {self.unit}" if self.unit else ""
        word = "holds" if self.holds else "MISSED"
        line = f"{word:<6}  {self.text}: {_number(self.measured)}{unit}, margin {_number(self.margin)}{unit}"
        return line if self.holds or not self.culprit else f"{line}; in the way: {self.culprit}"


@dataclass(frozen=True)
class Requirement:
    """One expression, parsed. unit: as written, "" if none."""

    text: str
    figure: str
    operator: str
    value: float
    unit: str

    @staticmethod
    def parse(text: str, known: Collection[str], option: str, short: Mapping[str, str] | None = None) -> Requirement:
        """The requirement that `text` states on one of the `known` figures.

        short: other names of figures. option: the flag that gave it, for messages. Raises InputError.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise InputError(f'"{text}" is not a requirement', option, f"write FIGURE OP NUMBER, {_EXAMPLES}")
        name, sign, number, unit = match.groups()
        name = (short or {}).get(name, name)
        if name not in known:
            what = f'"{text}": there is no figure {name}{did_you_mean(name, known)}'
            raise InputError(what, option, f"figures: {', '.join(known)}")
        if unit not in _UNITS:
            raise InputError(f'"{text}": there is no unit {unit}', option, "units: % and ms, or none")
        return Requirement(text.strip(), name, sign if sign in _OPERATORS else "==", float(number), unit)

    def check(self, figures: Mapping[str, Figure], option: str) -> Outcome:
        """Whether it holds. Raises InputError when the figure has no such unit."""
        figure = figures[self.figure]
        measured, unit = figure.measured(self.unit), self.unit or figure.unit
        if measured is None:
            own = f"it is in {figure.unit}" if figure.unit else "it is a count"
            raise InputError(f'"{self.text}": {self.figure} has no {self.unit}', option, f"{own}; leave the unit out")
        gap = measured - self.value
        if abs(gap) < 1e-9 * max(1.0, abs(self.value)):  # 29 of 29 is 100 %, however it was divided
            gap = 0.0
        holds = _OPERATORS[self.operator](gap, 0.0)
        margin = gap if self.operator in (">=", ">") else -gap if self.operator in ("<=", "<") else -abs(gap)
        return Outcome(self.text, measured, unit, margin + 0.0, holds, "" if holds else figure.culprit)


def _number(x: float) -> str:
    """Four significant digits, and more where rounding would hide that it is not a whole number."""
    for digits in (4, 6, 9):
        text = f"{x:.{digits}g}"
        if (float(text) == x) or not float(text).is_integer():
            break
    return text if "e" not in text else f"{x:,.0f}".replace(",", "") if abs(x) >= 1 else f"{x:.2g}"
