"""Programs of the chip, linked and cut into transfers.

The driver follows a program's DMA hints: each is a packet to the chip (a header of 8
bytes with length and tag, then the bytes), bytes from it, or an event. Tags and header:
driver/usb/usb_ml_commands.{h,cc} in google-coral/libedgetpu; the bits that are linked:
driver/executable_util.cc.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from ..edgetpu_file.executable import (
    Address,
    AddressOf,
    BufferTransfer,
    Executable,
    ExecutableType,
    Fence,
    Field,
    InstructionTransfer,
    Interrupt,
    Layer,
    Package,
    Transfer,
)
from ..edgetpu_file.flatbuffer import DamagedError
from .layouts import Array, OutputLayout, dense_bytes, padded_bytes, write_input
from .usbfs import Urb

BULK_OUT = 0x01
INSTRUCTIONS, INPUT, PARAMETERS, FIRST_INTERRUPT = 0, 1, 2, 4
"""Tags of packets to the chip, and of the events of its interrupts 0 to 3."""
_HEADER = struct.Struct("<IB3x")

Bytes = NDArray[np.uint8]


Buffer = Tuple[Optional[AddressOf], str]
"""A buffer of a program: its kind and, of a layer, its name; None and the number of a
chunk of instructions."""


@dataclass(frozen=True)
class Packet:
    """A packet to the chip.

    Attributes:
        tag: of its header
        buffer: where its bytes are
        offset: the first of them in the buffer
        size: number of bytes
    """

    tag: int
    buffer: Buffer
    offset: int
    size: int


@dataclass(frozen=True)
class Reception:
    """Bytes from the chip.

    Attributes:
        buffer: where they go
        offset: the first of them in the buffer
        size: number of bytes
    """

    buffer: Buffer
    offset: int
    size: int


@dataclass(frozen=True)
class Sending:
    """A packet to the chip, as transfers.

    Attributes:
        urbs: the header and the parts of its bytes
        size: number of bytes
    """

    urbs: Tuple[Urb, ...]
    size: int


@dataclass(frozen=True)
class Receiving:
    """Bytes from the chip.

    Attributes:
        memory: where they go
    """

    memory: memoryview


@dataclass(frozen=True)
class Event:
    """The chip says that it has reached a point of the program.

    Attributes:
        tag: of the event
    """

    tag: int


PlannedStep = Union[Packet, Reception, Event, Fence]
Step = Union[Sending, Receiving, Event, Fence]


@dataclass(eq=False)
class Run:
    """A program with memory of its own, which can be started again when it is over.

    Attributes:
        steps: what happens, in order
        inputs, outputs: memory of the layers, as the chip has them, by name
        left: number of transfers, receptions and events that have not ended
        work: what `left` is at its start
    """

    steps: Tuple[Step, ...]
    inputs: Dict[str, bytearray]
    outputs: Dict[str, bytearray]
    left: int = 0
    work: int = field(init=False)

    def __post_init__(self) -> None:
        self.work = sum(
            len(step.urbs) if isinstance(step, Sending) else not isinstance(step, Fence)
            for step in self.steps
        )


class Program:
    """An executable, with its addresses linked.

    Attributes:
        executable: the executable
        inputs, outputs: its layers by name
        layouts: how its outputs are read, by name
        contents: the bytes of its parameters and instructions
        steps: what happens in a run, in order

    Raises:
        DamagedError: its transfers lead out of their buffers
        ValueError: it cannot run by its hints alone; the text says why
    """

    def __init__(self, executable: Executable, data: bytes, chunk: int) -> None:
        """Link it.

        Args:
            executable: the executable
            data: the file that it is in
            chunk: most bytes of one transfer
        """
        if not executable.deterministic:
            raise ValueError("its transfers depend on the data")
        if executable.batch != 1:
            raise ValueError(f"it takes {executable.batch} inputs at a time")
        self.executable = executable
        self._chunk = chunk
        self.inputs: Dict[str, Layer] = {i.name: i for i in executable.inputs}
        self.outputs: Dict[str, Layer] = {o.name: o for o in executable.outputs}
        self.layouts = {o.name: OutputLayout(o) for o in executable.outputs}
        self._dense = {
            one.name: dense_bytes(one)
            for one in (*executable.inputs, *executable.outputs)
        }
        parameters = bytearray(executable.parameters.of(data))
        self.contents: Dict[Buffer, bytearray] = {(AddressOf.PARAMETER, ""): parameters}
        addresses = self._addresses()
        for i, part in enumerate(executable.instructions):
            words = linked(part.span.of(data), part.fields, addresses)
            self.contents[None, str(i)] = words
        self._sizes = {key: len(value) for key, value in self.contents.items()}
        self._sizes[AddressOf.SCRATCH, ""] = executable.scratch
        for kind, layers in self._layers():
            for name, layer in layers.items():
                self._sizes[kind, name] = padded_bytes(layer)
        self.steps = tuple(map(self._planned, executable.transfers))

    def _layers(self) -> Tuple[Tuple[AddressOf, Dict[str, Layer]], ...]:
        return (AddressOf.INPUT, self.inputs), (AddressOf.OUTPUT, self.outputs)

    def _addresses(self) -> Dict[Buffer, int]:
        """Return an address for each buffer.

        Over USB the chip only repeats addresses in descriptors, which are switched off,
        so that any will do, as long as buffers do not overlap.
        """
        buffers: List[Buffer] = [
            *((kind, name) for kind, layers in self._layers() for name in layers),
            (AddressOf.PARAMETER, ""),
            (AddressOf.SCRATCH, ""),
        ]
        return {buffer: i << 32 for i, buffer in enumerate(buffers, 1)}

    def new_run(self) -> Run:
        """Return memory and transfers for a run."""
        memory = {
            key: self.contents.get(key, bytearray(size))
            for key, size in self._sizes.items()
        }
        return Run(
            tuple(self._step(step, memory) for step in self.steps),
            {name: memory[AddressOf.INPUT, name] for name in self.inputs},
            {name: memory[AddressOf.OUTPUT, name] for name in self.outputs},
        )

    def write(self, run: Run, inputs: Dict[str, Array]) -> None:
        """Write the inputs of a run, by the names of the layers.

        Raises:
            ValueError: one is missing or has another size
        """
        for name, layer in self.inputs.items():
            values = inputs.get(name)
            if values is None or values.nbytes != self._dense[name]:
                size = "not there" if values is None else f"{values.nbytes} bytes"
                raise ValueError(
                    f"the input {name} is {size}, the program takes "
                    f"{self._dense[name]} bytes"
                )
            write_input(layer, values, np.frombuffer(run.inputs[name], np.uint8))

    def read(self, run: Run, outputs: Dict[str, Array]) -> None:
        """Read the outputs of a run into arrays, by the names of the layers.

        Raises:
            ValueError: an array is missing or has another size
        """
        for name, layout in self.layouts.items():
            out = outputs.get(name)
            if out is None or out.nbytes != self._dense[name]:
                raise ValueError(f"the output {name} has {self._dense[name]} bytes")
            layout.read(np.frombuffer(run.outputs[name], np.uint8), out)

    def _planned(self, transfer: Transfer) -> PlannedStep:
        what = transfer.what
        if isinstance(what, Interrupt):
            return Event(FIRST_INTERRUPT + what.number)
        if isinstance(what, InstructionTransfer):
            chunk: Buffer = None, str(what.chunk)
            if chunk not in self._sizes:
                raise DamagedError(f"instructions {what.chunk} are sent and not there")
            return Packet(INSTRUCTIONS, chunk, 0, self._sizes[chunk])
        if not isinstance(what, BufferTransfer):
            return Fence()
        buffer = _key(what.address)
        if buffer not in self._sizes:
            raise DamagedError(f"a buffer {what.address.name} is not in the program")
        size = self._sizes[buffer]
        if not 0 <= what.offset <= what.offset + what.size <= size:
            raise DamagedError(
                f"bytes {what.offset} to {what.offset + what.size} of a buffer of "
                f"{size} bytes are transferred"
            )
        kind = what.address.of
        if kind is AddressOf.OUTPUT or (kind is AddressOf.SCRATCH and transfer.outfeed):
            return Reception(buffer, what.offset, what.size)
        tag = PARAMETERS if kind is AddressOf.PARAMETER else INPUT
        return Packet(tag, buffer, what.offset, what.size)

    def _step(self, step: PlannedStep, memory: Dict[Buffer, bytearray]) -> Step:
        if isinstance(step, Packet):
            return self._sending(step, memory[step.buffer])
        if isinstance(step, Reception):
            view = memoryview(memory[step.buffer])
            return Receiving(view[step.offset : step.offset + step.size])
        return step

    def _sending(self, packet: Packet, memory: bytearray) -> Sending:
        size = packet.size
        urbs = [Urb(BULK_OUT, bytearray(_HEADER.pack(size, packet.tag)))]
        for at in range(0, size, self._chunk):
            length = min(self._chunk, size - at)
            urbs.append(Urb(BULK_OUT, memory, packet.offset + at, length))
        return Sending(tuple(urbs), size)


def _key(address: Address) -> Buffer:
    named = address.of in (AddressOf.INPUT, AddressOf.OUTPUT)
    return address.of, address.name if named else ""


def linked(
    instructions: bytes,
    fields: Tuple[Field, ...],
    addresses: Dict[Buffer, int],
) -> bytearray:
    """Return instructions with the addresses of their buffers."""
    words = bytearray(instructions)
    for one in fields:
        address = addresses.get(_key(one.address))
        if address is None:
            raise DamagedError(f"a buffer {one.address.name} is not in the program")
        half = address >> 32 if one.address.upper else address & 0xFFFFFFFF
        first, shift = divmod(one.bit, 8)
        last = first + (5 if shift else 4)
        bits = int.from_bytes(words[first:last], "little")
        bits = bits & ~(0xFFFFFFFF << shift) | half << shift
        words[first:last] = bits.to_bytes(last - first, "little")
    return words


@dataclass(eq=False)
class Model:
    """The programs of one operator of a compiled file.

    Attributes:
        main: runs one inference
        caching: puts the parameters into the chip; None if `main` brings them
        key: the same for packages with the same bytes
        runs: runs of `main` that are free
        known: inputs and outputs of its first inference, as the chip has them, by which
            the chip is checked after a fault
    """

    main: Program
    caching: Optional[Program]
    key: bytes
    runs: List[Run] = field(default_factory=list)
    known: Optional[Tuple[Dict[str, bytes], Dict[str, bytes]]] = None

    @property
    def token(self) -> int:
        """Models with one token, not 0, can have their parameters in the chip together."""
        return self.main.executable.token


def link_model(package: Package, data: bytes, chunk: int) -> Model:
    """Return the programs of a package, as driver/package_registry.cc chooses them.

    Args:
        package: the package
        data: the file that it is in
        chunk: most bytes of one transfer

    Raises:
        DamagedError: the package is damaged
        ValueError: it cannot run; the text says why
    """
    alone = package.executables[0] if len(package.executables) == 1 else None
    stand_alone = package.of_type(ExecutableType.STAND_ALONE) or alone
    key = hashlib.sha256(package.span.of(data)).digest()
    if stand_alone is not None:
        return Model(Program(stand_alone, data, chunk), None, key)
    main = package.of_type(ExecutableType.EXECUTION_ONLY)
    caching = package.of_type(ExecutableType.PARAMETER_CACHING)
    if main is None or caching is None:
        raise DamagedError("the package lacks a program for inferences or parameters")
    return Model(Program(main, data, chunk), Program(caching, data, chunk), key)
