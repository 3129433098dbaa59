"""One run of a program: what has arrived, where it is among its DMA hints, its results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from edgec_runtime.edgetpu_file.executable import (
    DATA_TYPE_BYTES,
    Address,
    AddressOf,
    BufferTransfer,
    Executable,
    InstructionTransfer,
    Interrupt,
    Layer,
    Transfer,
)

from edgec_devices.stick.layouts import Array, input_elements, output_bytes
from edgec_devices.stick.programs import (
    KnownProgram,
    same_instructions,
    sha256,
    stated_pattern,
)

_TAG_OF = {AddressOf.INPUT: 1, AddressOf.SCRATCH: 1, AddressOf.PARAMETER: 2}
_OUTPUT_TAG = 3


class Run:
    """A program that has begun.

    Attributes:
        outputs: bytes of each output layer by name, when they are computed
        computes: whether the computation has begun
    """

    def __init__(
        self,
        programs: list[KnownProgram],
        cached: set[bytes],
        log: Callable[[str], None],
    ) -> None:
        """Begin a program.

        programs: all that these instructions can be
        cached: hashes of the parameters in the chip's memory
        """
        ready = [p for p in programs if p.cached is None or p.cached in cached]
        self._programs = ready or programs[:1]
        self._log = log
        self._why = "" if ready else "its parameters are not in the chip"
        self._index = 0
        self._parameters: list[bytes] = []
        executable = self.program.executable
        self._inputs = {
            i.name: bytearray(i.size * i.executions) for i in executable.inputs
        }
        self._transfers = transfers_of(executable)
        self._addresses: dict[tuple[AddressOf, str], int] = {}
        self._described = -1
        self.outputs: dict[str, bytes] | None = None
        self.computes = False

    @property
    def program(self) -> KnownProgram:
        """Return the program, or the first of those that it can be."""
        return self._programs[0]

    @property
    def transfer(self) -> Transfer | None:
        """Return the transfer that comes next; None at the end."""
        if self._index < len(self._transfers):
            return self._transfers[self._index]
        return None

    @property
    def sends(self) -> bool:
        """Return whether the next transfer is an output."""
        transfer = self.transfer
        return (
            transfer is not None
            and transfer.outfeed
            and isinstance(transfer.what, BufferTransfer)
        )

    def passed(self) -> None:
        """Go on to the next transfer."""
        self._index += 1

    def descriptor(self) -> tuple[int, int, int] | None:
        """Return address, size and tag of a part of a buffer that comes next, once."""
        transfer = self.transfer
        if transfer is None or self._described == self._index:
            return None
        self._described = self._index
        what = transfer.what
        if not isinstance(what, BufferTransfer):
            return None
        tag = _OUTPUT_TAG if transfer.outfeed else _TAG_OF[what.address.of]
        base = self._addresses.get((what.address.of, what.address.name), 0)
        return base + what.offset, what.size, tag

    def take(self, tag: int, data: bytes) -> str:
        """Take a packet; return what is wrong with it, or nothing."""
        transfer = self.transfer
        what = None if transfer is None or transfer.outfeed else transfer.what
        problem = "after its end"
        if isinstance(what, InstructionTransfer):
            problem = self._take_instructions(tag, what.chunk, data)
        elif isinstance(what, BufferTransfer):
            expected = (_TAG_OF[what.address.of], what.size)
            problem = f"where it expects {expected[1]} bytes of tag {expected[0]}"
            if expected == (tag, len(data)):
                self._store(what, data)
                problem = ""
        if problem:
            return f"{self.program.name} gets {len(data)} bytes of tag {tag} {problem}"
        self.passed()
        return ""

    def compute(self) -> None:
        """Set the outputs."""
        executable = self.program.executable
        elements = {
            layer.name: input_elements(layer, bytes(self._inputs[layer.name]))
            for layer in executable.inputs
        }
        results = self._results(elements)
        self.outputs = {
            layer.name: output_bytes(layer, results[layer.name])
            for layer in executable.outputs
        }

    def parameters_hash(self) -> bytes:
        """Return the hash of all parameters that have arrived."""
        return sha256(self._parameters)

    def _results(self, elements: dict[str, Array]) -> dict[str, Array]:
        program = self.program
        if program.compute is None and not self._why:
            self._why = "its source is not at hand"
        if program.compute is not None and not self._why:
            return program.compute(elements)
        self._log(f"{program.name} gives a stated pattern: {self._why}")
        data = [e.tobytes() for e in elements.values()]
        return {
            layer.name: _pattern(layer, data) for layer in program.executable.outputs
        }

    def _take_instructions(self, tag: int, chunk: int, data: bytes) -> str:
        if tag != 0:
            return "where it expects instructions"
        same = [p for p in self._programs if same_instructions(p, chunk, data)]
        if not same:
            return f"that are not its instructions of chunk {chunk}"
        self._programs = same
        for field in self.program.executable.instructions[chunk].fields:
            key = (field.address.of, field.address.name)
            half = _bits(data, field.bit) << (32 if field.address.upper else 0)
            self._addresses[key] = self._addresses.get(key, 0) | half
        return ""

    def _store(self, what: BufferTransfer, data: bytes) -> None:
        if what.address.of is AddressOf.INPUT:
            buffer = self._inputs[what.address.name]
            end = min(what.offset + what.size, len(buffer))
            buffer[what.offset : end] = data[: max(0, end - what.offset)]
        elif what.address.of is AddressOf.PARAMETER:
            self._parameters.append(data)
            end = what.offset + what.size
            same = [
                p for p in self._programs if p.parameters()[what.offset : end] == data
            ]
            if not same and not self._why:
                self._why = "its parameters are not those of the file"
            self._programs = same or self._programs


def _pattern(layer: Layer, data: list[bytes]) -> Array:
    width = DATA_TYPE_BYTES[layer.data_type]
    size = layer.y * layer.x * layer.z * layer.executions * width
    return np.frombuffer(stated_pattern(data, size), np.uint8).reshape(-1, width)


def transfers_of(executable: Executable) -> tuple[Transfer, ...]:
    """Return all transfers of a program in order.

    Where its DMA hints are not all, the chip asks for the others by events: here for the
    outputs, each whole, and the interrupt at the end.
    """
    if executable.deterministic:
        return executable.transfers
    outputs = [
        BufferTransfer(
            Address(AddressOf.OUTPUT, 0, o.name, upper=False), 0, o.size * o.executions
        )
        for o in executable.outputs
    ]
    rest = [Transfer(o, outfeed=True) for o in outputs]
    return (*executable.transfers, *rest, Transfer(Interrupt(0), outfeed=True))


def _bits(data: bytes, at: int) -> int:
    """Return 32 bits at a position in bits."""
    window = int.from_bytes(data[at // 8 : at // 8 + 5], "little")
    return window >> at % 8 & 0xFFFFFFFF
