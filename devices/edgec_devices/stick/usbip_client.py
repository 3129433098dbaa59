"""The host's end of USB/IP, for plugs that carry a stick further."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from edgec_devices.stick import wire

Ending = asyncio.Future[tuple[int, bytes]]
"""The status of a transfer and its bytes inwards, to be."""


class GoneError(Exception):
    """The device is gone."""


class Imported:
    """An imported device.

    Attributes:
        work: the task that reads replies; it ends when the device is gone
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take a connection over which `imported` has got the device."""
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._open: dict[int, tuple[bool, Ending]] = {}
        self._unlinks: dict[int, int] = {}
        self.work = asyncio.create_task(self._work())

    def begin(
        self, endpoint: int, data: bytes | int, setup: bytes = bytes(8)
    ) -> tuple[int, Ending]:
        """Begin a transfer; return its number and its ending.

        endpoint: with bit 7 for inwards, also for a control transfer
        data: bytes outwards, or the most bytes inwards
        """
        inwards = bool(endpoint & 0x80)
        self._number += 1
        ending: Ending = asyncio.get_running_loop().create_future()
        if self.work.done():
            ending.set_exception(GoneError())
            return self._number, ending
        self._open[self._number] = inwards, ending
        out = b"" if isinstance(data, int) else data
        length = data if isinstance(data, int) else len(data)
        message = wire.Submit(self._number, endpoint & 15, inwards, length, setup)
        self._writer.write(wire.submit(message) + out)
        return self._number, ending

    async def read(self, kind: int, request: int, value: int, length: int) -> bytes:
        """Return what a control transfer inwards brings; empty where it stalls."""
        setup = struct.pack("<BBHHH", kind, request, value, 0, length)
        return (await self.begin(0x80, length, setup)[1])[1]

    def take_back(self, number: int) -> None:
        """Take a transfer back; it ends with wire.TAKEN_BACK unless it has ended."""
        self._number += 1
        self._unlinks[self._number] = number
        self._writer.write(wire.unlink(wire.Unlink(self._number, number)))

    def close(self) -> None:
        """End the connection."""
        self.work.cancel()
        self._writer.close()

    async def _work(self) -> None:
        try:
            while True:
                await self._reply()
        except (asyncio.IncompleteReadError, ConnectionError):
            for _, ending in self._open.values():
                if not ending.done():
                    ending.set_exception(GoneError())
            self._open.clear()

    async def _reply(self) -> None:
        reply = wire.read_reply(await self._reader.readexactly(wire.URB_BYTES))
        number = reply.number
        if reply.unlink:
            number = self._unlinks.pop(number)
        inwards, ending = self._open.pop(number, (False, None))
        data = await self._reader.readexactly(reply.actual if inwards else 0)
        if ending is not None and not ending.done():
            ending.set_result((reply.status, data))


async def imported(path: Path, busid: str) -> Imported | None:
    """Return the device at a server's socket; None where it is away or in use."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(wire.import_request(busid))
    try:
        if wire.import_status(await reader.readexactly(wire.OP_BYTES)) == 0:
            await reader.readexactly(wire.DEVICE_BYTES)
            return Imported(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()
    return None
