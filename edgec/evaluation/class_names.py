"""Finds the classes of a bundle by the names that a data set gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from edgec.errors import InputError, did_you_mean
from edgec.evaluation.label_files import MOST_NAMED, shortened

_MOST_DIGITS = 9
"""Of the number of a class."""


@dataclass(frozen=True)
class ClassNames:
    """The classes of a network.

    Attributes:
        count: how many there are
        labels: their names; empty where the bundle has none
    """

    count: int
    labels: Sequence[str] = ()

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The number of each class by its plain name; of equal names the first."""
        numbers: dict[str, int] = {}
        for i, label in enumerate(self.labels):
            numbers.setdefault(_plain(label), i)
        return numbers

    def index(self, name: str) -> int | None:
        """Return the number of the class with a name, or of a number; None for neither.

        Case, "_" and "-" in place of spaces make no difference.
        """
        number = self._numbers.get(_plain(name))
        if number is not None:
            return number
        # A class may be called 7: its name goes before its number.
        return class_number(name, self.count)

    def indices(self, names: Iterable[str], at: str) -> dict[str, int]:
        """Return the number of each class by the name that a data set gives it.

        at: the file or folder with the names. Raises InputError that names all unknown
        ones.
        """
        numbers: dict[str, int] = {}
        unknown: list[str] = []
        for name in dict.fromkeys(names):
            number = self.index(name)
            if number is None:
                unknown.append(name)
            else:
                numbers[name] = number

        if unknown:
            raise self._unknown(unknown, at)
        return numbers

    def label(self, index: int) -> str:
        """Return the name of a class."""
        if 0 <= index < len(self.labels):
            return self.labels[index]
        return f"class {index}"

    def _unknown(self, names: Sequence[str], at: str) -> InputError:
        """Return the error about names that are of no class."""
        texts = []
        for name in names[:MOST_NAMED]:
            guess = did_you_mean(name, self.labels).lstrip("; ")
            text = f'"{shortened(name)}"'
            texts.append(f"{text} ({guess})" if guess else text)
        rest = len(names) - len(texts)
        more = f" and {rest} more" if rest else ""
        one = len(names) == 1
        message = f"the bundle has no class {', '.join(texts)}{more}"

        # A bundle without labels knows numbers alone.
        known = f"0 to {self.count - 1}"
        if self.labels:
            known = f"{', '.join(self.labels[:MOST_NAMED])}, …, or {known}"
        thing = "it" if one else "them"
        return InputError(message, at, f"call {thing} as the bundle does: {known}")


def class_number(text: str, count: int) -> int | None:
    """Return the number below `count` that a text is; None for any other text."""
    digits = text.strip()
    # Python reads no numbers of thousands of digits.
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    number = int(digits)
    return number if number < count else None


def _plain(name: str) -> str:
    """Return a name without case, and with spaces alone between its words."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())
