"""Reads cameras of Linux by the ioctls of V4L2, so that the device needs no library.

Layouts are those of <linux/videodev2.h>.  The driver fills buffers with a camera's
frames, which are mapped into this process.  An output takes frames in such buffers, or
by write() if it has none.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import mmap
import os
import select
import sys
import time
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, InputError
from ..vision.camera import CameraFrame, decode_jpeg

Array = NDArray[Any]

SIZE = (640, 480)
"""Default width and height of a camera's frames."""
RATE = 30.0
"""Default frames per second of a camera."""
ENOUGH = 24.0
"""Frames per second; for less than that a camera is set to JPEG, which needs less of
USB's bandwidth.
"""
SILENT_S = 5.0
"""Seconds without a frame after which a camera counts as gone."""

CAPTURE = 1
OUTPUT = 2
"""V4L2_BUF_TYPE_VIDEO_…, the directions of a device."""
_MMAP = 1  # V4L2_MEMORY_MMAP
_NONE = 1  # V4L2_FIELD_NONE
CAN_CAPTURE = 1
CAN_OUTPUT = 2
CAN_STREAM = 1 << 26
"""V4L2_CAP_…, the bits of its capabilities."""
_HAS_NODE_CAPABILITIES = 1 << 31  # V4L2_CAP_DEVICE_CAPS
_BUFFERS = 4
_ERROR_FLAG = 0x40  # V4L2_BUF_FLAG_ERROR
_DAMAGED = 30
"""Number of damaged frames in a row after which reading fails."""
FORMATS = {
    **{b"YUYV": "yuyv", b"NV12": "nv12", b"MJPG": "jpeg", b"JPEG": "jpeg"},
    **{b"RGB3": "rgb", b"BGR3": "bgr", b"GREY": "gray"},
}
"""The readable formats of V4L2 by CameraFrame's names, the preferred first."""


class _Capability(ctypes.Structure):
    _fields_ = [
        ("driver", ctypes.c_char * 16),
        ("card", ctypes.c_char * 32),
        ("bus", ctypes.c_char * 32),
        ("version", ctypes.c_uint32),
        ("capabilities", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32 * 3),
    ]


class _Description(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("description", ctypes.c_char * 32),
        ("format", ctypes.c_uint32),
        ("more", ctypes.c_uint32 * 4),
    ]


class _Pixels(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint32)
        for name in (
            "width",
            "height",
            "format",
            "field",
            "stride",
            "size",
            "colors",
            "private",
            "flags",
            "encoding",
            "range",
            "transfer",
        )
    ]


class _AnyFormat(ctypes.Union):
    _fields_ = [
        ("pixels", _Pixels),
        ("raw", ctypes.c_uint8 * 200),
        ("aligned", ctypes.c_void_p),
    ]


class _Format(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("of", _AnyFormat)]


class _Parameters(ctypes.Structure):
    """struct v4l2_streamparm with v4l2_captureparm: capability, mode, time per frame."""

    _fields_ = [
        ("type", ctypes.c_uint32),
        ("capability", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("numerator", ctypes.c_uint32),
        ("denominator", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 184),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("memory", ctypes.c_uint32),
        ("capabilities", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    ]


class _Place(ctypes.Union):
    _fields_ = [("offset", ctypes.c_uint32), ("pointer", ctypes.c_ulong)]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_uint32),
        ("type", ctypes.c_uint32),
        ("used", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("field", ctypes.c_uint32),
        ("time", ctypes.c_long * 2),
        ("timecode", ctypes.c_uint8 * 16),
        ("sequence", ctypes.c_uint32),
        ("memory", ctypes.c_uint32),
        ("place", _Place),
        ("length", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("request", ctypes.c_int32),
    ]


def _code(direction: int, number: int, kind: Any) -> int:
    # _IOC of <asm-generic/ioctl.h>: direction, size of the argument, type, number.
    return direction << 30 | ctypes.sizeof(kind) << 16 | ord("V") << 8 | number


_QUERYCAP = _code(2, 0, _Capability)
_ENUM_FMT = _code(3, 2, _Description)
_S_FMT = _code(3, 5, _Format)
_REQBUFS = _code(3, 8, _Request)
_QUERYBUF = _code(3, 9, _Buffer)
_QBUF = _code(3, 15, _Buffer)
_DQBUF = _code(3, 17, _Buffer)
_STREAMON = _code(1, 18, ctypes.c_int)
_S_PARM = _code(3, 22, _Parameters)


class VideoDevice:
    """An opened device node of V4L2.

    Args:
        path: the node
        kind: its direction, CAPTURE or OUTPUT
        required: the capability that it has to have, CAN_…
        name: a name for such a device, for the error

    Attributes:
        can: the bits of its capabilities
        name: the name that its driver gives it
        buffers: the mapped buffers

    Raises:
        DeviceError: the node cannot be opened, or lacks the capability
    """

    def __init__(self, path: str, kind: int, required: int, name: str) -> None:
        if sys.platform != "linux":
            raise DeviceError(
                f"{path} is V4L2's, and this is {sys.platform}",
                hint="give a video or a URL",
            )
        self.path = path
        self.kind = kind
        self.buffers: List[mmap.mmap] = []
        try:
            # The node does not block: select() waits, which has a time limit.
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            if e.errno in (errno.ENOENT, errno.ENODEV):
                hint = "plug it in"
            else:
                hint = "sudo usermod -aG video $USER"
            raise DeviceError(f"cannot open {path}: {e.strerror}", hint=hint) from e
        try:
            # A device may have several nodes, which have capabilities of their own.
            answer = self.ask(_QUERYCAP, _Capability())
            if answer.capabilities & _HAS_NODE_CAPABILITIES:
                self.can = answer.device
            else:
                self.can = answer.capabilities
            self.name = answer.card.decode(errors="replace")
        except OSError:
            # A node without an answer is not a video device.
            self.can = 0
            self.name = ""
        if not self.can & required:
            self.close()
            raise DeviceError(
                f"{path} is not a {name}",
                hint="v4l2-ctl --list-devices shows which is what",
            )

    def ask(self, code: int, structure: Any) -> Any:
        """Call an ioctl; return its structure, which the driver has changed.

        Raises OSError.
        """
        # Not every system on which this module is imported has it.
        from fcntl import ioctl

        ioctl(self.fd, code, structure)
        return structure

    def formats(self) -> List[bytes]:
        """Return the formats of the device as fourccs."""
        fourccs: List[bytes] = []
        try:
            while True:
                description = self.ask(
                    _ENUM_FMT, _Description(index=len(fourccs), type=self.kind)
                )
                fourccs.append(int(description.format).to_bytes(4, "little"))
        except OSError:
            # The error marks the end of the list.
            return fourccs

    def set_format(self, fourcc: bytes, size: Tuple[int, int]) -> Any:
        """Set the format, and a size that is near a width and height.

        Return the device's choice, with its stride and size in bytes.
        """
        format = _Format(type=self.kind)
        pixels = format.of.pixels
        # _NONE means whole frames, not the half frames of interlaced video.
        pixels.width, pixels.height, pixels.field = *size, _NONE
        pixels.format = int.from_bytes(fourcc, "little")
        return self.ask(_S_FMT, format).of.pixels

    def map_buffers(self) -> None:
        """Map the buffers of the driver into this process."""
        count = self.ask(_REQBUFS, _Request(_BUFFERS, self.kind, _MMAP)).count
        for i in range(count):
            buffer = self.ask(_QUERYBUF, self.buffer(i))
            self.buffers.append(
                mmap.mmap(self.fd, buffer.length, offset=buffer.place.offset)
            )

    def buffer(self, index: int = 0) -> _Buffer:
        """Return the description of a buffer, for requests about it."""
        return _Buffer(index=index, type=self.kind, memory=_MMAP)

    def queue(self, buffer: _Buffer) -> None:
        """Give a buffer to the driver, to fill or to show."""
        self.ask(_QBUF, buffer)

    def dequeue(self) -> _Buffer:
        """Return a buffer that the driver has finished.

        Raises BlockingIOError if there is none yet.
        """
        buffer: _Buffer = self.ask(_DQBUF, self.buffer())
        return buffer

    def start(self) -> None:
        """Let the driver begin to fill or to show buffers."""
        self.ask(_STREAMON, ctypes.c_int(self.kind))

    def close(self) -> None:
        """Close the device, which also ends streaming."""
        for memory in self.buffers:
            memory.close()
        self.buffers = []
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


class Camera:
    """A V4L2 capture device that streams.

    Attributes:
        format: "yuyv", "nv12", "jpeg", "rgb", "bgr" or "gray"
        size: width and height
        rate: frames a second
    """

    def __init__(
        self,
        path: str,
        format: Optional[str] = None,
        size: Optional[Tuple[int, int]] = None,
        rate: Optional[float] = None,
    ) -> None:
        """Open a camera and start its stream.

        Args:
            path: the device
            format: the format; None for the best
            size: width and height; None for `SIZE`
            rate: frames per second; None for `RATE`

        Raises:
            DeviceError: the device is not a camera, or does not stream
            InputError: the camera does not have the format
        """
        self._device = VideoDevice(path, CAPTURE, CAN_CAPTURE, "camera")
        self._damaged = 0
        try:
            fourccs = self._formats(path, format)
            self._choose(fourccs, size or SIZE, rate or RATE)
            self._device.map_buffers()
            # The driver drops frames for which it has no buffer, so it gets all of
            # them.
            for i in range(len(self._device.buffers)):
                self._device.queue(self._device.buffer(i))
            self._device.start()
        except OSError as e:
            self.close()
            is_busy = e.errno == errno.EBUSY
            hint = "another program has it" if is_busy else "plug it in again"
            raise DeviceError(f"{path} does not stream: {e.strerror}", hint=hint) from e
        except BaseException:
            self.close()
            raise

    def _formats(self, path: str, format: Optional[str]) -> List[bytes]:
        """Return the camera's readable formats as fourccs, the best first.

        Args:
            path: the device, for the error
            format: a name; None for all formats
        """
        readable = [f for f in FORMATS if f in self._device.formats()]
        matches = [f for f in readable if format in (None, FORMATS[f])]
        if matches:
            return matches

        names = sorted({FORMATS[f] for f in readable})
        has = ", ".join(names) or "nothing that can be read"
        what = f"{path} gives {has}"
        if format:
            what += f", not {format}"
        # Such a camera gives raw Bayer data, which only libcamera turns into pictures.
        pi_hint = "a Raspberry Pi's own camera is --source picamera"
        raise InputError(what, hint="" if readable else pi_hint)

    def _choose(
        self, fourccs: Sequence[bytes], size: Tuple[int, int], rate: float
    ) -> None:
        """Set the first format, or JPEG if the camera is too slow with that.

        JPEG is set only if an installed library can decode it.
        """
        jpegs = [f for f in fourccs if FORMATS[f] == "jpeg"]

        # Uncompressed frames need no decoding, but USB 2 carries few of them.
        plain = [f for f in fourccs if f not in jpegs]
        self._set((plain or jpegs)[0], size, rate)
        if plain and jpegs and self.rate < min(ENOUGH, rate) and _decodes_jpeg():
            self._set(jpegs[0], size, rate)

    def _set(self, fourcc: bytes, size: Tuple[int, int], rate: float) -> None:
        self._pixels = self._device.set_format(fourcc, size)
        self.format = FORMATS[int(self._pixels.format).to_bytes(4, "little")]
        self.size = int(self._pixels.width), int(self._pixels.height)
        self.rate = 0.0
        parameters = _Parameters(
            type=CAPTURE, numerator=1000, denominator=round(1000 * rate)
        )
        try:
            parameters = self._device.ask(_S_PARM, parameters)
            self.rate = parameters.denominator / (parameters.numerator or 1)
        except OSError:  # a camera with a single rate may not tell it
            self.rate = rate

    def read(self) -> CameraFrame:
        """Return the next frame, which has its own memory.

        Raises OSError if the camera is unplugged or gives no frame.
        """
        while True:
            data = self._next()
            if self.format != "jpeg":
                return self._frame(data)
            try:
                frame = decode_jpeg(data.tobytes())
                self._damaged = 0
                return frame
            except InputError:
                # USB cameras send a broken JPEG now and then; many in a row mean that
                # no frame will be readable.
                self._damaged += 1
                if self._damaged == _DAMAGED or not _decodes_jpeg():
                    raise

    def _next(self) -> Array:
        """Return the bytes of the next complete frame, uint8 [N]."""
        until = time.monotonic() + SILENT_S
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"no frame in {SILENT_S:g} s")

            select.select([self._device.fd], [], [], left)
            try:
                buffer = self._device.dequeue()
            except BlockingIOError:
                continue

            # A copy, since the driver fills the buffer again.
            data = np.frombuffer(self._device.buffers[buffer.index], np.uint8)[
                : buffer.used
            ].copy()
            self._device.queue(self._device.buffer(buffer.index))
            # A frame with lost packets is shorter; the length of a JPEG is not known.
            is_complete = self.format == "jpeg" or data.size >= self._bytes()
            if is_complete and not buffer.flags & _ERROR_FLAG:
                return data

    def _bytes(self) -> int:
        """Return the bytes of an uncompressed frame."""
        rows = self.size[1] * 3 // 2 if self.format == "nv12" else self.size[1]
        return int(self._pixels.stride) * rows

    def _frame(self, data: Array) -> CameraFrame:
        """Return the frame in the bytes of a buffer, whose rows may have gaps."""
        (width, height), stride = self.size, int(self._pixels.stride)
        rows = data[: self._bytes()].reshape(-1, stride)
        if self.format == "nv12":
            return CameraFrame("nv12", (rows[:height, :width], rows[height:, :width]))

        channels = {"yuyv": 2, "gray": 1}.get(self.format, 3)
        pixels = rows[:, : width * channels]
        return CameraFrame(
            self.format,
            (pixels.reshape(height, width, channels) if channels > 1 else pixels,),
        )

    def close(self) -> None:
        """Release the device."""
        self._device.close()


def _decodes_jpeg() -> bool:
    for name in ("cv2", "PIL.Image"):
        try:
            importlib.import_module(name)
            return True
        except ImportError:
            continue
    return False
