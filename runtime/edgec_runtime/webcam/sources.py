"""Opens sources of frames.

They are cameras (V4L2, picamera2), video files and network streams (OpenCV), folders of
photos, and a clip that is made of photos. The source of an unplugged camera waits until
the camera is back.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Protocol, Tuple, Union
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from ..errors import DeviceError, EdgecError, InputError, did_you_mean
from ..vision.camera import CameraFrame
from ..vision.photo import PHOTO_SUFFIXES, read_photo
from .picamera import LIBRARY, PiCamera
from .picamera import NAME as PI_CAMERA
from .v4l2 import FORMATS, Camera

Array = NDArray[Any]

CAMERA = "/dev/video0"
RETRY_S = 0.5
"""Seconds between two attempts to open a camera again."""
CLIP = (640, 480)
"""Width and height of a clip."""
CLIP_FRAMES = 250
"""Number of frames of a clip for each photo, 10 s."""
FPS = 25.0
"""Frames a second of a source without a rate."""


@dataclass
class Source:
    """A source of frames.

    Attributes:
        name: its name for the page and for messages
        live: whether frames that are not read in time are lost
        fps: frames per second; 0 if unknown
        lost: why there are no frames now; empty while there are
    """

    name: str
    live: bool
    fps: float
    _frames: Callable[[Source], Iterator[CameraFrame]]
    lost: str = ""

    def frames(self) -> Iterator[CameraFrame]:
        """Return the frames from the start; each has its own memory."""
        return self._frames(self)


def open_source(text: Optional[str]) -> Source:
    """Return the source that a text names.

    Args:
        text: /dev/video0 or its number, picamera (or picamera:1) of a Raspberry Pi, a
            video file, rtsp://… or http://…, a photo or a folder of photos. A camera
            can have options: /dev/video0?format=jpeg&size=1280x720&fps=30. None: the
            first camera.

    Raises:
        InputError: the text does not name a source
        DeviceError: the camera does not exist or cannot be opened
    """
    if text is None:
        text = _first_camera()
    if re.fullmatch(r"[0-9]+(\?.*)?", text):
        text = f"/dev/video{text}"
    if text.startswith("/dev/") or re.fullmatch(rf"{PI_CAMERA}(:[0-9]+)?(\?.*)?", text):
        return _camera_source(text)
    if "://" in text:
        return _stream_source(text)
    return _file_source(text)


def _camera_source(text: str) -> Source:
    """Return the source of a camera."""
    opener = _camera_of(text)
    camera = opener()
    return Source(text, True, camera.rate, lambda source: _live(source, opener, camera))


def _stream_source(url: str) -> Source:
    """Return the source of a network stream."""
    capture, rate = _opened(url)

    def frames(source: Source) -> Iterator[CameraFrame]:
        return _live(source, lambda: _Capture.reopened(url), _Capture(capture))

    return Source(url, True, rate, frames)


def _file_source(text: str) -> Source:
    """Return the source of a video, a photo or a folder of photos."""
    path = Path(text)
    if not path.exists():
        raise InputError(
            f"no such file: {path}",
            "--source",
            "give a video, a photo, a folder of photos or /dev/video0",
        )
    # Opening a pipe would wait for its writer, which Ctrl-C could not end.
    if not (path.is_file() or path.is_dir()):
        raise InputError(
            f"{path} is neither a file nor a folder",
            "--source",
            "write it to a file first",
        )
    if path.is_dir():
        return _photos_source(path.name, _photos_in(path))
    if path.suffix.lower() in PHOTO_SUFFIXES:
        return _photos_source(path.name, [path])
    capture, rate = _opened(text)
    return Source(path.name, False, rate or FPS, lambda source: _video(text, capture))


def _photos_in(folder: Path) -> List[Path]:
    """Return the photos of a folder in the order of their names."""
    photos = sorted(p for p in folder.iterdir() if p.suffix.lower() in PHOTO_SUFFIXES)
    if not photos:
        raise InputError(
            f"{folder} holds no photos",
            "--source",
            f"put files there that end with {', '.join(PHOTO_SUFFIXES)}",
        )
    return photos


def _photos_source(name: str, photos: List[Path]) -> Source:
    """Return the source of photos, read one at a time."""
    # A generator, since all photos of a folder may not fit in memory.
    return Source(
        name, False, FPS, lambda _: (CameraFrame.of(read_photo(p)) for p in photos)
    )


def clip(photos: List[Path]) -> Source:
    """Return a clip in which the camera moves and zooms over each photo in turn."""
    return Source(
        "a clip of photos",
        False,
        FPS,
        lambda _: (CameraFrame.of(f) for p in photos for f in moving(p)),
    )


def moving(
    photo: Path, frames: int = CLIP_FRAMES, size: Tuple[int, int] = CLIP
) -> Iterator[Array]:
    """Yield parts of a photo along a closed path, uint8 [H, W, 3].

    Args:
        photo: its file
        frames: number of parts
        size: width and height of each part
    """
    picture = read_photo(photo)
    height, width = picture.shape[:2]
    x, y = (np.arange(n) / n for n in size)
    most = min(width / size[0], height / size[1])
    for i in range(frames):
        # These are whole periods of sine and cosine, so that the last part is beside
        # the first.
        turn = 2 * math.pi * i / frames
        zoom = most * (0.8 - 0.2 * math.cos(turn))

        w = size[0] * zoom
        h = size[1] * zoom
        left = (width - w) * (0.5 + 0.5 * math.sin(turn))
        top = (height - h) * (0.5 - 0.5 * math.cos(2 * turn))
        yield picture[(top + y * h).astype(int)][:, (left + x * w).astype(int)]


def _opened(text: str) -> Tuple[Any, float]:
    """Return OpenCV's capture of a video or stream, and its frames per second."""
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError:
        hint = "pip install opencv-python-headless"
        raise InputError(
            f"OpenCV is needed to read {text}, and it is not there", hint=hint
        ) from None
    # OpenCV would print errors, which are raised here instead.
    cv2.utils.logging.setLogLevel(0)
    capture = _capture(cv2, text)
    if capture is None:
        kind = DeviceError if "://" in text else InputError
        raise kind(f"OpenCV cannot open {text}", hint="check that it is a video")
    return capture, float(capture.get(cv2.CAP_PROP_FPS)) or 0.0


def _capture(cv2: Any, text: str) -> Any:
    capture = cv2.VideoCapture(text)
    if not capture.isOpened():
        capture.release()
        return None

    # Frames in a longer buffer would be old when they are read.
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
    return capture


def _video(text: str, capture: Any) -> Iterator[CameraFrame]:
    """Yield the frames of a video file, from its start at each call."""
    cv2 = importlib.import_module("cv2")
    capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
    if not capture.isOpened():
        capture = _capture(cv2, text)
    while capture is not None:
        is_frame, pixels = capture.read()
        if not is_frame:
            return
        yield CameraFrame("bgr", (pixels,))


def _first_camera() -> str:
    """Return the first camera of V4L2, or the Raspberry Pi's if V4L2 cannot read it.

    Raises:
        DeviceError: there is no camera
    """
    if importlib.util.find_spec(LIBRARY) is not None:
        try:
            # On a Raspberry Pi /dev/video0 may give raw data of the sensor, which V4L2
            # cannot turn into a picture.
            Camera(CAMERA).close()
        except EdgecError:
            return PI_CAMERA
    elif not Path(CAMERA).exists():
        raise DeviceError(
            f"there is no camera {CAMERA}",
            hint="plug it in, or give --source FILE, FOLDER or URL",
        )
    return CAMERA


def _camera_of(text: str) -> Callable[[], Union[Camera, PiCamera]]:
    """Return a function that opens a camera in the same way each time.

    Raises:
        InputError: there is no such option, or not with this value
    """
    path, _, query = text.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    kinds = sorted({*FORMATS.values()})
    # The options are checked once and early, since an unplugged camera is opened again.
    for name, value in options.items():
        pattern = {
            "format": "|".join(kinds),
            "size": r"[1-9]\d{0,4}x[1-9]\d{0,4}",
            "fps": r"[1-9]\d{0,3}",
        }.get(name)
        if pattern is None:
            near = did_you_mean(name, ("format", "size", "fps"))
            raise InputError(
                f'a camera has no "{name}"{near}',
                "--source",
                "use format, size and fps",
            )
        if not re.fullmatch(pattern, value):
            hint = (
                f"format is one of {', '.join(kinds)}, size for example 1280x720, "
                "fps a number"
            )
            raise InputError(
                f'the {name} of a camera cannot be "{value}"', "--source", hint
            )

    width, _, height = options.get("size", "").partition("x")
    size = (int(width), int(height)) if width else None
    rate = float(options["fps"]) if "fps" in options else None
    if not path.startswith("/dev/"):
        if "format" in options:
            raise InputError(
                f"{PI_CAMERA} has one format", "--source", "leave format out"
            )
        return lambda: PiCamera(int(path.partition(":")[2] or 0), size, rate)
    return lambda: Camera(path, options.get("format"), size, rate)


class _Capture:
    """A capture of OpenCV with the methods of a camera."""

    def __init__(self, capture: Any) -> None:
        self._capture = capture

    @classmethod
    def reopened(cls, text: str) -> _Capture:
        """Return a new capture of a stream; raise DeviceError if it does not open."""
        capture = _capture(importlib.import_module("cv2"), text)
        if capture is None:
            raise DeviceError(
                f"OpenCV cannot open {text}", hint="check its address and the network"
            )
        return cls(capture)

    def read(self) -> CameraFrame:
        """Return the next frame; raise OSError if there is none."""
        is_frame, pixels = self._capture.read()
        if not is_frame:
            raise OSError("no frame")
        return CameraFrame("bgr", (np.asarray(pixels),))

    def close(self) -> None:
        """Release the device."""
        self._capture.release()


class _Camera(Protocol):
    def read(self) -> CameraFrame: ...
    def close(self) -> None: ...


def _live(
    source: Source, opener: Callable[[], _Camera], first: _Camera
) -> Iterator[CameraFrame]:
    """Yield the frames of a camera that may be unplugged and come back.

    An unplugged camera is closed at once, so that it gets the same device name again.

    Args:
        source: the source, whose `lost` is kept up to date
        opener: opens the camera again
        first: the open camera
    """
    camera: Optional[_Camera] = first
    try:
        while True:
            try:
                camera = camera or opener()
                frame = camera.read()
            except (OSError, DeviceError):
                source.lost = f"{source.name} gives no frames"
                if camera is not None:
                    camera.close()
                camera = None
                time.sleep(RETRY_S)
                continue
            source.lost = ""
            yield frame
    finally:
        if camera is not None:
            camera.close()
