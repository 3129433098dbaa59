"""A USB camera that a program is: run as root in the emulated machine until it is
ended, which unplugs it.

It is the far end of a USB/IP socket whose near end is given to the kernel's vhci_hcd;
usbcore and uvcvideo find it as they find any camera.  Not a gadget on dummy_hcd: that
carries no isochronous transfers, which f_uvc needs, and gadgetfs ends the status stage
of a SET_CUR before the program has read it, so that the GET_CUR that follows is
stalled.

USB Video Class 1.0, MJPEG over a bulk endpoint.  The picture's left half is LEFT, its
right half RIGHT.  The standard library and Pillow only.
"""

from __future__ import annotations

import errno
import io
import os
import select
import socket
import struct
import time
from collections import deque

from PIL import Image

WIDTH = 320
HEIGHT = 240
FPS = 10
LEFT = (220, 120, 40)
RIGHT = (40, 80, 200)
NAME = "edgec test camera"
ATTACH = "/sys/devices/platform/vhci_hcd.0/attach"
PAYLOAD = 16384
PATIENCE_S = 30.0
"""Until the port of the one before is free."""

_BYTES = WIDTH * HEIGHT * 2
_INTERVAL = 10_000_000 // FPS
_SUBMIT = 1
_UNLINK = 2
_SUBMITTED = 3
_UNLINKED = 4  # USB/IP
_HIGH_SPEED = 3
_STALL = -errno.EPIPE
_RESET = -errno.ECONNRESET
_INTERFACE = 0x24
_STRING = 3
_PROBE = 1
_COMMIT = 2
_SET_CUR = 1


def _descriptor(kind: int, *fields: bytes) -> bytes:
    body = b"".join(fields)
    return bytes((len(body) + 2, kind)) + body


def device() -> bytes:
    """The device descriptor."""
    return _descriptor(
        1,
        struct.pack(
            "<HBBBBHHHBBBB", 0x0200, 0xEF, 2, 1, 64, 0x1D6B, 0x0104, 0x100, 0, 1, 0, 1
        ),
    )


def configuration() -> bytes:
    """The configuration descriptor with all below it: a control interface, and one that
    streams MJPEG of one size.
    """
    camera = _descriptor(
        _INTERFACE, struct.pack("<BBHBBHHHB", 2, 1, 0x0201, 0, 0, 0, 0, 0, 3), bytes(3)
    )
    units = camera + _descriptor(
        _INTERFACE, struct.pack("<BBHBBB", 3, 2, 0x0101, 0, 1, 0)
    )
    control = (
        _descriptor(
            _INTERFACE,
            struct.pack("<BHHIBB", 1, 0x0100, 13 + len(units), 6_000_000, 1, 1),
        )
        + units
    )
    rate = _BYTES * 8 * FPS
    frame = struct.pack(
        "<BBBHHIIIIBI",
        7,
        1,
        0,
        WIDTH,
        HEIGHT,
        rate,
        rate,
        _BYTES,
        _INTERVAL,
        1,
        _INTERVAL,
    )
    formats = _descriptor(_INTERFACE, bytes((6, 1, 1, 1, 1, 0, 0, 0, 0))) + _descriptor(
        _INTERFACE, frame
    )
    formats += _descriptor(_INTERFACE, bytes((0x0D, 1, 1, 4)))
    head = struct.pack(
        "<BBHBBBBBBBB", 1, 1, 14 + len(formats), 0x81, 0, 2, 0, 0, 0, 1, 0
    )
    streaming = _descriptor(_INTERFACE, head) + formats
    parts = _descriptor(0x0B, bytes((0, 2, 0x0E, 3, 0, 0)))
    parts += _descriptor(4, bytes((0, 0, 0, 0x0E, 1, 0, 0))) + control
    parts += _descriptor(4, bytes((1, 0, 1, 0x0E, 2, 0, 0))) + streaming
    parts += _descriptor(5, struct.pack("<BBHB", 0x81, 2, 512, 0))
    return (
        _descriptor(2, struct.pack("<HBBBBB", 9 + len(parts), 2, 1, 0, 0x80, 50))
        + parts
    )


def settings() -> bytes:
    """Of a video probe and commit: the one thing that it streams."""
    return struct.pack(
        "<HBBIHHHHHII", 1, 1, 1, _INTERVAL, 0, 0, 0, 0, 0, _BYTES, PAYLOAD
    )


def picture() -> bytes:
    """The frame, as JPEG."""
    image = Image.new("RGB", (WIDTH, HEIGHT), LEFT)
    image.paste(RIGHT, (WIDTH // 2, 0, WIDTH, HEIGHT))
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG", quality=90)
    return jpeg.getvalue()


def payloads(data: bytes, number: int) -> list[bytes]:
    """Of a frame: each has a header that says which frame it is of, and the last one
    that it is the last.
    """
    size = PAYLOAD - 2
    starts = range(0, len(data), size)
    return [
        bytes((2, 0x80 | number & 1 | 2 * (i + size >= len(data)))) + data[i : i + size]
        for i in starts
    ]


class Camera:
    """Answers what the kernel asks, and fills the transfers it has asked for with
    frames.
    """

    def __init__(self) -> None:
        self._socket, kernels = socket.socketpair()
        # bulk ones that wait for a frame, by number
        self._transfers: deque[int] = deque()
        self._payloads: deque[bytes] = deque()
        self._frame = 0
        self._next = 0.0
        with kernels:
            _plug(kernels.fileno())

    def serve(self) -> None:
        """Until the kernel lets go of it."""
        data = picture()
        while True:
            left = max(0.0, self._next - time.monotonic()) if self._transfers else None
            if select.select([self._socket], [], [], left)[0]:
                if not self._answer():
                    return
            elif not self._payloads:
                self._payloads.extend(payloads(data, self._frame))
                self._frame += 1
            while self._transfers and self._payloads:
                self._submitted(self._transfers.popleft(), 0, self._payloads.popleft())
                if not self._payloads:
                    self._next = time.monotonic() + 1 / FPS

    def _take(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count and (piece := self._socket.recv(count - len(taken))):
            taken += piece
        return taken

    def _answer(self) -> bool:
        """One packet of USB/IP's; False when there are no more."""
        head = self._take(48)
        if len(head) < 48:
            return False
        command, number, _, inwards, endpoint = struct.unpack_from(">IIIII", head)
        if command == _UNLINK:
            self._unlink(number, *struct.unpack_from(">I", head, 20))
        elif command == _SUBMIT and endpoint:
            self._transfers.append(number)
        elif command == _SUBMIT:
            length = struct.unpack_from(">I", head, 24)[0]
            data = b"" if inwards else self._take(length)
            answer = self._control(*struct.unpack_from("<BBHHH", head, 40))
            if answer is None:
                self._submitted(number, _STALL, b"")
            elif inwards:
                self._submitted(number, 0, answer[:length])
            else:
                self._send(_SUBMITTED, number, 0, len(data), b"")
        return True

    def _unlink(self, number: int, which: int) -> None:
        waits = which in self._transfers
        if waits:
            self._transfers.remove(which)
        self._send(_UNLINKED, number, _RESET if waits else 0, 0, b"")

    def _submitted(self, number: int, status: int, data: bytes) -> None:
        self._send(_SUBMITTED, number, status, len(data), data)

    def _send(
        self, command: int, number: int, status: int, length: int, data: bytes
    ) -> None:
        self._socket.sendall(
            struct.pack(">IIIIIiI20x", command, number, 0, 0, 0, status, length) + data
        )

    def _control(
        self, kind: int, request: int, value: int, index: int, length: int
    ) -> bytes | None:
        """What endpoint 0 says; None for a stall."""
        high = value >> 8
        if kind == 0x80 and request == 6:  # GET_DESCRIPTOR
            strings = (
                _descriptor(_STRING, b"\x09\x04"),
                _descriptor(_STRING, NAME.encode("utf-16-le")),
            )
            string = strings[value & 0xFF] if value & 0xFF < len(strings) else None
            return {1: device(), 2: configuration(), _STRING: string}.get(high)
        if kind in (0x80, 0x81, 0x82) and request == 0:  # GET_STATUS
            return bytes(2)
        if kind & 0x7F == 0x21 and index == 1 and high in (_PROBE, _COMMIT):
            if request == _SET_CUR and high == _COMMIT:
                self._payloads.clear()
            # GET_LEN, GET_INFO
            known = {0x85: struct.pack("<H", len(settings())), 0x86: b"\x03"}
            return known.get(
                request,
                settings() if request in (_SET_CUR, 0x81, 0x82, 0x83, 0x87) else None,
            )
        # SET_CONFIGURATION, SET_INTERFACE, CLEAR_FEATURE
        return b"" if kind in (0, 1, 2) else None


def _plug(near: int) -> None:
    """Gives that end of a socket to the kernel, which keeps it."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with open(ATTACH, "w") as attach:
                attach.write(f"0 {near} {1 << 16 | 1} {_HIGH_SPEED}")
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    if not os.path.exists(ATTACH):
        raise SystemExit("there is no vhci_hcd; modprobe it")
    Camera().serve()
