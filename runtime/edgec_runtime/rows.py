"""Rows: frozen dataclasses that are read from JSON or TOML, checked, and described.

`parameter` declares a field with its text, default and limits. `read` makes a row from a
decoded object, and names a wrong value; `plain` is the inverse, and `schema` returns the
JSON schema.
"""

from __future__ import annotations

import math
import types
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import (
    Any,
    Dict,
    List,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import InputError, did_you_mean

_R = TypeVar("_R")
_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number"}
_UNIONS = (Union, getattr(types, "UnionType", Union))
"""Origins of unions; Python 3.9 has one of them."""
MAX_ENTRIES = 4096
"""Largest number of entries of a list in a row; a longer one should be a file."""


def parameter(
    text: str,
    default: Any = MISSING,
    *,
    choices: Tuple[str, ...] = (),
    low: Optional[float] = None,
    high: Optional[float] = None,
) -> Any:
    """Return a field of a row.

    Args:
        text: its meaning, for messages and the schema
        default: its default; a field without one is required
        choices: the allowed strings
        low: the least number
        high: the largest number; all three also hold for each entry of a list
    """
    limits = {"text": text, "choices": choices, "low": low, "high": high}
    return field(default=default, metadata=limits)


def read(row: Type[_R], value: Any, at: str) -> _R:
    """Return a row of a decoded JSON object.

    Args:
        row: the class of the row
        value: the object
        at: its name in messages

    Raises:
        InputError: it is not an object, or has a wrong field
    """
    if not isinstance(value, Mapping):
        raise InputError(
            f"{at} is not an object: {value!r:.80}", hint="see docs/tasks.md"
        )

    # Annotations are strings, which get_type_hints resolves in the class's module.
    kinds = get_type_hints(row)
    known = {f.name: f for f in fields(row)}  # type: ignore[arg-type]
    for key in value:
        if key not in known:
            what = f'{at} has no "{key!s:.40}"{did_you_mean(str(key), known)}'
            raise InputError(what, hint="it may have " + ", ".join(known))

    arguments: Dict[str, Any] = {}
    for name, f in known.items():
        # null stands for the default.
        if value.get(name) is not None:
            arguments[name] = _value(kinds[name], value[name], f, f"{at}.{name}")
        elif f.default is MISSING:
            raise InputError(
                f'{at} lacks "{name}"', hint=f"{name}: {f.metadata['text']}"
            )
    return row(**arguments)


def _value(kind: Any, value: Any, f: Field[Any], at: str) -> Any:
    """Return a value as the type of a field.

    Args:
        kind: the type
        value: the decoded value
        f: the field, with its limits
        at: the name of the value in messages
    """
    kind = _inner(kind)
    if is_dataclass(kind):
        return read(kind, value, at)  # type: ignore[arg-type]
    if get_origin(kind) is tuple:
        return _entries(get_args(kind)[0], value, f, at)
    if not _is_of(kind, value):
        raise _wrong(at, value, f"a{'n' if kind is int else ''} {_NAMES[kind]}", f)

    _check_limits(value, f, at)
    # An integer is also valid for a float, and is converted.
    return kind(value)


def _check_limits(value: Any, f: Field[Any], at: str) -> None:
    """Raise InputError for a value outside the limits of its field."""
    choices = f.metadata["choices"]
    if choices and value not in choices:
        raise _wrong(at, value, " or ".join(choices), f)
    low = f.metadata["low"]
    high = f.metadata["high"]
    is_low = low is not None and value < low
    is_high = high is not None and value > high
    if is_low or is_high:
        raise _wrong(at, value, " and ".join(_limits(low, high)), f)


def _entries(kind: Any, value: Any, f: Field[Any], at: str) -> Tuple[Any, ...]:
    """Return a list of values of one type."""
    # TOML's reader makes lists, and a default is a tuple.
    if not isinstance(value, (list, tuple)) or len(value) > MAX_ENTRIES:
        raise _wrong(at, value, f"a list of at most {MAX_ENTRIES}", f)

    entries: List[Any] = []
    for i, entry in enumerate(value):
        entries.append(_value(kind, entry, f, f"{at}[{i}]"))
    return tuple(entries)


def _is_of(kind: Any, value: Any) -> bool:
    """Return whether a value is of a simple type."""
    # A bool is an int in Python, but not in JSON.
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is float:
        # JSON has integers for whole reals; infinity would pass every limit's test.
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, kind)


def _inner(kind: Any) -> Any:
    """Return X of Optional[X] or X | None, any other type as it is."""
    # Rows have no other unions.
    if get_origin(kind) in _UNIONS:
        return next(k for k in get_args(kind) if k is not type(None))
    return kind


def _limits(low: Optional[float], high: Optional[float]) -> List[str]:
    """Return limits in words."""
    limits: List[str] = []
    if low is not None:
        limits.append(f"at least {low:g}")
    if high is not None:
        limits.append(f"at most {high:g}")
    return limits


def _wrong(at: str, value: Any, wanted: str, f: Field[Any]) -> InputError:
    """Return the error for a value.

    Args:
        at: its name
        value: the value
        wanted: what it should be
        f: its field
    """
    return InputError(
        f"{at} is {value!r:.80}, not {wanted}", hint=f"{f.name}: {f.metadata['text']}"
    )


def plain(row: Any) -> Any:
    """Return a row in JSON's types, without fields that have their default."""
    if is_dataclass(row):
        values: Dict[str, Any] = {}
        for f in fields(row):
            value = getattr(row, f.name)
            if value != f.default:
                values[f.name] = plain(value)
        return values
    if isinstance(row, tuple):
        return [plain(v) for v in row]
    return row


def schema(row: Any) -> Dict[str, Any]:
    """Return the JSON schema of a class of rows."""
    kinds = get_type_hints(row)
    properties: Dict[str, Any] = {}
    for f in fields(row):
        described = _schema_of(kinds[f.name], f)
        described["description"] = f.metadata["text"]
        # An empty default says nothing that the type does not.
        if f.default not in (MISSING, None, ()):
            described["default"] = plain(f.default)
        properties[f.name] = described

    required = [f.name for f in fields(row) if f.default is MISSING]

    # `read` refuses what it does not know, so the schema does as well.
    result: Dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if required:
        result["required"] = required
    return result


def _schema_of(kind: Any, f: Field[Any]) -> Dict[str, Any]:
    """Return the JSON schema of a type, with the limits of a field."""
    kind = _inner(kind)
    if is_dataclass(kind):
        return schema(kind)
    if get_origin(kind) is tuple:
        return {
            "type": "array",
            "items": _schema_of(get_args(kind)[0], f),
            "maxItems": MAX_ENTRIES,
        }

    described: Dict[str, Any] = {"type": _NAMES[kind]}
    if f.metadata["choices"]:
        described["enum"] = list(f.metadata["choices"])
    for key, word in (("low", "minimum"), ("high", "maximum")):
        if f.metadata[key] is not None:
            described[word] = f.metadata[key]
    return described
