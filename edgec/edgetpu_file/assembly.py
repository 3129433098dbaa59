"""Writes the file that a text of `disassemble` describes (edgec/edgetpu_file/listing.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from edgec.edgetpu_file.fields import OPCODE_BITS, WORD, Field, Kind, float_bits
from edgec.edgetpu_file.layouts import BY_NAME
from edgec.errors import InputError

LARGEST = 1 << 30
"""Bytes of the largest file that is written."""


def assemble(lines: Iterable[str], where: str) -> bytes:
    """Return the file of a text.

    Args:
        lines: the text
        where: its path, for messages

    Raises:
        InputError: a line is not understood
    """
    parts = list[bytes]()
    size = 0
    for number, words in _statements(lines):
        try:
            part = _statement(words)
            size += len(part)
            if size > LARGEST:
                raise ValueError(f"the file would have more than {LARGEST} bytes")
        except ValueError as e:
            raise InputError(
                str(e),
                at=f"{where}:{number}",
                hint="give a text that edgec inspect --disassemble has written, or correct "
                "this line",
            ) from None
        parts.append(part)
    return b"".join(parts)


def _statements(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each directive or instruction, and the number of its line."""
    number, words = 0, list[str]()
    for n, line in enumerate(lines, 1):
        text = line.partition(";")[0].rstrip()
        if not text:
            continue
        if not text[0].isspace():
            if words:
                yield number, words
            number, words = n, []
        elif not words:
            # An indented line at the start goes on with nothing; its first word is wrong.
            number = n
        words += text.split()
    if words:
        yield number, words


def _statement(words: list[str]) -> bytes:
    """Return the bytes of a directive or an instruction."""
    first, rest = words[0], words[1:]
    if first == "program":
        return b""
    if first == "data":
        return bytes.fromhex("".join(rest))
    if first in ("zeros", "word"):
        if len(rest) != 1:
            raise ValueError(f'"{first}" has {len(rest)} numbers and not one')
        value = _number(rest[0])
        if first == "zeros":
            if not 0 <= value <= LARGEST:
                raise ValueError(f"{value} zero bytes are too many")
            return bytes(value)
        if not 0 <= value < 1 << (8 * WORD):
            raise ValueError(f"{rest[0]} does not fit a word")
        return value.to_bytes(WORD, "little")
    return _instruction(first, rest)


def _instruction(name: str, settings: list[str]) -> bytes:
    if name not in BY_NAME:
        raise ValueError(f'no instruction is called "{name}"')
    layout = BY_NAME[name]
    fields = _fields(name)
    bits = Field("opcode", *OPCODE_BITS).put(0, layout.opcode)
    seen = set[str]()
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or key not in fields:
            raise ValueError(f'"{setting}" is not a field of {name} and its value')
        if key in seen:
            raise ValueError(f"{key} has two values")
        seen.add(key)
        bits = fields[key].put(bits, _value(fields[key], value))
    return bits.to_bytes(WORD * layout.words, "little")


@cache
def _fields(name: str) -> dict[str, Field]:
    fields = {field.name: field for field in BY_NAME[name].fields}
    # The mnemonic stands for it.
    del fields["opcode"]
    return fields


def _value(field: Field, text: str) -> int:
    """Return the value that a text stands for."""
    if field.kind is Kind.FLOAT and not text.startswith("0x"):
        try:
            return float_bits(float(text))
        except (ValueError, OverflowError):
            raise ValueError(f"{text} is not a float32") from None
    return _number(text)


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f'"{text}" is not a whole number') from None
