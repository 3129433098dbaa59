"""JSON and TOML from outside as typed values, within bounds: one place that says what
is wrong with them, and where.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.disk import given

_T = TypeVar("_T")

LARGEST_JSON = 256 << 20
"""Bytes of a file of JSON that somebody gives."""
LARGEST_TOML = 256 << 10
LONGEST_LINE = 2000
"""Bytes of a TOML file and characters of its lines: the reader's time grows with the
cube of a dotted key's length.
"""


def from_json(
    data: bytes,
    kind: type[_T],
    what: str,
    at: str,
    hint: str,
    error: type[InputError | DeviceError] = InputError,
) -> _T:
    """The value of this type: dataclasses, tuples, mappings and plain values; unknown
    keys are passed over.

    what: the thing that is read, for the message. Raises `error` for bytes that are no
    JSON, that lack a field, or have one of another type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as e:
        raise error(f"{what} is damaged: {_told(e)}", at=at, hint=hint) from e


def from_toml(path: Path, kind: type[_T], hint: str = "correct it") -> _T:
    """The same of a TOML file that a person writes.

    Raises FileNotFoundError where it is not, and InputError.
    """
    try:
        text = given(path, LARGEST_TOML).decode()
        longest = max(map(len, text.splitlines()), default=0)
        if longest > LONGEST_LINE:
            raise ValueError(
                f"it has a line of {longest} characters, more than {LONGEST_LINE}"
            )
        return msgspec.toml.decode(text, type=kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as e:
        # of ValueError are those of tomllib, msgspec and UTF-8
        raise InputError(
            f"cannot read {path.name}: {_told(e)}", at=str(path), hint=hint
        ) from e


def _told(e: BaseException) -> str:
    """In the words of the reader; Python's own for what nests too deep names Python's
    stack.
    """
    if isinstance(e, RecursionError):
        return "it is nested too deep"
    if isinstance(e, OSError):
        return e.strerror or str(e)
    return "it is larger than memory" if isinstance(e, MemoryError) else str(e)
