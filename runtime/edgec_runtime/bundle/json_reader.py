"""Reads typed values from JSON that is not trusted."""

from __future__ import annotations

from typing import Any, Dict, List, NoReturn, Tuple, Type, TypeVar

from ..errors import BundleError

MAX_COUNT = 1 << 50
"""The largest count of anything in a bundle."""
MAX_NUMBER = 1e300
"""Largest absolute value; the first product of a larger one would overflow."""

_N = TypeVar("_N", int, float)


class JsonReader:
    """Reads typed values from an object of JSON, and raises BundleError for a wrong one.

    Attributes:
        where: the place of the object in the manifest, for messages
        value: the object
    """

    def __init__(self, value: Any, where: str) -> None:
        """Read an object.

        Raises:
            BundleError: the value is not an object
        """
        self.where = where
        if not isinstance(value, dict):
            self.bad("is not an object", value)
        self.value: Dict[str, Any] = value

    def bad(self, what: str, seen: Any = None) -> NoReturn:
        """Raise BundleError.

        Args:
            what: the fault, a clause
            seen: the wrong value
        """
        text = "" if seen is None else f": {seen!r:.80}"
        raise BundleError(
            f"the manifest's {self.where} {what}{text}",
            at="manifest.json",
            hint="compile the model again with the same version of edgec",
        )

    def get(self, key: str, kind: Any, default: Any = ...) -> Any:
        """Return a value of a type, or of one of several.

        Args:
            key: its key
            kind: the type, or a tuple of types
            default: replaces a missing value and null; without one they are wrong
        """
        is_missing = key not in self.value
        if is_missing and default is ...:
            self.bad(f'has no "{key}"')
        if is_missing or (self.value[key] is None and default is not ...):
            return default

        value = self.value[key]
        # A bool is an int in Python.
        is_stray_bool = isinstance(value, bool) and kind is not bool
        if not isinstance(value, kind) or is_stray_bool:
            self.bad(f'has an impossible "{key}"', value)
        return value

    def count(self, key: str, default: Any = ...) -> int:
        """Return an integer that counts something."""
        number: int = self.get(key, int, default)
        if not 0 <= number <= MAX_COUNT:
            self.bad(f'has an impossible "{key}"', number)
        return number

    def strings(self, key: str) -> Tuple[str, ...]:
        """Return a list of strings."""
        strings = self.get(key, list)
        if not all(isinstance(s, str) for s in strings):
            self.bad(f'has an impossible "{key}"', strings)
        return tuple(strings)

    def numbers(self, key: str, kind: Type[_N]) -> Tuple[_N, ...]:
        """Return a list of finite numbers; integers count as floats, too."""
        numbers = self.get(key, list)
        if not all(type(n) in (int, kind) and abs(n) < MAX_NUMBER for n in numbers):
            self.bad(f'has an impossible "{key}"', numbers)
        return tuple(kind(n) for n in numbers)

    def members(self, key: str) -> List[Tuple[str, JsonReader]]:
        """Return the objects in an object, by name."""
        members: List[Tuple[str, JsonReader]] = []
        for name, value in self.get(key, dict).items():
            members.append((name, JsonReader(value, f'{key} "{name}"')))
        return members
