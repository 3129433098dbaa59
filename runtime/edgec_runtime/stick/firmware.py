"""The firmware of the Coral USB Accelerator: where it is found, and how it gets there.

The stick starts as a loader without firmware, 1a6e:089a, which takes one by DFU (Device
Firmware Upgrade 1.1, usb.org) and after a reset of its port comes back as 18d1:9302. It
forgets the firmware when it is unplugged. Google publishes the firmware inside
libedgetpu (driver/usb/apex_latest_single_ep.bin in google-coral/libedgetpu); here only
its hash is known.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import struct
import time
from typing import Iterator, List, Optional

from ..bundle.cache import cache_dir
from ..device_end.facts import EDGETPU_LIBRARIES
from ..errors import DeviceError, InputError
from .usbfs import StalledError, UsbHandle

FIRMWARE_BYTES = 10783
FIRMWARE_SHA256 = "3b07311b174b81fd14fd2c887f40d646c0ebf2f140cc5ee5cf8befa0f3e3dc7f"
FIRMWARE_CRC32 = 0x0394D8D3
"""By which a program knows it, which has no SHA-256 (csrc/stick_firmware.h)."""
VARIABLE = "EDGEC_EDGETPU_FIRMWARE"
"""The variable of the environment that names a file with the firmware."""

FIRMWARE_START = bytes.fromhex("021e570214fac22fc231c223")
"""Its first bytes, by which it is looked for: jumps of its interrupt table."""

_FILE = "apex_latest_single_ep.bin"
CACHED_FIRMWARE = f"files/{FIRMWARE_SHA256}/{_FILE}"
"""Where it is in the cache."""
_URL = f"https://raw.githubusercontent.com/google-coral/libedgetpu/master/driver/usb/{_FILE}"
_LIBRARY_FOLDERS = ("usr/lib", "usr/lib/*", "usr/local/lib", "lib", "opt/*/lib")
LIBRARY_PATTERNS = tuple(
    f"{folder}/{name}*" for name in EDGETPU_LIBRARIES for folder in _LIBRARY_FOLDERS
)
"""Patterns of files that may have it, below the root, the likeliest first."""
_LONGEST_FILE = 256 << 20

# requests of DFU 1.1, table 3.2; states and status of table 6.2
_TO_INTERFACE, _FROM_INTERFACE = 0x21, 0xA1
_DOWNLOAD, _UPLOAD, _GET_STATUS, _CLEAR_STATUS, _ABORT = 1, 2, 3, 4, 6
_STATE_IDLE, _STATE_DOWNLOAD_IDLE, _STATE_ERROR = 2, 5, 10
_DFU_FUNCTIONAL = 0x21
_TIMEOUT_S = 1.0


def find_firmware(path: Optional[str] = None, root: str = "/") -> bytes:
    """Return the firmware.

    It is looked for in a file, if one is given as argument or by the variable of the
    environment, otherwise in every libedgetpu of this machine and in the cache.

    Args:
        path: a file with the firmware, or a libedgetpu with it
        root: folder that has usr/lib

    Raises:
        InputError: the given file does not have it
        DeviceError: no file has it
    """
    path = path or os.environ.get(VARIABLE)
    if path:
        found = _in_file(path)
        if found is None:
            raise InputError(
                f"{path} does not have the Edge TPU's firmware",
                hint=f"name a libedgetpu, or leave {VARIABLE} out",
            )
        return found
    for place in _places(root):
        found = _in_file(place)
        if found is not None:
            return found
    raise DeviceError(
        "the Edge TPU on USB needs its firmware, which is in no libedgetpu of this "
        "machine",
        hint=_download_command(),
    )


def _places(root: str) -> Iterator[str]:
    """Return files that may have the firmware, the likeliest first."""
    for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        for name in EDGETPU_LIBRARIES:
            yield from sorted(glob.glob(os.path.join(folder, name + "*")))
    for pattern in LIBRARY_PATTERNS:
        yield from sorted(glob.glob(os.path.join(root, pattern)))
    yield _cached_file()


def _cached_file() -> str:
    return str(cache_dir() / CACHED_FIRMWARE)


def _download_command() -> str:
    return f"curl -fL --create-dirs -o {_cached_file()} {_URL}"


def _in_file(path: str) -> Optional[bytes]:
    """Return the firmware in a file; None if it does not have it or cannot be read."""
    try:
        # Another kind of file may have no end, or wait for a writer.
        if not os.path.isfile(path) or os.path.getsize(path) > _LONGEST_FILE:
            return None
        with open(path, "rb") as f:
            return firmware_in(f.read())
    except OSError:
        return None


def firmware_in(data: bytes) -> Optional[bytes]:
    """Return the firmware that stands anywhere in some bytes; None if it does not."""
    at = data.find(FIRMWARE_START)
    while at >= 0:
        candidate = data[at : at + FIRMWARE_BYTES]
        if hashlib.sha256(candidate).hexdigest() == FIRMWARE_SHA256:
            return candidate
        at = data.find(FIRMWARE_START, at + 1)
    return None


def load_firmware(handle: UsbHandle, firmware: bytes) -> None:
    """Give the loader the firmware, read it back, and reset the port.

    The handle is closed; the stick comes back as another device.

    Raises:
        DeviceError: the loader refuses it, or has other bytes afterwards
    """
    try:
        loader = _Loader(handle)
        loader.download(firmware)
        if loader.upload(len(firmware)) != firmware:
            raise loader.refused("it returned other bytes")
    finally:
        # A loader with the firmware starts it, another one starts anew. Either is another
        # device then, so that this one may be gone.
        with contextlib.suppress(DeviceError):
            handle.reset()
        handle.close()


class _Loader:
    """The requests of DFU to the stick's loader."""

    def __init__(self, handle: UsbHandle) -> None:
        self._handle = handle
        handle.claim(0)
        self._block = self._transfer_size()

    def refused(self, why: str) -> StalledError:
        """Return the error for a loader that does not take the firmware."""
        return StalledError(
            f"the Edge TPU refused its firmware: {why}",
            at=self._handle.device.node,
            hint="unplug the stick and plug it in again",
        )

    def download(self, firmware: bytes) -> None:
        """Send the firmware in blocks; an empty one ends it."""
        state = self._state()[1]
        if state != _STATE_IDLE:
            # Another program has failed, or was ended while it sent or read firmware.
            request = _CLEAR_STATUS if state == _STATE_ERROR else _ABORT
            self._handle.control_out((_TO_INTERFACE, request, 0, 0), b"", _TIMEOUT_S)
        blocks: List[bytes] = [
            firmware[at : at + self._block]
            for at in range(0, len(firmware), self._block)
        ]
        for number, block in enumerate([*blocks, b""]):
            self._handle.control_out(
                (_TO_INTERFACE, _DOWNLOAD, number, 0), block, _TIMEOUT_S
            )
            status, state = self._state()
            if status or state != (_STATE_DOWNLOAD_IDLE if block else _STATE_IDLE):
                raise self.refused(f"status {status}, state {state} at block {number}")

    def upload(self, size: int) -> bytes:
        """Return the first `size` bytes of the firmware that the boot loader has."""
        data = b""
        for number in range(-(-size // self._block) + 1):
            block = self._handle.control_in(
                (_FROM_INTERFACE, _UPLOAD, number, 0), self._block, _TIMEOUT_S
            )
            data += block
            if len(block) < self._block:
                break
        return data[:size]

    def _state(self) -> "tuple[int, int]":
        """Return status and state, after the pause that the loader asks for."""
        answer = self._handle.control_in(
            (_FROM_INTERFACE, _GET_STATUS, 0, 0), 6, _TIMEOUT_S
        )
        if len(answer) != 6:
            raise self.refused(f"its status has {len(answer)} bytes")
        pause = int.from_bytes(answer[1:4], "little")
        time.sleep(min(pause * 1e-3, _TIMEOUT_S))
        return answer[0], answer[4]

    def _transfer_size(self) -> int:
        """Return the size of a block, from the configuration's descriptors."""
        data = self._handle.control_in((0x80, 6, 0x0200, 0), 512, _TIMEOUT_S)
        at = 0
        while at + 2 <= len(data) and data[at]:
            if data[at + 1] == _DFU_FUNCTIONAL and at + 7 <= len(data):
                (size,) = struct.unpack_from("<H", data, at + 5)
                if size:
                    return int(size)
            at += data[at]
        raise self.refused("it does not describe itself as a loader")
