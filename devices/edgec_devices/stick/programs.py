"""The programs that the stick knows, recognised by the bytes of their instructions.

The driver writes addresses of buffers into the instructions that it sends. Their bits
are left out of the comparison, so that the rest says which program it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile
from edgec_runtime.edgetpu_file.executable import (
    Executable,
    ExecutableType,
    Instructions,
)
from numpy.typing import NDArray

Array = NDArray[Any]
Compute = Callable[[Mapping[str, Array]], dict[str, Array]]
"""A function from the inputs' elements to the outputs', both by the layers' names.

Elements are bytes [n, bytes of an element], in the order in which a tensor has them.
"""


@dataclass(frozen=True)
class KnownProgram:
    """One executable of a compiled file.

    Attributes:
        name: of the file, for the log
        executable: its description
        data: the whole file
        cached: SHA-256 of the parameters that must be in the chip before it runs; None
            where it needs none
        compute: its results; None where the source is not at hand
    """

    name: str
    executable: Executable
    data: bytes
    cached: bytes | None
    compute: Compute | None

    def parameters(self) -> bytes:
        """Return the parameters that are sent with it."""
        return self.executable.parameters.of(self.data)


class ProgramBook:
    """Known programs by their instructions."""

    def __init__(self) -> None:
        """Begin with none."""
        self._masks: dict[tuple[int, bytes], Array] = {}
        self._programs: dict[bytes, list[KnownProgram]] = {}

    def add_file(
        self, name: str, file: CompiledFile, compute: list[Compute | None]
    ) -> None:
        """Add the programs of a compiled file.

        compute: for each operator of the file that is for the Edge TPU, in order
        """
        for package, function in zip(file.packages, compute, strict=True):
            caching = package.of_type(ExecutableType.PARAMETER_CACHING)
            cached = None
            if caching is not None and caching.parameters.size:
                cached = sha256(caching.parameters.of(file.data))
            for executable in package.executables:
                runs = executable.type is ExecutableType.EXECUTION_ONLY
                self._add(
                    KnownProgram(
                        name,
                        executable,
                        file.data,
                        cached if runs else None,
                        function,
                    )
                )

    def _add(self, program: KnownProgram) -> None:
        for chunk in program.executable.instructions[:1]:
            data = chunk.span.of(program.data)
            mask = address_mask(chunk)
            self._masks.setdefault((len(data), mask.tobytes()), mask)
            self._programs.setdefault(_digest(data, mask), []).append(program)

    def find(self, instructions: bytes) -> list[KnownProgram]:
        """Return the programs that begin with these instructions: several, where they
        differ in their parameters alone.
        """
        found: list[KnownProgram] = []
        for (size, _), mask in self._masks.items():
            if size == len(instructions):
                found += self._programs.get(_digest(instructions, mask), [])
        return found


def address_mask(chunk: Instructions) -> Array:
    """Return the bits of a chunk that the driver does not write, as bytes."""
    bits = np.ones(8 * chunk.span.size, np.uint8)
    for field in chunk.fields:
        bits[field.bit : field.bit + 32] = 0
    return np.packbits(bits, bitorder="little")


def same_instructions(program: KnownProgram, chunk: int, data: bytes) -> bool:
    """Return whether a chunk that arrived is that of the program."""
    expected = program.executable.instructions[chunk]
    mask = address_mask(expected)
    return len(data) == len(mask) and _digest(data, mask) == _digest(
        expected.span.of(program.data), mask
    )


def sha256(data: bytes | Iterable[bytes]) -> bytes:
    """Return the hash of bytes, or of several pieces one after the other."""
    made = hashlib.sha256()
    for piece in (data,) if isinstance(data, bytes) else data:
        made.update(piece)
    return made.digest()


def _digest(data: bytes, mask: Array) -> bytes:
    return sha256((np.frombuffer(data, np.uint8) & mask).tobytes() + mask.tobytes())


def stated_pattern(inputs: Iterable[bytes], size: int) -> bytes:
    """Return what a program without a source gives for an output of `size` bytes.

    Byte k is (byte k mod 32 of the SHA-256 of all inputs, plus k) mod 256, so that other
    inputs give other outputs, and a test can tell what it must be.
    """
    digest = np.frombuffer(sha256(inputs), np.uint8).astype(np.int64)
    k = np.arange(size)
    return ((digest[k % 32] + k) % 256).astype(np.uint8).tobytes()
