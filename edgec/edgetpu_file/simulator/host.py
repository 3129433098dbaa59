"""The host's end: the buffers that the chip reads and writes by their addresses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from edgec_runtime.edgetpu_file.executable import Address, AddressOf, Executable

_UPPER = 32
INPUT, PARAMETERS, OUTPUT, INTERRUPT = 1, 2, 3, 4
"""Tags of a request of the chip: what it wants to receive or send."""


@dataclass
class Host:
    """The host while a program runs.

    Attributes:
        buffers: the bytes of each buffer, by the upper half of its address
        arrived: bytes of activations, and of parameters, that the chip has received
        wanted: outputs that the chip is about to send: buffer, first byte and size
        interrupts: how many interrupts it has raised
    """

    buffers: dict[int, bytearray]
    arrived: dict[int, bytearray] = field(
        default_factory=lambda: {INPUT: bytearray(), PARAMETERS: bytearray()}
    )
    wanted: deque[tuple[int, int, int]] = field(default_factory=deque)
    interrupts: int = 0

    def request(self, address: int, size: int, tag: int) -> str:
        """Serve a request of the scalar core; return what is wrong with it, or nothing."""
        if tag == INTERRUPT:
            self.interrupts += 1
            return ""
        buffer, offset = address >> _UPPER, address & (1 << _UPPER) - 1
        if buffer not in self.buffers or tag not in (INPUT, PARAMETERS, OUTPUT):
            return f"a request with tag {tag} is for no buffer"
        if offset + size > len(self.buffers[buffer]):
            return f"a request goes beyond the {len(self.buffers[buffer])} bytes of a buffer"
        if tag == OUTPUT:
            self.wanted.append((buffer, offset, size))
        else:
            self.arrived[tag] += self.buffers[buffer][offset : offset + size]
        return ""

    def send(self, data: bytes) -> str:
        """Take bytes of an output; return what is wrong, or nothing."""
        while data:
            if not self.wanted:
                return "it sends more than it has announced"
            buffer, offset, size = self.wanted.popleft()
            part = data[:size]
            data = data[size:]
            self.buffers[buffer][offset : offset + len(part)] = part
            if len(part) < size:
                rest = (buffer, offset + len(part), size - len(part))
                self.wanted.appendleft(rest)
        return ""


def buffers_of(executable: Executable) -> dict[tuple[AddressOf, str], int]:
    """Return the upper half of the address that each buffer of a program gets."""
    keys = dict.fromkeys(
        key_of(field.address)
        for chunk in executable.instructions
        for field in chunk.fields
    )
    return {key: number for number, key in enumerate(keys, 1)}


def key_of(address: Address) -> tuple[AddressOf, str]:
    """Return what names a buffer."""
    named = address.of in (AddressOf.INPUT, AddressOf.OUTPUT)
    return address.of, address.name if named else ""
