"""The weights file of a target: the constants of all its C, once and in binary."""

from __future__ import annotations

from edgec.ir import Array
from edgec.schedule.liveness import aligned


class WeightsFile:
    """The file as it grows while sources are written.

    Arrays of equal bytes share a place, unless they are kept apart.
    """

    def __init__(self, apart: bool = False) -> None:
        """Begin an empty file.

        Args:
            apart: whether each array has a place of its own
        """
        self._data = bytearray()
        self._apart = apart
        self._known: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return the number of bytes so far."""
        return len(self._data)

    def place(self, array: Array) -> int:
        """Return the offset of an array, which is added if it is not there yet.

        It is little-endian and aligned.
        """
        # All targets are little-endian.
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        offset = aligned(len(self._data))
        if not self._apart:
            offset = self._known.setdefault(data, offset)

        # A smaller offset is that of equal bytes in the file already.
        if offset >= len(self._data):
            padding = bytes(offset - len(self._data))
            self._data += padding + data
        return offset

    @property
    def data(self) -> bytes:
        """The content so far."""
        return bytes(self._data)
