"""Writes a compiled file as text, from which `assemble` writes the same file again.

A line that begins with a word is a directive or an instruction; indented lines go on with
the one above. What follows a semicolon is a comment.

    data                    the other bytes of the file, in hexadecimal
    zeros 4064              as many zero bytes
    program ...             a chunk of instructions begins; for the reader alone
    tile_fence number=0 …   an instruction, with the fields that are not 0
    word 0x0…               a word whose opcode is not known

Bits without a known meaning are written as ?POSITION=0xVALUE.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile
from edgec_runtime.edgetpu_file.executable import AddressOf, Instructions
from edgec_runtime.edgetpu_file.flatbuffer import Span

from edgec.edgetpu_file.fields import WORD, Field, Kind, bits_float, float_bits
from edgec.edgetpu_file.stream import Instruction, split
from edgec.errors import InputError

TITLE = "; a file of edgetpu_compiler as text, by edgec"
ROW = 32
"""Bytes in a line of data."""
LEAST_ZEROS = 64
"""Zero bytes that are worth a line of their own."""
_WIDTH = 100


def disassemble(file: CompiledFile, where: str) -> Iterator[str]:
    """Yield the lines of a compiled file.

    Args:
        file: the file
        where: its path, for messages

    Raises:
        InputError: chunks of instructions lie in each other
    """
    yield TITLE
    position = 0
    for title, chunk in _chunks(file):
        if chunk.span.start < position:
            raise InputError(
                f"two chunks of instructions have byte {chunk.span.start}",
                at=where,
                hint="the file is damaged: copy or compile it again",
            )
        yield from _data(file.data[position : chunk.span.start])
        yield f"program {title}"
        yield from _chunk(file.data, chunk)
        position = chunk.span.end
    yield from _data(file.data[position:])


def _chunks(file: CompiledFile) -> list[tuple[str, Instructions]]:
    """Return the chunks in the order of the file, with a title each."""
    chunks = list[tuple[str, Instructions]]()
    for package in file.packages:
        for executable in package.executables:
            count = len(executable.instructions)
            for k, chunk in enumerate(executable.instructions):
                kind = executable.type.name.lower().replace("_", " ")
                chunks.append((f"{kind}, chunk {k + 1} of {count}", chunk))
    return sorted(chunks, key=lambda c: (c[1].span.start, c[1].span.end))


def _chunk(data: bytes, chunk: Instructions) -> Iterator[str]:
    """Yield the instructions of a chunk, and the bytes after the last whole word."""
    notes = defaultdict[int, list[str]](list)
    for field in chunk.fields:
        address = field.address
        half = "upper" if address.upper else "lower"
        of = address.of.name.lower()
        if address.of in (AddressOf.INPUT, AddressOf.OUTPUT):
            of += f" {_quoted(address.name)}"
        note = f"bit {field.bit % (8 * WORD)}: {half} half of the address of the {of}"
        notes[field.bit // (8 * WORD)].append(note)

    content = chunk.span.of(data)
    for instruction in split(content):
        words = range(instruction.word, instruction.word + instruction.words)
        text = [note for word in words for note in notes[word]]
        yield from _instruction(instruction, text)
    yield from _data(content[len(content) // WORD * WORD :])


def _quoted(name: str) -> str:
    """Return a name that is from a file, in one line of printable characters."""
    return ascii(name)


def _instruction(instruction: Instruction, notes: list[str]) -> Iterator[str]:
    if instruction.layout is None:
        yield f"word {instruction.bits:#034x}"
    else:
        parts = [instruction.layout.name]
        for field in instruction.layout.fields:
            value = field.of(instruction.bits)
            if value and field.name != "opcode":
                parts.append(f"{field.name}={text_of(field, value)}")
        yield from textwrap.wrap(
            " ".join(parts),
            _WIDTH,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    for note in notes:
        yield f"    ; the driver writes into {note}"


def text_of(field: Field, value: int) -> str:
    """Return how a value of a field is written."""
    if field.kind is Kind.FLOAT:
        # The shortest decimal number with these bits; only a "not a number" has none.
        number = str(np.float32(bits_float(value)))
        if float_bits(float(number)) == value:
            return number
    if field.kind in (Kind.NUMBER, Kind.SIGNED):
        return str(value)
    return f"{value:#x}"


def _data(data: bytes) -> Iterator[str]:
    """Yield bytes, long runs of zeros as their number."""
    for zeros, span in _runs(data):
        if zeros:
            yield f"zeros {span.size}"
            continue
        yield "data"
        for at in range(span.start, span.end, ROW):
            yield f"  {data[at : min(at + ROW, span.end)].hex()}"


def _runs(data: bytes) -> Iterator[tuple[bool, Span]]:
    """Yield parts of data in order, and whether they are long runs of zeros."""
    begin = 0
    values = np.frombuffer(data, np.uint8)
    # Where a run of zeros begins or ends
    edges = np.flatnonzero(np.diff(np.concatenate([[1], values, [1]]) == 0))
    for start, end in edges.reshape(-1, 2).tolist():
        if end - start < LEAST_ZEROS:
            continue
        if start > begin:
            yield False, Span(begin, start - begin)
        yield True, Span(start, end - start)
        begin = end
    if begin < len(data):
        yield False, Span(begin, len(data) - begin)
