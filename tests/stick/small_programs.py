"""Small programs for the stick, made here: no compiler has written them."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
from edgec_devices.stick.programs import Array, ProgramBook
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, CompiledOperator
from edgec_runtime.edgetpu_file.executable import (
    Address,
    AddressOf,
    BufferTransfer,
    Executable,
    ExecutableType,
    Field,
    Instructions,
    InstructionTransfer,
    Interrupt,
    Layer,
    Package,
    Transfer,
)
from edgec_runtime.edgetpu_file.flatbuffer import Span

IN_BYTES, OUT_BYTES, PARAMETER_BYTES, INSTRUCTION_BYTES = 48, 1024, 200, 128


def layer(name: str, z: int, data_type: int = 0) -> Layer:
    """A layer of z elements in a row."""
    return Layer(name, z, 1, 1, z, data_type, 0, 1.0, 1, ((0, 0), (0, z - 1)), None, ())


def transfer(of: AddressOf, name: str, size: int, offset: int = 0) -> Transfer:
    """A part of a buffer."""
    what = BufferTransfer(Address(of, 0, name, upper=False), offset, size)
    return Transfer(what, outfeed=of is AddressOf.OUTPUT)


class SmallProgram:
    """A program that gives each output byte as a byte of the input plus a number.

    Attributes:
        caching, executing: its instructions
        parameters: its parameters
    """

    def __init__(
        self, plus: int, token: int = 1, transfers: tuple[Transfer, ...] = ()
    ) -> None:
        """Make a program; `transfers` between its instructions and its interrupt."""
        rng = random.Random(plus)
        self.caching = rng.randbytes(INSTRUCTION_BYTES)
        self.executing = rng.randbytes(INSTRUCTION_BYTES)
        self.parameters = rng.randbytes(PARAMETER_BYTES)
        self.plus = plus
        self._token = token
        self._transfers = transfers or (
            transfer(AddressOf.INPUT, "x", IN_BYTES),
            transfer(AddressOf.OUTPUT, "y", OUT_BYTES),
        )

    def output(self, data: bytes) -> bytes:
        """What it gives for an input."""
        repeated = data * (OUT_BYTES // IN_BYTES + 1)
        return bytes((b + self.plus) % 256 for b in repeated[:OUT_BYTES])

    def add_to(self, book: ProgramBook) -> None:
        """Let a stick know it."""
        data = self.caching + self.executing + self.parameters
        span = Span(2 * INSTRUCTION_BYTES, PARAMETER_BYTES)
        wanted = (transfer(AddressOf.PARAMETER, "", PARAMETER_BYTES),)
        kinds = ExecutableType
        caching = self._program(kinds.PARAMETER_CACHING, 0, span, wanted)
        executing = self._program(
            kinds.EXECUTION_ONLY, INSTRUCTION_BYTES, Span(0, 0), self._transfers
        )
        package = Package(Span(0, 0), 0, "", "", (caching, executing))
        operator = CompiledOperator(0, "", (), (), package)
        file = CompiledFile(data, (), (), (), (operator,))

        def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
            made = self.output(inputs["x"].tobytes())
            return {"y": _rows(made)}

        book.add_file(f"plus {self.plus}", file, [compute])

    def _program(
        self,
        kind: ExecutableType,
        start: int,
        parameters: Span,
        transfers: tuple[Transfer, ...],
    ) -> Executable:
        executes = kind is ExecutableType.EXECUTION_ONLY
        # The driver writes the address of the input at bit 100.
        field = Field(Address(AddressOf.INPUT, 0, "x", upper=False), 100)
        return Executable(
            span=Span(0, 0),
            type=kind,
            name="small",
            chip="beagle",
            batch=1,
            scratch=0,
            instructions=(Instructions(Span(start, INSTRUCTION_BYTES), (field,)),),
            parameters=parameters,
            transfers=(
                Transfer(InstructionTransfer(0), outfeed=False),
                *transfers,
                Transfer(Interrupt(0), outfeed=True),
            ),
            deterministic=True,
            inputs=(layer("x", IN_BYTES),) if executes else (),
            outputs=(layer("y", OUT_BYTES),) if executes else (),
            narrow_bytes=0,
            token=self._token,
            cycles=0,
        )


def _rows(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8).reshape(-1, 1)
