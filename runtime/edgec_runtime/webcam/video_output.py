"""Writes to V4L2 outputs, which may be a virtual camera for other programs
(v4l2loopback) or a screen.

Layouts of pixels are those of <linux/videodev2.h>; colours are those of BT.601 with Y in
16…235 and U and V in 16…240.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple, Type

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError
from ..session.locks import locked
from ..vision.resample import whole
from .v4l2 import CAN_OUTPUT, CAN_STREAM, OUTPUT, RATE, SILENT_S, VideoDevice

Array = NDArray[Any]

LEAST = (640, 480)
"""Least width and height of the output, since sites of video meetings refuse smaller
cameras.
"""

_LUMA = np.array([66, 129, 25], np.float32) / 256
_BLUE = np.array([-38, -74, 112], np.float32) / 256
_RED = np.array([112, -94, -18], np.float32) / 256
"""Weights of red, green and blue for Y, U and V (BT.601); they are exact in float32."""


class _Packing(NamedTuple):
    """A layout of pixels.

    Attributes:
        pack: returns the bytes of a picture with an even width and height, given also
            the bytes from one row to the next
        stride: bytes per pixel of a row without a gap, if the driver names no stride
    """

    pack: Callable[[Array, int], Array]
    stride: int


class VideoOutput:
    """A V4L2 output device; a context manager.

    The first picture sets the size, unless the device has a fixed one. Pictures of
    another size are scaled to fit, with black borders.

    Raises DeviceError if the path is not such a device.
    """

    def __init__(self, path: str) -> None:
        self._device = VideoDevice(
            path, OUTPUT, CAN_OUTPUT, "video output, as a virtual camera is"
        )
        self._pixels: Any = None
        self._packing = PACKINGS[b"YUYV"]
        self._queued: Dict[int, bool] = {}

    def write(self, picture: Array) -> None:
        """Show a picture, uint8 [H,W,3], red first.

        Raises DeviceError if the device refuses it.
        """
        self.write_packed(self.packed(picture))

    def packed(self, picture: Array) -> Array:
        """Return the bytes of a picture, uint8 [H,W,3], in the layout of the device.

        Raises DeviceError for a device without a known layout.
        """
        try:
            if self._pixels is None:
                self._begin(picture.shape[1], picture.shape[0])
        except OSError as e:
            raise self._write_error(e) from e
        size = int(self._pixels.width), int(self._pixels.height)
        stride = int(self._pixels.stride) or self._packing.stride * size[0]
        return self._packing.pack(fitted(picture, size), stride)

    def write_packed(self, data: Array) -> None:
        """Show the bytes of a picture.

        Raises DeviceError if the device refuses them.
        """
        try:
            if self._device.buffers:
                self._queue(data)
            else:
                self._write(data)
        except OSError as e:
            raise self._write_error(e) from e

    def _write_error(self, e: OSError) -> DeviceError:
        """Return the error for a device that takes no frames."""
        return DeviceError(
            f"{self._device.path} takes no frames: {e.strerror}",
            hint="end the program that has it",
        )

    def _begin(self, width: int, height: int) -> None:
        """Set the size, and the first layout that the device supports."""
        if width < LEAST[0] and height < LEAST[1]:
            width, height = LEAST
        # A value of U and V covers two pixels in each direction: both sides are even.
        size = width - width % 2, height - height % 2
        for fourcc, packing in PACKINGS.items():
            self._pixels = self._device.set_format(fourcc, size)
            self._packing = packing
            if int(self._pixels.format).to_bytes(4, "little") == fourcc:
                break
        else:
            names = " nor ".join(f.decode() for f in PACKINGS)
            raise DeviceError(
                f"{self._device.path} takes neither {names}",
                hint="give another device",
            )
        # A device either streams buffers or takes write(); some that stream refuse it.
        if self._device.can & CAN_STREAM:
            self._device.map_buffers()

    def _write(self, data: Array) -> None:
        rest = memoryview(data.tobytes())
        while rest:
            self._wait()
            try:
                rest = rest[os.write(self._device.fd, rest) :]
            except BlockingIOError:
                continue

    def _queue(self, data: Array) -> None:
        free = (i for i in range(len(self._device.buffers)) if i not in self._queued)
        index = next(free, None)
        while index is None:
            self._wait()
            try:
                index = int(self._device.dequeue().index)
            except BlockingIOError:
                continue
        buffer = self._device.buffer(index)
        self._device.buffers[index][: data.size] = data.tobytes()
        buffer.used = data.size
        buffer.field = self._pixels.field
        self._device.queue(buffer)
        # A V4L2 output can be started only with a frame in its queue.
        if not self._queued:
            self._device.start()
        self._queued[index] = True

    def _wait(self) -> None:
        """Wait until the device takes a frame.  Raises TimeoutError."""
        if not select.select([], [self._device.fd], [], SILENT_S)[1]:
            raise TimeoutError(errno.ETIMEDOUT, f"it was full for {SILENT_S:g} s")

    def close(self) -> None:
        """Release the device."""
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


class SteadyOutput:
    """Writes the newest picture to an output at a steady rate, from its own thread.

    A program that reads a camera takes gaps for a fault. If a network is slower than the
    rate, its last picture is written again.  A context manager, which closes the output.

    Args:
        output: the output
        rate: frames a second
    """

    def __init__(self, output: VideoOutput, rate: float = RATE) -> None:
        self._output = output
        self._period_s = 1 / rate
        self._lock, self._changed = locked()
        self._picture: Optional[Array] = None
        self._error: Optional[BaseException] = None
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, name="edgec-virtual-camera", daemon=True
        )

    def show(self, picture: Array) -> None:
        """Set the newest picture, uint8 [H,W,3].

        Raises DeviceError if the output has refused an earlier one.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            self._picture = picture
            self._changed.notify_all()

    def _run(self) -> None:
        """Write until it is closed, or the output fails."""
        try:
            self._write_all()
        except BaseException as e:
            # show() raises it in the thread of the show, where it is reported.
            with self._lock:
                self._error = e

    def _write_all(self) -> None:
        last: Optional[Array] = None
        data = np.zeros(0, np.uint8)
        due = 0.0
        while True:
            with self._lock:
                self._changed.wait_for(
                    lambda: self._stopped or self._picture is not None
                )
                newest = self._picture
                stopped = self._stopped
            # The last picture is shown even if it came just before the end.
            if newest is None or (stopped and newest is last):
                return
            # Packing costs more than writing, so a repeated picture is packed once.
            if newest is not last:
                data = self._output.packed(newest)
                last = newest
            now = time.monotonic()
            # After a delay frames are left out: a burst of them would not look smooth.
            due = max(due + self._period_s, now)
            time.sleep(due - now)
            self._output.write_packed(data)

    def __enter__(self) -> SteadyOutput:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()
        self._output.close()
        if self._error is not None and error is None:
            raise self._error


def fitted(picture: Array, size: Tuple[int, int]) -> Array:
    """Return a picture, uint8 [H,W,3], scaled to fit into a size, with black borders.

    size: width and height
    """
    height, width = picture.shape[:2]
    if (width, height) == size:
        return picture
    scale = min(size[0] / width, size[1] / height)
    inner = max(1, round(width * scale)), max(1, round(height * scale))
    left = (size[0] - inner[0]) // 2
    top = (size[1] - inner[1]) // 2

    out = np.zeros((size[1], size[0], 3), np.uint8)
    scaled = whole(picture, inner, "bilinear")
    out[top : top + inner[1], left : left + inner[0]] = scaled
    return out


def yuyv(picture: Array, stride: int = 0) -> Array:
    """Return a picture, uint8 [H,W,3] with an even width, as YUYV, uint8 [bytes].

    Two neighbours in a row share U and V, which are their means.

    stride: bytes from row to row; 0: 2 W
    """
    height, width = picture.shape[:2]
    pixels = picture.astype(np.float32)
    out = np.zeros((height, stride or 2 * width), np.uint8)
    pairs = (pixels[:, ::2] + pixels[:, 1::2]) / 2

    packed = out[:, : 2 * width]
    packed[:, ::2] = _levels(pixels @ _LUMA, 16)
    packed[:, 1::4] = _levels(pairs @ _BLUE, 128)
    packed[:, 3::4] = _levels(pairs @ _RED, 128)
    return out.reshape(-1)


def i420(picture: Array, stride: int = 0) -> Array:
    """Return a picture, uint8 [H,W,3] with even sides, as I420, uint8 [bytes].

    A plane of Y is followed by those of U and V, which have half the width and height.

    stride: bytes from row to row of Y, twice of U and V; 0: W
    """
    height, width = picture.shape[:2]
    pixels = picture.astype(np.float32)
    rows = pixels[::2] + pixels[1::2]
    blocks = (rows[:, ::2] + rows[:, 1::2]) / 4

    stride = stride or width
    y = np.zeros((height, stride), np.uint8)
    u = np.zeros((height // 2, stride // 2), np.uint8)
    v = np.zeros_like(u)
    y[:, :width] = _levels(pixels @ _LUMA, 16)
    u[:, : width // 2] = _levels(blocks @ _BLUE, 128)
    v[:, : width // 2] = _levels(blocks @ _RED, 128)
    return np.concatenate([y.reshape(-1), u.reshape(-1), v.reshape(-1)])


def _levels(plane: Array, offset: int) -> Array:
    """Return a plane plus an offset, rounded to uint8; all sums have to be positive."""
    return np.asarray(plane + np.float32(offset + 0.5), np.uint8)


PACKINGS: Mapping[bytes, _Packing] = {
    b"YUYV": _Packing(yuyv, 2),
    b"YU12": _Packing(i420, 1),
}
"""The layouts that browsers read from a camera without conversion, the best first."""
