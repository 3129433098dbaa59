"""Cameras and virtual cameras of Linux, by the ioctls of V4L2 alone: no library needs
to be on the device.

Layouts are those of <linux/videodev2.h>.  A camera's frames come in buffers that the
driver fills and we map; an output takes frames in such buffers, or by write() where it
has none.
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
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, InputError
from ..vision.camera import CameraFrame, decode_jpeg

Array = NDArray[Any]

SIZE = (640, 480)
"""Of a camera, where none is asked for."""
RATE = 30.0
ENOUGH = 24.0
"""Frames per second; with less, a camera is asked for JPEG, which needs less of its
cable.
"""
SILENT_S = 5.0
"""Seconds without a frame after which a camera counts as gone."""

_CAPTURE = 1
_OUTPUT = 2
_MMAP = 1
_NONE = 1
_CAP_CAPTURE = 1
_CAP_OUTPUT = 2
_CAP_STREAMING = 1 << 26
_CAP_DEVICE = 1 << 31
_BUFFERS = 4
_ERROR_FLAG = 0x40
_DAMAGED = 30
"""Frames in a row that may be damaged."""
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
    """struct v4l2_captureparm: capability, mode, time per frame."""

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


class _Device:
    """An opened device node of one direction.  Raises DeviceError where it is none."""

    def __init__(self, path: str, kind: int, wanted: int, what: str) -> None:
        if sys.platform != "linux":
            raise DeviceError(
                f"{path} is V4L2's, and this is {sys.platform}",
                hint="give a video or a URL",
            )
        self.path = path
        self.kind = kind
        self.buffers: List[mmap.mmap] = []
        try:
            # Not blocking: all waiting is done by select(), which has a limit of time.
            self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            if e.errno in (errno.ENOENT, errno.ENODEV):
                hint = "plug it in"
            else:
                hint = "sudo usermod -aG video $USER"
            raise DeviceError(f"cannot open {path}: {e.strerror}", hint=hint) from e
        try:
            # A node's own capabilities, where the driver tells them apart from the device's.
            found = self.ask(_QUERYCAP, _Capability())
            if found.capabilities & _CAP_DEVICE:
                self.can = found.device
            else:
                self.can = found.capabilities
            self.name = found.card.decode(errors="replace")
        except OSError:
            # A node that does not answer is no video device.
            self.can = 0
            self.name = ""
        if not self.can & wanted:
            self.close()
            raise DeviceError(
                f"{path} is no {what}",
                hint="v4l2-ctl --list-devices shows which is what",
            )

    def ask(self, code: int, about: Any) -> Any:
        """An ioctl, again where a signal came in between.  Raises OSError."""
        from fcntl import ioctl  # not on every system that this file is read on

        ioctl(self.fd, code, about)
        return about

    def formats(self) -> List[bytes]:
        """Return the formats of the device as fourccs."""
        found: List[bytes] = []
        try:
            while True:
                one = self.ask(
                    _ENUM_FMT, _Description(index=len(found), type=self.kind)
                )
                found.append(int(one.format).to_bytes(4, "little"))
        except OSError:
            # Its error marks the end of the list.
            return found

    def set_format(self, fourcc: bytes, size: Tuple[int, int]) -> Any:
        """Set the format and a size near to the wanted one.

        Return the device's choice, with its stride and size in bytes.
        """
        wanted = _Format(type=self.kind)
        pixels = wanted.of.pixels
        # V4L2_FIELD_NONE: whole frames, not the half frames of interlaced video.
        pixels.width, pixels.height, pixels.field = *size, _NONE
        pixels.format = int.from_bytes(fourcc, "little")
        return self.ask(_S_FMT, wanted).of.pixels

    def map_buffers(self) -> None:
        """Map the memory shared by driver and program."""
        count = self.ask(_REQBUFS, _Request(_BUFFERS, self.kind, _MMAP)).count
        for i in range(count):
            buffer = self.ask(_QUERYBUF, self.buffer(i))
            self.buffers.append(
                mmap.mmap(self.fd, buffer.length, offset=buffer.place.offset)
            )

    def buffer(self, index: int = 0) -> _Buffer:
        """Return the description of a buffer, for requests about it."""
        return _Buffer(index=index, type=self.kind, memory=_MMAP)

    def start(self) -> None:
        """Begin to fill, or to show, buffers."""
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
        """Open a camera, and let it stream.

        Args:
            path: the device
            format: the format; None: the best
            size: width and height; None: `SIZE`
            rate: frames a second; None: `RATE`

        Raises:
            DeviceError: the device is no camera, or does not stream
            InputError: the camera does not have the format
        """
        self._device = _Device(path, _CAPTURE, _CAP_CAPTURE, "camera")
        self._damaged = 0
        try:
            wanted = self._wanted_formats(path, format)
            self._choose(wanted, size or SIZE, rate or RATE)
            self._device.map_buffers()
            # The driver drops frames for which it has no buffer, so it gets all of
            # them.
            for i in range(len(self._device.buffers)):
                self._device.ask(_QBUF, self._device.buffer(i))
            self._device.start()
        except OSError as e:
            self.close()
            is_busy = e.errno == errno.EBUSY
            hint = "another program has it" if is_busy else "plug it in again"
            raise DeviceError(f"{path} does not stream: {e.strerror}", hint=hint) from e
        except BaseException:
            self.close()
            raise

    def _wanted_formats(self, path: str, format: Optional[str]) -> List[bytes]:
        """Return the camera's formats with a name, the best first; None: with any."""
        offered = [f for f in FORMATS if f in self._device.formats()]
        wanted = [f for f in offered if format in (None, FORMATS[f])]
        if wanted:
            return wanted

        names = sorted({FORMATS[f] for f in offered})
        has = ", ".join(names) or "nothing that can be read"
        what = f"{path} gives {has}"
        if format:
            what += f", not {format}"
        # Raw Bayer data, which libcamera alone can turn into a picture.
        pi_hint = "a Raspberry Pi's own camera is --source picamera"
        raise InputError(what, hint="" if offered else pi_hint)

    def _choose(
        self, wanted: Sequence[bytes], size: Tuple[int, int], rate: float
    ) -> None:
        """Choose the first format, or JPEG where that is too slow.

        JPEG only if a library here can decode it.
        """
        jpegs = [f for f in wanted if FORMATS[f] == "jpeg"]

        # Uncompressed frames cost no time to decode, but USB 2 carries few of them.
        plain = [f for f in wanted if f not in jpegs]
        self._set((plain or jpegs)[0], size, rate)
        if plain and jpegs and self.rate < min(ENOUGH, rate) and _decodes():
            self._set(jpegs[0], size, rate)

    def _set(self, fourcc: bytes, size: Tuple[int, int], rate: float) -> None:
        self._pixels = self._device.set_format(fourcc, size)
        self.format = FORMATS[int(self._pixels.format).to_bytes(4, "little")]
        self.size = int(self._pixels.width), int(self._pixels.height)
        self.rate = 0.0
        parameters = _Parameters(
            type=_CAPTURE, numerator=1000, denominator=round(1000 * rate)
        )
        try:
            parameters = self._device.ask(_S_PARM, parameters)
            self.rate = parameters.denominator / (parameters.numerator or 1)
        except OSError:  # some have one rate and do not tell it
            self.rate = rate

    def read(self) -> CameraFrame:
        """The next frame, in memory of its own.

        Raises OSError when the camera is gone, or gives nothing.
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
                if self._damaged == _DAMAGED or not _decodes():
                    raise

    def _next(self) -> Array:
        until = time.monotonic() + SILENT_S
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"no frame in {SILENT_S:g} s")

            select.select([self._device.fd], [], [], left)
            try:
                buffer = self._device.ask(_DQBUF, self._device.buffer())
            except BlockingIOError:
                continue

            # A copy, since the driver fills the buffer again.
            data = np.frombuffer(self._device.buffers[buffer.index], np.uint8)[
                : buffer.used
            ].copy()
            self._device.ask(_QBUF, self._device.buffer(buffer.index))
            # A frame whose packets were lost is shorter; a JPEG's length is not known.
            whole = self.format == "jpeg" or data.size >= self._bytes()
            if whole and not buffer.flags & _ERROR_FLAG:
                return data

    def _bytes(self) -> int:
        """Return the bytes of an uncompressed frame."""
        rows = self.size[1] * 3 // 2 if self.format == "nv12" else self.size[1]
        return int(self._pixels.stride) * rows

    def _frame(self, data: Array) -> CameraFrame:
        """Rows may have gaps between them."""
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
        """Give the device back to the system."""
        self._device.close()


def _decodes() -> bool:
    for name in ("cv2", "PIL.Image"):
        try:
            importlib.import_module(name)
            return True
        except ImportError:
            continue
    return False


class VideoOutput:
    """A V4L2 output device, which other programs see as a camera (v4l2loopback), or a
    screen.  A context manager.

    Frames go out as YUYV.  The first one sets the size; others, and all where the
    device has a size of its own, are brought to it by the nearest pixel.  Raises
    DeviceError.
    """

    def __init__(self, path: str) -> None:
        self._device = _Device(
            path, _OUTPUT, _CAP_OUTPUT, "video output, as a virtual camera is"
        )
        self._pixels: Any = None
        self._queued: Dict[int, bool] = {}

    def write(self, picture: Array) -> None:
        """uint8 [H,W,3], red first.

        Raises DeviceError when the device takes no more.
        """
        try:
            if self._pixels is None:
                self._begin(picture.shape[1], picture.shape[0])
            data = self._packed(picture)
            if self._device.buffers:
                self._queue(data)
            else:
                self._write(data)
        except OSError as e:
            path = self._device.path
            raise DeviceError(
                f"{path} takes no frames: {e.strerror}",
                hint="another program may have it",
            ) from e

    def _begin(self, width: int, height: int) -> None:
        # YUYV stores pixels in pairs, so the width must be even.
        self._pixels = self._device.set_format(b"YUYV", (width - width % 2, height))
        if int(self._pixels.format).to_bytes(4, "little") != b"YUYV":
            raise DeviceError(
                f"{self._device.path} does not take YUYV", hint="give another device"
            )
        # else by write(), which some of those that stream refuse
        if self._device.can & _CAP_STREAMING:
            self._device.map_buffers()

    def _packed(self, picture: Array) -> Array:
        """The bytes of a frame of the device's size."""
        width = int(self._pixels.width)
        height = int(self._pixels.height)
        if picture.shape[:2] != (height, width):
            y, x = (
                np.arange(n) * was // n
                for n, was in zip((height, width), picture.shape)
            )
            picture = picture[y][:, x]
        stride = int(self._pixels.stride) or 2 * width
        frame = np.zeros((height, stride), np.uint8)
        frame[:, : 2 * width] = yuyv(picture).reshape(height, 2 * width)
        return frame.reshape(-1)

    def _write(self, data: Array) -> None:
        left = memoryview(data.tobytes())
        while left:
            if not select.select([], [self._device.fd], [], SILENT_S)[1]:
                raise TimeoutError(errno.ETIMEDOUT, f"it was full for {SILENT_S:g} s")
            try:
                left = left[os.write(self._device.fd, left) :]
            except BlockingIOError:
                continue

    def _queue(self, data: Array) -> None:
        index = next(
            (i for i in range(len(self._device.buffers)) if i not in self._queued), None
        )
        while index is None:
            if not select.select([], [self._device.fd], [], SILENT_S)[1]:
                raise TimeoutError(errno.ETIMEDOUT, f"it was full for {SILENT_S:g} s")
            try:
                index = int(self._device.ask(_DQBUF, self._device.buffer()).index)
            except BlockingIOError:
                continue
        buffer = self._device.buffer(index)
        self._device.buffers[index][: data.size] = data.tobytes()
        buffer.used = data.size
        buffer.field = self._pixels.field
        self._device.ask(_QBUF, buffer)
        # V4L2 outputs start with a frame in their queue.
        if not self._queued:
            self._device.start()
        self._queued[index] = True

    def close(self) -> None:
        """Give the device back to the system."""
        self._device.close()

    def __enter__(self) -> VideoOutput:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


def yuyv(picture: Array) -> Array:
    """uint8 [H,W,2] of uint8 [H,W,3], red first, W even: BT.601 with Y in 16…235, two
    pixels share their color.
    """
    r, g, b = (picture[..., i].astype(np.int32) for i in range(3))
    out = np.empty((*picture.shape[:2], 2), np.uint8)
    # Coefficients times 256; 4224 is 16 * 256 and half a unit for rounding.
    out[..., 0] = (66 * r + 129 * g + 25 * b + 4224) >> 8
    r, g, b = (c[:, ::2] + c[:, 1::2] for c in (r, g, b))
    # The sum of two pixels, hence times 512; 65792 is 128 * 512 and half a unit.
    out[:, ::2, 1] = (-38 * r - 74 * g + 112 * b + 65792) >> 9
    out[:, 1::2, 1] = (112 * r - 94 * g - 18 * b + 65792) >> 9
    return out
