"""The weights file of a target: what all its C reads, once and binary."""

from __future__ import annotations

from edgec.ir import Array
from edgec.schedule.liveness import aligned


class WeightsFile:
    """The file as it grows while sources are written: arrays of the same bytes are in it once."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._known: dict[bytes, int] = {}

    def place(self, array: Array) -> int:
        """Where an array is in the file, bytes: little-endian, aligned."""
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        at = self._known.setdefault(data, aligned(len(self._data)))
        if at >= len(self._data):
            self._data += bytes(at - len(self._data)) + data
        return at

    @property
    def data(self) -> bytes:
        """What it holds by now."""
        return bytes(self._data)
