"""The attributes of a node of a model file, with a record of those that were read.

An attribute that no reader looks at would be ignored in silence: it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


class Attributes(Mapping[str, Any]):
    """Attributes by name, a mapping that records which of them were read.

    A missing attribute is a KeyError, as in every mapping; the defaults of the format's
    schema serve `check` alone.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Hold the attributes of a node, and the schema's defaults by name."""
        self._attributes = dict(given)
        self._defaults = dict(defaults or {})
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """Return an attribute, and record that it was read."""
        self._read.add(name)
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the attributes, without reading them."""
        return iter(self._attributes)

    def __len__(self) -> int:
        """Return the number of attributes."""
        return len(self._attributes)

    def ignore(self, *names: str) -> None:
        """Record attributes as read: they have no effect here, whatever their value."""
        self._read.update(names)

    def check(self) -> None:
        """Raise ValueError for an unread attribute without its default value."""
        # An attribute at its default has no effect.
        for name, value in self._attributes.items():
            if name not in self._read and not self._is_default(name, value):
                raise unread(name, value)

    def _is_default(self, name: str, value: Any) -> bool:
        """Return whether a value is the schema's default, element by element."""
        if name not in self._defaults:
            return False

        # Attributes may be numbers, texts or arrays.
        default = np.asarray(self._defaults[name])
        return bool(np.array_equal(np.asarray(value), default))


class TfliteOptions(Attributes):
    """A TFLite options table, whose fields are read as Python attributes."""

    def __getattr__(self, name: str) -> Any:
        """Return a field, and record that it was read."""
        # A missing attribute must be an AttributeError for getattr's default.
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the options have no field {name}") from None

    @classmethod
    def of(cls, table: Any) -> TfliteOptions:
        """Return the fields of an object of TFLite's generated schema.

        An object without content has the defaults.
        """
        fields = vars(table)
        defaults = vars(type(table)())

        return cls(fields, defaults)


def unread(name: str, value: Any) -> ValueError:
    """Return the error for an attribute that no reader looks at."""
    return ValueError(
        f"edgec does not know the attribute {name} (here {_short(value)})"
    )


MAX_VALUE_LENGTH = 40
"""Characters of an attribute's value in a message."""


def _short(value: Any) -> str:
    """Return a value as text, cut off to fit in a message."""
    # Attributes may be whole tensors.
    text = str(value)
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    return f"{text[: MAX_VALUE_LENGTH - 1]}…"
