"""The kinds of values that may leave a machine.

A rule returns a value as it may be shared, and None in place of any other. No rule lets
a free text pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MAX_ROWS = 256
"""Rows of a list: longer ones are cut, as no network has so many segments."""

DIGITS = 6
"""Digits of a number that is no integer."""
MAX_WORDS = 8
"""Texts and numbers of a list that is a single value."""


@dataclass(frozen=True)
class SharedValue:
    """A field with a single value.

    Attributes:
        about: its meaning, for docs/measured.md.
        clean: returns a value as it may be shared, or None.
    """

    about: str
    clean: Callable[[Any], Any]


@dataclass(frozen=True)
class SharedRecord:
    """An object: each of its fields by name. Other fields do not pass."""

    fields: Mapping[str, SharedValue | SharedRecord | SharedList]

    def clean(self, value: Any) -> dict[str, Any] | None:
        """Return the fields that may be shared; None for anything but an object."""
        # A damaged file of a device may have anything in its place.
        if not isinstance(value, Mapping):
            return None
        # The listed fields are copied; whatever else is there stays behind.
        facts = {}
        for name, rule in self.fields.items():
            if name in value:
                facts[name] = rule.clean(value[name])
        return facts

    def paths(self, before: str = "") -> Iterator[tuple[str, str]]:
        """Yield the path and the meaning of each field with a value."""
        for name, rule in self.fields.items():
            path = f"{before}{name}"
            if isinstance(rule, SharedValue):
                yield path, rule.about
            elif isinstance(rule, SharedRecord):
                yield from rule.paths(f"{path}.")
            else:
                yield from rule.row.paths(f"{path}[].")


@dataclass(frozen=True)
class SharedList:
    """A list of objects."""

    row: SharedRecord

    def clean(self, value: Any) -> list[dict[str, Any]] | None:
        """Return the objects; None for anything but a list."""
        # Rows of another kind are left out, and the others keep their order.
        if not isinstance(value, (list, tuple)):
            return None
        rows = (self.row.clean(one) for one in value[:MAX_ROWS])
        return [row for row in rows if row is not None]


def number(about: str, low: float, high: float) -> SharedValue:
    """Return the rule of a number within bounds."""

    # Serial numbers and addresses are numbers too, but larger ones.
    def clean(value: Any) -> Any:
        # True is an int in Python.
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if not math.isfinite(value) or not low <= value <= high:
            return None
        # More digits of a time say nothing.
        return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value

    return SharedValue(about, clean)


def flag(about: str) -> SharedValue:
    """Return the rule of true and false."""
    return SharedValue(about, lambda value: value if isinstance(value, bool) else None)


def choice(about: str, words: Callable[[], Collection[str]]) -> SharedValue:
    """Return the rule of a text that is one of some words; any other is "other"."""

    def clean(value: Any) -> Any:
        # An unknown fact is "" or None; an unknown word is a fact all the same.
        if not isinstance(value, str) or not value:
            return None
        return value if value in words() else "other"

    return SharedValue(about, clean)


def choices(about: str, words: Callable[[], Collection[str]]) -> SharedValue:
    """Return the rule of a list of such texts."""
    one = choice("", words)

    def clean(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return None
        return [one.clean(element) for element in value[:MAX_WORDS]]

    return SharedValue(about, clean)


def form(about: str, pattern: str) -> SharedValue:
    """Return the rule of a text that begins in a fixed form; the rest is cut off."""
    # A kernel's version may go on with a name of its builder's choice. Digits of other
    # scripts are no digits of a version.
    fixed = re.compile(pattern, re.ASCII)

    def clean(value: Any) -> Any:
        match = fixed.match(value) if isinstance(value, str) else None
        return match.group() if match else None

    return SharedValue(about, clean)


def numbers(about: str, high: float) -> SharedValue:
    """Return the rule of a short list of numbers from 0 to `high`."""
    one = number("", 0, high)

    def clean(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return None
        return [one.clean(element) for element in value[:MAX_WORDS]]

    return SharedValue(about, clean)
