"""Rows: frozen dataclasses that are read from JSON or TOML, checked, and described by a
JSON schema.

A field is declared once, with `said`: its text, its default and its limits. `read`
makes a row of a decoded object and says which value is wrong, `plain` turns it back,
`schema` describes it.
"""

from __future__ import annotations

import math
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
MAX_ENTRIES = 4096
"""Of a list in a row: what is longer belongs into a file."""


def said(
    text: str,
    default: Any = MISSING,
    *,
    choices: Tuple[str, ...] = (),
    low: Optional[float] = None,
    high: Optional[float] = None,
) -> Any:
    """A field of a row.  choices, low, high: of a string, of a number, or of each of a
    list.
    """
    limits = {"text": text, "choices": choices, "low": low, "high": high}
    return field(default=default, metadata=limits)


def read(row: Type[_R], value: Any, at: str) -> _R:
    """A row of a decoded JSON object.  at: what a message calls it.

    Raises InputError.
    """
    if not isinstance(value, Mapping):
        raise InputError(
            f"{at} is not an object: {value!r:.80}", hint="see docs/tasks.md"
        )
    kinds = get_type_hints(row)
    known = {f.name: f for f in fields(row)}  # type: ignore[arg-type]
    for key in value:
        if key not in known:
            what = f'{at} has no "{key!s:.40}"{did_you_mean(str(key), known)}'
            raise InputError(what, hint="it may have " + ", ".join(known))
    found: Dict[str, Any] = {}
    for name, f in known.items():
        if value.get(name) is not None:
            found[name] = _value(kinds[name], value[name], f, f"{at}.{name}")
        elif f.default is MISSING:
            raise InputError(
                f'{at} lacks "{name}"', hint=f"{name}: {f.metadata['text']}"
            )
    return row(**found)


def _value(kind: Any, value: Any, f: Field[Any], at: str) -> Any:
    kind = _inner(kind)
    if is_dataclass(kind):
        return read(kind, value, at)  # type: ignore[arg-type]
    if get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)) or len(value) > MAX_ENTRIES:
            raise _wrong(at, value, f"a list of at most {MAX_ENTRIES}", f)
        return tuple(
            _value(get_args(kind)[0], v, f, f"{at}[{i}]") for i, v in enumerate(value)
        )
    right = isinstance(value, (int, float) if kind is float else kind) and (
        kind is bool
    ) == isinstance(value, bool)
    if not right or (kind is float and not math.isfinite(value)):
        raise _wrong(at, value, f"a{'n' if kind is int else ''} {_NAMES[kind]}", f)
    choices = f.metadata["choices"]
    low = f.metadata["low"]
    high = f.metadata["high"]
    if choices and value not in choices:
        raise _wrong(at, value, " or ".join(choices), f)
    if (low is not None and value < low) or (high is not None and value > high):
        raise _wrong(at, value, " and ".join(_limits(low, high)), f)
    return kind(value)


def _inner(kind: Any) -> Any:
    """Of Optional[X], X."""
    if get_origin(kind) is Union:
        return next(k for k in get_args(kind) if k is not type(None))
    return kind


def _limits(low: Optional[float], high: Optional[float]) -> List[str]:
    return [
        f"{word} {n:g}"
        for word, n in (("at least", low), ("at most", high))
        if n is not None
    ]


def _wrong(at: str, value: Any, wanted: str, f: Field[Any]) -> InputError:
    return InputError(
        f"{at} is {value!r:.80}, not {wanted}", hint=f"{f.name}: {f.metadata['text']}"
    )


def plain(row: Any) -> Any:
    """As JSON has it, without what is as by default."""
    if is_dataclass(row):
        return {
            f.name: plain(getattr(row, f.name))
            for f in fields(row)
            if getattr(row, f.name) != f.default
        }
    return [plain(v) for v in row] if isinstance(row, tuple) else row


def schema(row: Any) -> Dict[str, Any]:
    """The JSON schema of a row."""
    kinds = get_type_hints(row)
    properties = {}
    for f in fields(row):
        told: Dict[str, Any] = {"description": f.metadata["text"]}
        if f.default not in (MISSING, None, ()):
            told["default"] = plain(f.default)
        properties[f.name] = {**_schema_of(_inner(kinds[f.name]), f), **told}
    required = [f.name for f in fields(row) if f.default is MISSING]
    more: Dict[str, Any] = {"required": required} if required else {}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **more,
    }


def _schema_of(kind: Any, f: Field[Any]) -> Dict[str, Any]:
    kind = _inner(kind)
    if is_dataclass(kind):
        return schema(kind)
    if get_origin(kind) is tuple:
        return {
            "type": "array",
            "items": _schema_of(get_args(kind)[0], f),
            "maxItems": MAX_ENTRIES,
        }
    found: Dict[str, Any] = {"type": _NAMES[kind]}
    names = {"choices": "enum", "low": "minimum", "high": "maximum"}
    for key, word in names.items():
        if f.metadata[key] not in (None, ()):
            found[word] = list(f.metadata[key]) if key == "choices" else f.metadata[key]
    return found
