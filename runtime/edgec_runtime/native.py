"""The bundle's own C for frames and results (csrc/ek_frame.h, csrc/ek_boxes.h) behind numpy's arrays."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from .bundle import Bundle
from .cache import extract
from .camera import FORMATS, CameraFrame
from .device_end.slots import machine_target
from .photo import Placement
from .preprocess import Fit
from .resample import padded
from .tensors import TensorInfo

Array = NDArray[Any]
MAX_TAPS = 512
"""EK_FRAME_ROWS."""


class _Frame(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_int), ("width", ctypes.c_int), ("height", ctypes.c_int),
        ("planes", ctypes.c_void_p * 2), ("strides", ctypes.c_int64 * 2),
    ]  # fmt: skip


class _Taps(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int), ("most", ctypes.c_int), ("first", ctypes.c_void_p), ("weights", ctypes.c_void_p)
    ]  # fmt: skip


def library_of(bundle: Bundle) -> Optional[ctypes.CDLL]:
    """The bundle's library for this machine; None where it has none, or it does not load."""
    name = bundle.manifest.libraries.get(machine_target())
    if name is None:
        return None
    try:
        return ctypes.CDLL(str(extract(bundle, name)))
    except OSError:
        return None


def function(library: Optional[ctypes.CDLL], name: str) -> Optional[Any]:
    """A function of the library that returns an int; None where it is not there."""
    found = None if library is None else getattr(library, name, None)
    if found is not None:
        found.restype = ctypes.c_int
    return found


class _Plan:
    """What is the same for all frames of a size: taps, their places in memory, scratch."""

    def __init__(self, size: Tuple[int, int], image: Tuple[int, int], fit: Fit, how: str) -> None:
        place = Placement.of(size, image, fit)
        self.left, self.top, width, height = place.target
        self._keep: List[Array] = []
        self.down = self._taps(how, size[1], place.box[1], place.box[3], height)
        self.across = self._taps(how, size[0], place.box[0], place.box[2], width)
        first = self._keep[2]
        used = int(first[-1]) + self.across.most - int(first[0])
        self.scratch = ((4 * used + 64) & ~63) * (self.down.most + 2) + 4 * width + 64

    def _taps(self, how: str, length: int, start: float, extent: float, count: int) -> _Taps:
        first, weights = padded(how, length, start, extent, count)
        self._keep += [first, weights]
        return _Taps(count, weights.shape[1], first.ctypes.data, weights.ctypes.data)


@functools.lru_cache(maxsize=32)
def _plan(size: Tuple[int, int], image: Tuple[int, int], fit: Fit, how: str) -> _Plan:
    return _Plan(size, image, fit, how)


class FrameInput:
    """Makes one image input of frames with the bundle's C: the same bits as photo.prepare."""

    def __init__(self, function: Any, info: TensorInfo, image: Tuple[int, int], fit: Fit, how: str) -> None:
        self._function, self._info, self._image, self._fit, self._how = function, info, image, fit, how

    def __call__(self, frame: CameraFrame, out: Array) -> bool:
        """Whether it could be done.  out: C-contiguous, of the input's type and shape."""
        planes = [_rows(p) for p in frame.planes]
        plan = _plan(frame.size, self._image, self._fit, self._how)
        if max(plan.down.most, plan.across.most) > MAX_TAPS:
            return False
        scratch = np.empty(plan.scratch + 64, np.uint8)
        at = -scratch.ctypes.data % 64
        given = _Frame(FORMATS.index(frame.format), *frame.size)
        for i, p in enumerate(planes):
            given.planes[i], given.strides[i] = p.ctypes.data, p.strides[0]
        code = self._function(
            ctypes.byref(given), ctypes.byref(plan.down), ctypes.byref(plan.across), plan.left, plan.top,
            ctypes.c_void_p(scratch.ctypes.data + at), ctypes.c_void_p(out.ctypes.data),
        )  # fmt: skip
        return bool(code == 0)


def _rows(plane: Array) -> Array:
    """The same with the pixels of a row next to each other."""
    inner = plane[0] if plane.ndim == 3 else plane[:1]
    dense = inner.flags.c_contiguous and plane.strides[0] >= 0
    return plane if dense else np.ascontiguousarray(plane)


class FoundBoxes:
    """Finds boxes with the bundle's C: the same as tasks.detection.found."""

    def __init__(self, function: Any, rows: int, width: int) -> None:
        self._function, self._rows, self._width = function, rows, width

    def __call__(self, boxes: Array, scores: Array, anchors: Array) -> Array:
        """float32 [K,width]."""
        arrays = [np.ascontiguousarray(a, np.float32) for a in (boxes, scores, anchors)]
        candidates, gone = np.empty((self._rows, 3), np.int32), np.empty(self._rows, np.uint8)
        found = np.empty((self._rows, self._width), np.float32)
        every: Dict[int, Array] = dict(enumerate((*arrays, candidates, gone, found)))
        count = self._function(*(ctypes.c_void_p(a.ctypes.data) for a in every.values()))
        return found[:count]
