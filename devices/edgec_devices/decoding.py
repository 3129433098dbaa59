"""Decodes JSON and TOML from outside as typed values, within bounds.

Errors say what is wrong and where.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.disk import given

_T = TypeVar("_T")

LARGEST_JSON = 256 << 20
"""Bytes of a JSON file from outside."""
LARGEST_TOML = 256 << 10
LONGEST_LINE = 2000
"""Bytes of a TOML file and characters of its lines: the time of the parser grows with
the cube of a dotted key's length.
"""


def from_json(
    data: bytes,
    kind: type[_T],
    what: str,
    at: str,
    hint: str,
    error: type[InputError | DeviceError] = InputError,
) -> _T:
    """Decode a value of type `kind`; unknown keys are ignored.

    Raises `error` for bytes that are no JSON, that lack a field, or have one of another
    type.

    Args:
        data: the JSON
        kind: a dataclass, tuple, mapping or plain type
        what: description of the data, for the message
        at: place of the data, for the message
        hint: remedy, for the message
        error: class of the error
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError) as e:
        raise error(f"{what} is damaged: {_message(e)}", at=at, hint=hint) from e


def from_toml(path: Path, kind: type[_T], hint: str = "correct it") -> _T:
    """Decode a TOML file written by a person as type `kind`.

    Raises FileNotFoundError for a missing file, and InputError for a wrong one.
    """
    try:
        text = given(path, LARGEST_TOML).decode()
        # Checked before the parser sees the text.
        longest = max(map(len, text.splitlines()), default=0)
        if longest > LONGEST_LINE:
            raise ValueError(
                f"it has a line of {longest} characters, more than {LONGEST_LINE}"
            )
        return msgspec.toml.decode(text, type=kind)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as e:
        # The errors of tomllib, msgspec and UTF-8 are ValueErrors.
        raise InputError(
            f"cannot read {path.name}: {_message(e)}", at=str(path), hint=hint
        ) from e


def _message(e: BaseException) -> str:
    """Return the message of an error.

    Python's own message for deep nesting speaks of Python's stack.
    """
    if isinstance(e, RecursionError):
        return "it is nested too deep"
    if isinstance(e, OSError):
        return e.strerror or str(e)
    if isinstance(e, MemoryError):
        return "it is larger than memory"
    return str(e)
