"""The stick's boot loader: it takes firmware by Device Firmware Upgrade 1.1.

The requests and states are those of the standard, chapter 3 and appendix A. As
google-coral/libedgetpu expects (driver/usb/usb_dfu_commands.cc), the state after the
empty last block is dfuIDLE, the firmware can be read back, and a reset starts it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from edgec_devices.stick.descriptors import DFU_BLOCK

_MEMORY = 128 * DFU_BLOCK
"""Bytes that can be read back: LibrEdgeTPU (libredgetpu/transport.py) reads 128 whole
blocks and one more, as a trace of libedgetpu on a stick did."""

DETACH, DOWNLOAD, UPLOAD, GET_STATUS, CLEAR_STATUS, GET_STATE, ABORT = range(7)
_IDLE, _DOWNLOAD_IDLE, _UPLOAD_IDLE, _ERROR = 2, 5, 9, 10
_OK, _BAD_FIRMWARE, _STALLED = 0, 10, 15

KNOWN_FIRMWARE = frozenset(
    {"3b07311b174b81fd14fd2c887f40d646c0ebf2f140cc5ee5cf8befa0f3e3dc7f"}
)
"""SHA-256 of apex_latest_single_ep.bin (10,783 bytes) of google-coral/libedgetpu."""


class BootLoader:
    """Takes firmware in blocks."""

    def __init__(self, log: Callable[[str], None]) -> None:
        """Begin without firmware."""
        self._log = log
        self._blocks: list[bytes] = []
        self._state = _IDLE
        self._status = _OK
        self.refuses = False
        self.complete = False

    def request(
        self, request: int, value: int, length: int, data: bytes
    ) -> bytes | None:
        """Answer a request to its interface.

        value: the block's number. length: bytes to return at most.

        Returns: the bytes, empty for a request without; None for a stall
        """
        if request == DOWNLOAD:
            return self._download(value, data)
        if request == UPLOAD:
            return self._upload(value, length)
        if request == GET_STATUS:
            return bytes((self._status, 0, 0, 0, self._state, 0))[:length]
        if request == GET_STATE:
            return bytes((self._state,))
        if request in (CLEAR_STATUS, ABORT):
            self._state, self._status = _IDLE, _OK
            return b""
        return self._stall()

    @property
    def firmware(self) -> bytes:
        """Return the blocks of firmware that the host has sent so far, joined."""
        return b"".join(self._blocks)

    def _download(self, number: int, data: bytes) -> bytes | None:
        if self._state == _IDLE and data:
            self._blocks, self.complete = [], False
        elif self._state != _DOWNLOAD_IDLE:
            return self._stall()
        if data:
            if number != len(self._blocks) or len(data) > DFU_BLOCK:
                return self._stall()
            self._blocks.append(data)
            self._state = _DOWNLOAD_IDLE
        else:
            self._end()
        return b""

    def _end(self) -> None:
        digest = hashlib.sha256(self.firmware).hexdigest()
        if self.refuses or digest not in KNOWN_FIRMWARE:
            self._log(
                f"refuses firmware of {len(self.firmware)} bytes, SHA-256 {digest}"
            )
            self._state, self._status = _ERROR, _BAD_FIRMWARE
            return
        self._log(f"takes firmware of {len(self.firmware)} bytes, SHA-256 {digest}")
        self._state, self.complete = _IDLE, True

    def _upload(self, number: int, length: int) -> bytes | None:
        if self._state not in (_IDLE, _UPLOAD_IDLE):
            return self._stall()
        start = number * DFU_BLOCK
        memory = self.firmware.ljust(_MEMORY, b"\0")
        data = memory[start : start + min(length, DFU_BLOCK)]
        self._state = _UPLOAD_IDLE if len(data) == DFU_BLOCK else _IDLE
        return data

    def _stall(self) -> bytes | None:
        self._state, self._status = _ERROR, _STALLED
        return None
