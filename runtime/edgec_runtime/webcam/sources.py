"""Where frames come from: cameras, video files and streams by OpenCV, folders of pictures, and a clip of moving photos.

A camera that is unplugged is waited for; its frames go on when it is back.
"""

from __future__ import annotations

import importlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..camera import CameraFrame
from ..errors import DeviceError, InputError
from ..photo import PHOTO_SUFFIXES, read_photo

Array = NDArray[Any]

CAMERA = "/dev/video0"
RETRY_S = 0.5
"""Between two tries to open a camera again."""
CLIP = (640, 480)
CLIP_FRAMES = 250
"""Of the clip of one photo: 10 s."""
FPS = 25.0
"""Of what has no rate of its own."""


@dataclass
class Source:
    """name: for people.  live: it does not wait for whoever reads it.  fps: at which a file is shown; 0 where unknown.

    lost: why there are no frames just now; empty while there are.
    """

    name: str
    live: bool
    fps: float
    _frames: Callable[[Source], Iterator[CameraFrame]]
    lost: str = ""

    def frames(self) -> Iterator[CameraFrame]:
        """From the start; each with memory of its own."""
        return self._frames(self)


def open_source(text: Optional[str]) -> Source:
    """By name: /dev/video0 or its number, a video file, rtsp://… or http://…, a photo or a folder of photos.

    Default: the first camera.  Raises InputError for what is none, DeviceError for a camera that is not there.
    """
    if text is None:
        if not Path(CAMERA).exists():
            raise DeviceError(f"there is no camera {CAMERA}", hint="plug it in, or give --source FILE, FOLDER or URL")
        text = CAMERA
    if text.isascii() and text.isdigit():
        text = f"/dev/video{text}"
    if text.startswith("/dev/") or "://" in text:
        capture, rate = _opened(text)
        return Source(text, True, rate, lambda source: _camera(source, text, capture))
    path = Path(text)
    if not path.exists():
        raise InputError(
            f"no such file: {path}", "--source", "give a video, a photo, a folder of photos or /dev/video0"
        )
    photos = sorted(p for p in path.iterdir() if p.suffix.lower() in PHOTO_SUFFIXES) if path.is_dir() else [path]
    if path.is_dir() and not photos:
        raise InputError(f"{path} holds no photos", "--source", f"they end with {', '.join(PHOTO_SUFFIXES)}")
    if path.suffix.lower() in PHOTO_SUFFIXES or path.is_dir():
        return Source(path.name, False, FPS, lambda _: (CameraFrame.of(read_photo(p)) for p in photos))
    capture, rate = _opened(text)
    return Source(path.name, False, rate or FPS, lambda source: _video(text, capture))


def clip(photos: List[Path]) -> Source:
    """A clip that is made as it is read: the camera moves over one photo after the other, in and out."""
    return Source("a clip of photos", False, FPS, lambda _: (CameraFrame.of(f) for p in photos for f in moving(p)))


def moving(photo: Path, frames: int = CLIP_FRAMES, size: Tuple[int, int] = CLIP) -> Iterator[Array]:
    """uint8 [H,W,3]: parts of a photo, on a path that begins where it ends."""
    picture = read_photo(photo)
    height, width = picture.shape[:2]
    x, y = (np.arange(n) / n for n in size)
    most = min(width / size[0], height / size[1])
    for i in range(frames):
        turn = 2 * math.pi * i / frames
        zoom = most * (0.8 - 0.2 * math.cos(turn))
        w, h = size[0] * zoom, size[1] * zoom
        left, top = (width - w) * (0.5 + 0.5 * math.sin(turn)), (height - h) * (0.5 - 0.5 * math.cos(2 * turn))
        yield picture[(top + y * h).astype(int)][:, (left + x * w).astype(int)]


def _opened(text: str) -> Tuple[Any, float]:
    """OpenCV's capture and its rate."""
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError:
        hint = "pip install opencv-python-headless"
        raise InputError(f"OpenCV is needed to read {text}, and it is not there", hint=hint) from None
    cv2.utils.logging.setLogLevel(0)  # what it says of a file that is none, the error says better
    capture = _capture(cv2, text)
    if capture is None:
        kind = DeviceError if text.startswith("/dev/") or "://" in text else InputError
        raise kind(
            f"OpenCV cannot open {text}", hint="check that it is a camera or a video, and that nothing else has it"
        )
    return capture, float(capture.get(cv2.CAP_PROP_FPS)) or 0.0


def _capture(cv2: Any, text: str) -> Any:
    capture = cv2.VideoCapture(text, cv2.CAP_V4L2) if text.startswith("/dev/") else cv2.VideoCapture(text)
    if not capture.isOpened():
        capture.release()
        return None
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
    return capture


def _video(text: str, capture: Any) -> Iterator[CameraFrame]:
    """Of a file; read once more it begins anew."""
    cv2 = importlib.import_module("cv2")
    capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
    if not capture.isOpened():
        capture = _capture(cv2, text)
    while capture is not None:
        there, pixels = capture.read()
        if not there:
            return
        yield CameraFrame("bgr", (pixels,))


def _camera(source: Source, text: str, capture: Any) -> Iterator[CameraFrame]:
    cv2 = importlib.import_module("cv2")
    try:
        while True:
            there, pixels = capture.read() if capture is not None else (False, None)
            if there:
                source.lost = ""
                yield CameraFrame("bgr", (np.asarray(pixels),))
                continue
            source.lost = f"{text} gives no frames"
            if capture is not None:
                capture.release()
            time.sleep(RETRY_S)
            capture = _capture(cv2, text)
    finally:
        if capture is not None:
            capture.release()
