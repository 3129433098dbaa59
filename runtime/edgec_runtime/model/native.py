"""Calls the bundle's C for frames and results with numpy's arrays (csrc/ek_frame.h,
csrc/ek_crop.h, csrc/ek_boxes.h, csrc/ek_matte.h, csrc/ek_warp.h).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
from typing import Any, List, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..bundle.archive import Bundle
from ..device_end.bundles import machine_target
from ..errors import BundleError, DeviceError, InputError
from ..face.warping import Warp, warp_into
from ..tensors import TensorInfo
from ..vision.camera import FORMATS, CameraFrame
from ..vision.crop import Crop, CropGrid
from ..vision.photo import Placement
from ..vision.preprocess import Fit, Preprocess
from ..vision.resample import padded, whole
from ..vision.tasks import task_json
from ..vision.tasks.base import Task
from ..vision.tasks.detection import Detection
from .library import load_library

Array = NDArray[Any]
MAX_TAPS = 512
"""Largest number of taps of C: EK_FRAME_ROWS."""


class _Frame(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("planes", ctypes.c_void_p * 2),
        ("strides", ctypes.c_int64 * 2),
    ]


class _Taps(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_int),
        ("most", ctypes.c_int),
        ("first", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
    ]


class _WarpArguments(ctypes.Structure):
    """The arguments of csrc/ek_warp.h, in its order."""

    _fields_ = [
        ("source", ctypes.c_void_p),
        ("source_width", ctypes.c_int),
        ("source_height", ctypes.c_int),
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("gain", ctypes.c_void_p),
        ("triangles", ctypes.c_void_p),
        ("corners", ctypes.c_int),
        ("count", ctypes.c_int),
        ("blend", ctypes.c_int),
        ("out", ctypes.c_void_p),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
    ]


def made_for(preprocess: Mapping[str, Preprocess], task: Optional[Task]) -> str:
    """Return the hash of the constants in the C of frames and boxes.

    Library and manifest must have the same hash.
    """
    constants = [
        {name: p.to_json() for name, p in preprocess.items()},
        None if task is None else task_json(task),
    ]
    return hashlib.sha256(json.dumps(constants, sort_keys=True).encode()).hexdigest()


def library_of(bundle: Bundle) -> Optional[ctypes.CDLL]:
    """Return the bundle's library for this machine.

    None if there is none, if it cannot be loaded, or if it has no C for frames.

    Raises BundleError if the library was made for another preprocessing or task than
    that of the manifest.
    """
    m = bundle.manifest
    if machine_target() not in m.libraries:
        return None
    try:
        library = load_library(bundle, machine_target())
        constants = ctypes.string_at(
            ctypes.addressof(ctypes.c_char.in_dll(library, "edgec_vision_for"))
        ).decode()
    except (DeviceError, ValueError):  # ctypes raises ValueError for a missing symbol
        return None

    # With other constants the C would compute something else than the manifest says.
    if constants != made_for(m.preprocess, m.task):
        what = (
            "the bundle's library was made for another preprocessing or task than "
            "the manifest says"
        )
        raise BundleError(what, at=str(bundle.path), hint="compile the model again")
    return library


def function(library: Optional[ctypes.CDLL], name: str) -> Optional[Any]:
    """Return a function of the library with an int as result; None if it is missing."""
    result = None if library is None else getattr(library, name, None)
    if result is not None:
        result.restype = ctypes.c_int
    return result


class _Plan:
    """The taps in memory, and the size of the scratch, for frames of one size."""

    def __init__(
        self, size: Tuple[int, int], image: Tuple[int, int], fit: Fit, how: str
    ) -> None:
        placement = Placement.of(size, image, fit)
        box = placement.box
        self.left, self.top, width, height = placement.target
        self._arrays: List[Array] = []
        self.down = self._taps(how, size[1], box[1], box[3], height)
        self.across = self._taps(how, size[0], box[0], box[2], width)
        first = self._arrays[2]
        used = int(first[-1]) + self.across.most - int(first[0])
        self.scratch = ((4 * used + 64) & ~63) * (self.down.most + 2) + 4 * width + 64

    @property
    def most(self) -> int:
        """The largest number of rows of the frame for a row of the result."""
        return int(self.down.most)

    def room(self) -> Tuple[Array, int]:
        """Return scratch memory, and an aligned address in it."""
        scratch = np.empty(self.scratch + 64, np.uint8)
        return scratch, scratch.ctypes.data + -scratch.ctypes.data % 64

    def _taps(
        self, how: str, length: int, start: float, extent: float, count: int
    ) -> _Taps:
        first, weights = padded(how, length, start, extent, count)

        # The struct has only their addresses, which do not keep them alive.
        self._arrays += [first, weights]
        return _Taps(count, weights.shape[1], first.ctypes.data, weights.ctypes.data)


@functools.lru_cache(maxsize=32)
def _plan(size: Tuple[int, int], image: Tuple[int, int], fit: Fit, how: str) -> _Plan:
    return _Plan(size, image, fit, how)


class FrameInput:
    """Makes an image input of frames with the bundle's C, the same bits as photo.prepare."""

    def __init__(
        self,
        function: Any,
        info: TensorInfo,
        image: Tuple[int, int],
        fit: Fit,
        how: str,
    ) -> None:
        self._function = function
        self._info = info
        self._image = image
        self._fit = fit
        self._how = how

    def __call__(self, frame: CameraFrame, out: Array) -> bool:
        """Make the input of a frame; return False if the C cannot do it.

        Raises InputError if the frame or the array is not valid.

        Args:
            frame: the frame
            out: the input, C-contiguous, of its type and shape
        """
        rows = _FrameRows(frame)
        plan = _plan(frame.size, self._image, self._fit, self._how)
        if plan.most > MAX_TAPS:
            return False
        target = _address(out, self._info.numpy_dtype, self._info.shape, written=True)
        scratch, at = plan.room()
        code = self._function(
            ctypes.byref(rows.struct),
            ctypes.byref(plan.down),
            ctypes.byref(plan.across),
            plan.left,
            plan.top,
            ctypes.c_void_p(at),
            target,
        )
        # Only its address was passed, which does not keep it alive during the call.
        del scratch
        return bool(code == 0)


class _Crop(ctypes.Structure):
    _fields_ = [
        ("level", ctypes.c_int),
        ("left", ctypes.c_int),
        ("top", ctypes.c_int),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("start", ctypes.c_int64 * 2),
        ("across", ctypes.c_int64 * 2),
        ("down", ctypes.c_int64 * 2),
    ]


class CropInput:
    """Makes an image input of crops with the bundle's C, the same bits as crop.cropped."""

    def __init__(self, function: Any, info: TensorInfo, image: Tuple[int, int]) -> None:
        self._function = function
        self._info = info
        self._image = image

    def __call__(self, frame: CameraFrame, crop: Crop, out: Array) -> bool:
        """Make the input of a crop; return False if the C cannot do it.

        Raises InputError if the frame or the array is not valid.

        Args:
            frame: the frame
            crop: the crop
            out: the input, C-contiguous, of its type and shape
        """
        rows = _FrameRows(frame)
        grid = CropGrid.of(crop, frame.size, self._image)
        struct = _Crop(grid.level, *grid.region)
        for axis in (0, 1):
            struct.start[axis] = grid.start[axis]
            struct.across[axis] = grid.across[axis]
            struct.down[axis] = grid.down[axis]
        scratch = np.empty(_crop_scratch(grid, self._image), np.uint8)
        code = self._function(
            ctypes.byref(rows.struct),
            ctypes.byref(struct),
            _address(scratch, np.uint8, scratch.shape, written=True),
            _address(out, self._info.numpy_dtype, self._info.shape, written=True),
        )
        return bool(code == 0)


def _crop_scratch(grid: CropGrid, image: Tuple[int, int]) -> int:
    """Return the bytes of scratch that ek_crop_input needs."""
    _, _, width, height = grid.region
    row = 4 * width
    # It has the region, a row of the frame with its sums, and a row of the input.
    return row * height + 3 * (row << grid.level) + 32 + 4 * image[0]


class Painting:
    """Resizes, mattes, blends and warps pictures with the bundle's C (see painter.py)."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._resize = library.edgec_resize
        self._matte = library.edgec_matte
        self._blend = library.edgec_blend
        self._warp = function(library, "edgec_warp")

    @classmethod
    def of(cls, library: Optional[ctypes.CDLL]) -> Optional["Painting"]:
        """Return the functions; None if the library does not have them."""
        if library is None or function(library, "edgec_matte") is None:
            return None
        return cls(library)

    def rgb(self, frame: CameraFrame) -> Array:
        """Return a frame as uint8 [H, W, 3], red first."""
        # Other formats share memory, or numpy converts them as fast.
        if frame.format not in ("yuyv", "nv12"):
            return frame.rgb()
        return self._sampled(frame, _plan(frame.size, frame.size, Fit(), "area"))

    def resized(self, frame: Array, size: Tuple[int, int], how: str) -> Array:
        """Return a picture, uint8 [h, w, 3], at another width and height.

        how: the filter, as for resample.resize.
        """
        picture = CameraFrame("rgb", (frame,))
        plan = _plan(picture.size, size, Fit(), how)
        if plan.most > MAX_TAPS:
            return whole(frame, size, how)
        return self._sampled(picture, plan)

    def _sampled(self, frame: CameraFrame, plan: _Plan) -> Array:
        """Return a frame resized by a plan, uint8 [H, W, 3], red first."""
        out = np.empty((plan.down.count, plan.across.count, 3), np.uint8)
        rows = _FrameRows(frame)
        scratch, at = plan.room()
        self._resize(
            ctypes.byref(rows.struct),
            ctypes.byref(plan.down),
            ctypes.byref(plan.across),
            ctypes.c_void_p(at),
            _address(out, np.uint8, out.shape, written=True),
        )
        del scratch
        return out

    def matte(
        self, guide: Array, mask: Array, radius: int, smooth: float, frame: Array
    ) -> Array:
        """Return the mask refined along the edges of a frame, uint8 [H, W]."""
        # `rows` keeps the memory of the struct's addresses alive.
        rows = _FrameRows(CameraFrame("rgb", (frame,)))
        struct = rows.struct
        n, m = struct.width, struct.height
        height, width = guide.shape

        scratch = np.empty(7 * guide.size + width + 4 * n, np.float32)
        guide, mask = (np.ascontiguousarray(a, np.float32) for a in (guide, mask))
        out = np.empty((m, n), np.uint8)
        self._matte(
            _address(guide, np.float32, (height, width)),
            _address(mask, np.float32, (height, width)),
            width,
            height,
            radius,
            ctypes.c_float(smooth),
            ctypes.c_void_p(struct.planes[0]),
            ctypes.c_int64(struct.strides[0]),
            n,
            m,
            _address(scratch, np.float32, scratch.shape, written=True),
            _address(out, np.uint8, out.shape, written=True),
        )
        return out

    def blend(self, front: Array, back: Array, alpha: Array) -> Array:
        """Return front over back by alpha, uint8 [H, W, 3]."""
        front, back, alpha = (np.ascontiguousarray(a) for a in (front, back, alpha))
        # The C reads as many pixels of all three arrays as alpha has.
        pixels = (*alpha.shape, 3)
        out = np.empty(pixels, np.uint8)
        self._blend(
            _address(front, np.uint8, pixels),
            _address(back, np.uint8, pixels),
            _address(alpha, np.uint8, alpha.shape),
            alpha.size,
            _address(out, np.uint8, pixels, written=True),
        )
        return out

    def warp_into(self, warp: Warp, out: Array) -> None:
        """Draw a warped picture into a result, uint8 [H, W, 3], C-contiguous.

        Only bundles with landmarks have C for it; for others numpy computes the same.
        """
        if self._warp is None:
            warp_into(warp, out)
            return
        source = np.ascontiguousarray(warp.source, np.uint8)
        begin = np.ascontiguousarray(warp.begin, np.float32)
        end = np.ascontiguousarray(warp.end, np.float32)
        triangles = np.ascontiguousarray(warp.triangles, np.int32)
        gain = None
        if warp.gain is not None:
            gain = np.ascontiguousarray(warp.gain, np.float32)
        # The C checks the numbers of the triangles' corners itself.
        corners = len(end)
        count = len(triangles)
        arguments = _WarpArguments(
            source=_address(source, np.uint8, (*source.shape[:2], 4)),
            source_width=source.shape[1],
            source_height=source.shape[0],
            begin=_address(begin, np.float32, (corners, 2)),
            end=_address(end, np.float32, (corners, 2)),
            gain=None if gain is None else _address(gain, np.float32, (corners,)),
            triangles=_address(triangles, np.int32, (count, 3)),
            corners=corners,
            count=count,
            blend=int(warp.blended),
            out=_address(out, np.uint8, (*out.shape[:2], 3), written=True),
            width=out.shape[1],
            height=out.shape[0],
        )
        code = self._warp(ctypes.byref(arguments))
        if code != 0:
            raise ValueError("the mesh does not fit its pictures")


def _address(
    array: Array, dtype: DTypeLike, shape: Tuple[int, ...], written: bool = False
) -> ctypes.c_void_p:
    """Return the address of an array for C, after a check.

    The C trusts its arguments, so every array is passed through here, except for the
    planes of a frame (_FrameRows).

    Args:
        array: the array
        dtype: the type that the C expects
        shape: the shape that the C expects
        written: whether the C writes to it

    Raises:
        InputError: it has another type or shape, has gaps, or may not be written
    """
    flags = array.flags
    is_dense = flags.c_contiguous and flags.aligned
    is_usable = is_dense and (flags.writeable or not written)
    if array.dtype != dtype or array.shape != shape or not is_usable:
        raise InputError(
            f"an array is {array.dtype} {list(array.shape)}, not {np.dtype(dtype)} "
            f"{list(shape)} without gaps{' that may be written' if written else ''}",
            hint=f'give one like np.empty({shape}, "{np.dtype(dtype)}")',
        )
    return ctypes.c_void_p(array.ctypes.data)


class _FrameRows:
    """A frame as a struct for C, and the memory to which that points.

    Raises InputError if the frame is not valid.
    """

    def __init__(self, frame: CameraFrame) -> None:
        # An array may have been reshaped in place since the frame was made.
        frame.check()
        # Planes may be copies, which have to exist as long as the struct.
        self._planes = [_rows(plane) for plane in frame.planes]
        self.struct = _Frame(FORMATS.index(frame.format), *frame.size)
        for i, plane in enumerate(self._planes):
            self.struct.planes[i] = plane.ctypes.data
            self.struct.strides[i] = plane.strides[0]


def _rows(plane: Array) -> Array:
    """Return a plane in whose rows the pixels are contiguous; a copy if necessary."""
    inner = plane[0] if plane.ndim == 3 else plane[:1]

    # The C supports gaps between rows, but not between pixels.
    dense = inner.flags.c_contiguous and plane.strides[0] >= 0
    return plane if dense else np.ascontiguousarray(plane)


class FoundBoxes:
    """Finds boxes with the bundle's C: the same as tasks.find_boxes."""

    def __init__(
        self, function: Any, task: Detection, outputs: Mapping[str, TensorInfo]
    ) -> None:
        """Prepare calls of the C.

        Args:
            function: the function of the bundle's library
            task: the bound task
            outputs: the model's outputs by name
        """
        self._function = function
        self._shapes = [outputs[str(n)].shape for n in (task.boxes, task.scores)]
        self._most = task.most(outputs)
        self._width = task.width

    def __call__(self, boxes: Array, scores: Array, anchors: Array) -> Array:
        """Return the boxes after suppression, float32 [K, width], see find_boxes.

        Raises InputError for outputs of other shapes.

        Args:
            boxes: the output with boxes
            scores: the output with scores
            anchors: the anchors of the task, float32 [N, 4]
        """
        arrays = [np.ascontiguousarray(a, np.float32) for a in (boxes, scores, anchors)]

        # In the worst case every row is a box.
        candidates = np.empty((self._most, 3), np.int32)
        suppressed = np.empty(self._most, np.uint8)
        rows = np.empty((self._most, self._width), np.float32)
        count = self._function(
            _address(arrays[0], np.float32, self._shapes[0]),
            _address(arrays[1], np.float32, self._shapes[1]),
            _address(arrays[2], np.float32, anchors.shape),
            _address(candidates, np.int32, candidates.shape, written=True),
            _address(suppressed, np.uint8, suppressed.shape, written=True),
            _address(rows, np.float32, rows.shape, written=True),
        )
        # The copy lets the memory for the worst case be freed.
        return rows[:count].copy()
