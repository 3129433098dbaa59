"""The attributes of a file's node, which remember who looked at them: one that no
reader looks at is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class Attributes(Mapping[str, Any]):
    """Attributes by name, and the defaults of the format's schema for those that have
    one.
    """

    def __init__(
        self, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._given = dict(given)
        self._defaults = dict(defaults or {})
        self._seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._seen.add(name)
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def ignore(self, *names: str) -> None:
        """Let these be whatever they are: they have no effect here."""
        self._seen.update(names)

    def check(self) -> None:
        """Raise ValueError for an attribute that nobody looked at and whose value is
        not the schema's default.
        """
        for name, value in self._given.items():
            default = self._defaults.get(name)
            usual = name in self._defaults and np.array_equal(
                np.asarray(value), np.asarray(default)
            )
            if name not in self._seen and not usual:
                raise unread(name, value)


class TfliteOptions(Attributes):
    """A TFLite options table, whose fields are read as Python's attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the options have no field {name}") from None

    @classmethod
    def of(cls, table: Any) -> TfliteOptions:
        """The fields of an object of TFLite's generated schema."""
        return cls(vars(table), vars(type(table)()))


def unread(name: str, value: Any) -> ValueError:
    """What is said of an attribute that nobody looked at."""
    return ValueError(
        f"edgec does not know the attribute {name} (here {_short(value)})"
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
