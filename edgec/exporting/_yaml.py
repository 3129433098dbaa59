"""Writes YAML in which a text stays a text, whatever is in it.

Names come from files: a line break in one would otherwise begin a key of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
"""Text that means itself without quotes (YAML 1.2.2, 7.3.3), but for words of YAML."""
_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
"""Of YAML 1.1, which Frigate's parser reads, and of YAML 1.2."""

Section = Mapping[str, "str | int | Section"]


def document(section: Section) -> str:
    """Return a mapping as the lines of a document; its sections are indented."""
    return "".join(f"{line}\n" for line in _lines(section, ""))


def _lines(section: Section, indent: str) -> Iterator[str]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield f"{indent}{quoted(key)}:"
            yield from _lines(value, f"{indent}  ")
        else:
            text = str(value) if isinstance(value, int) else quoted(value)
            yield f"{indent}{quoted(key)}: {text}"


def quoted(text: str) -> str:
    """Return text as it is where that is safe, else in double quotes (7.3.1)."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    characters = []
    for character in text:
        number = ord(character)
        if character in '"\\':
            characters.append(f"\\{character}")
        elif character.isprintable():
            characters.append(character)
        elif number > 0xFFFF:
            characters.append(f"\\U{number:08x}")
        else:
            characters.append(f"\\u{number:04x}")
    return f'"{"".join(characters)}"'
