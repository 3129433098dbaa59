"""One run of a program: what has arrived, where it is among its DMA hints, its results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from edgec_runtime.edgetpu_file.executable import (
    DATA_TYPE_BYTES,
    AddressOf,
    BufferTransfer,
    InstructionTransfer,
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
        self.outputs: dict[str, bytes] | None = None
        self.computes = False

    @property
    def program(self) -> KnownProgram:
        """Return the program, or the first of those that it can be."""
        return self._programs[0]

    @property
    def transfer(self) -> Transfer | None:
        """Return the transfer that comes next; None at the end."""
        transfers = self.program.executable.transfers
        return transfers[self._index] if self._index < len(transfers) else None

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
        return ""

    def _store(self, what: BufferTransfer, data: bytes) -> None:
        if what.address.of is AddressOf.INPUT:
            buffer = self._inputs[what.address.name]
            room = max(0, len(buffer) - what.offset)
            buffer[what.offset : what.offset + room] = data[:room]
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
