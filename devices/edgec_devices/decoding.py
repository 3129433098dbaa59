"""JSON from outside as typed values: one place that says what is wrong with it, and where."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from edgec_runtime import InputError

_T = TypeVar("_T")


def from_json(data: bytes, kind: type[_T], what: str, at: str, hint: str) -> _T:
    """The value of this type: dataclasses, tuples, mappings and plain values; unknown keys are passed over.

    what: the thing that is read, for the message. Raises InputError for bytes that are no JSON, that lack a field, or
    have one of another type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise InputError(f"{what} is damaged: {e}", at=at, hint=hint) from e
