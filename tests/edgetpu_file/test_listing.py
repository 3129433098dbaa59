"""A compiled file as text becomes the same file again."""

from __future__ import annotations

from collections import Counter

import pytest
from edgec_runtime.edgetpu_file.compiled_file import read_compiled

from edgec.edgetpu_file.assembly import assemble
from edgec.edgetpu_file.fields import WORD
from edgec.edgetpu_file.layouts import LAYOUTS
from edgec.edgetpu_file.listing import disassemble
from edgec.edgetpu_file.stream import split
from edgec.errors import InputError
from tests.edgetpu_file.compiled import files, smallest


@pytest.mark.shared
def test_every_file() -> None:
    """All files become the same again, and no word has an unknown opcode."""
    assert len(files()) == 41
    for where, data in files().items():
        lines = [*disassemble(read_compiled(data, where), where)]
        assert not [line for line in lines if line.startswith("word")], where
        assert assemble(lines, where) == data, where


@pytest.mark.shared
def test_numbers_of_tile_instructions() -> None:
    """The instructions for tiles are numbered without a gap, over all chunks of a
    program: so no length in the layouts is wrong."""
    for where, data in files().items():
        for package in read_compiled(data, where).packages:
            for executable in package.executables:
                numbers = list[int]()
                for chunk in executable.instructions:
                    for i in split(chunk.span.of(data)):
                        assert i.layout is not None
                        if i.layout.name == "tile_fence" or i.opcode < 0x1A:
                            numbers.append(i.value("number"))
                # In programs of several chunks, a fence goes on from the last chunk.
                first = numbers[0]
                assert numbers == [*range(first, first + len(numbers))] or (
                    len(executable.instructions) > 1
                ), where


def test_layouts_have_every_bit_once() -> None:
    """The fields of each layout follow each other, and have different names."""
    for layout in LAYOUTS.values():
        position = 0
        for field in layout.fields:
            assert field.start == position
            position += field.width
        assert position == 8 * WORD * layout.words
        assert max(Counter(f.name for f in layout.fields).values()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tile_fence tiles=0x1ffff", "does not fit the 16 bits"),
        ("tile_fence number=one", "not a whole number"),
        ("tile_fence colour=1", "not a field of tile_fence"),
        ("tile_fence tiles=1 tiles=1", "two values"),
        ("jump", "no instruction"),
        ("compute multiplier=big", "not a float32"),
        ("data\n  0g", "non-hexadecimal"),
        ("zeros", "has 0 numbers"),
        ("zeros -1", "too many"),
        ("word 0x" + "f" * 33, "does not fit a word"),
        ("zeros 1073741824\nzeros 1", "would have more than"),
    ],
)
def test_wrong_lines(text: str, message: str) -> None:
    """A line that is not understood is named with its number."""
    with pytest.raises(InputError, match=message) as e:
        assemble(f"; a comment\n{text}".splitlines(), "program.txt")
    assert e.value.at in ("program.txt:2", "program.txt:3")


@pytest.mark.shared
def test_unknown_opcodes_and_remainders() -> None:
    """Words that are not understood, and those that a chunk's end cuts, stay as they are."""
    data = bytearray(smallest())
    (package,) = read_compiled(bytes(data), "model").packages
    span = package.executables[0].instructions[0].span
    # The opcode 0x0e is in no layout.
    data[span.start] = 0x80
    data[span.start + 1] = 0x03
    # An operation of 17 words begins in the last one.
    data[span.end - WORD] = 0x40
    data[span.end - WORD + 1] = 0
    lines = [*disassemble(read_compiled(bytes(data), "model"), "model")]
    assert len([line for line in lines if line.startswith("word")]) == 2
    assert assemble(lines, "model") == bytes(data)
