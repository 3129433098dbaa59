"""The weights file of a target: what all its C reads, once and binary."""

from __future__ import annotations

from edgec.ir import Array
from edgec.schedule.liveness import aligned


class WeightsFile:
    """The file as it grows while sources are written: arrays of the same bytes are in
    it once, or, `apart`, each.
    """

    def __init__(self, apart: bool = False) -> None:
        self._data = bytearray()
        self._apart = apart
        self._known: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Bytes so far."""
        return len(self._data)

    def place(self, array: Array) -> int:
        """Where an array is in the file, bytes: little-endian, aligned."""
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        at = aligned(len(self._data))
        if not self._apart:
            at = self._known.setdefault(data, at)
        if at >= len(self._data):
            self._data += bytes(at - len(self._data)) + data
        return at

    @property
    def data(self) -> bytes:
        """What it holds by now."""
        return bytes(self._data)
