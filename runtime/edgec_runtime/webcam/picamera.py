"""A Raspberry Pi's camera on the ribbon cable, by picamera2: V4L2 gives but what its
sensor sees, no colours.

picamera2 comes with Raspberry Pi OS (apt install python3-picamera2), not with us.
"""

from __future__ import annotations

import importlib
from typing import Any, Optional, Tuple

from ..errors import DeviceError
from ..vision.camera import CameraFrame
from .v4l2 import RATE, SIZE

NAME = "picamera"
LIBRARY = "picamera2"


class PiCamera:
    """The camera of a number, streaming.  size: width, height; rate: frames per second.

    Raises DeviceError where picamera2 is not there, or has no such camera.
    """

    def __init__(
        self,
        number: int = 0,
        size: Optional[Tuple[int, int]] = None,
        rate: Optional[float] = None,
    ) -> None:
        self.rate = rate or RATE
        try:
            library = importlib.import_module(LIBRARY)
        except ImportError as e:
            hint = "apt install python3-picamera2, in Python's own environment"
            raise DeviceError(
                f"picamera2 cannot be imported: {e}", NAME, hint
            ) from None
        # `close` is called below also when the camera could not be opened.
        self._camera: Any = None
        try:
            self._camera = library.Picamera2(number)
            # which libcamera counts from the last byte: B, G, R
            pixels = {"size": size or SIZE, "format": "RGB888"}
            made = self._camera.create_video_configuration(
                main=pixels, controls={"FrameRate": self.rate}
            )
            self._camera.configure(made)
            self._camera.start()
        except (RuntimeError, IndexError, OSError) as e:
            self.close()
            hint = (
                "rpicam-hello --list-cameras shows those that are there; "
                "another program may have it"
            )
            raise DeviceError(
                f"picamera2 does not open camera {number}: {e}", NAME, hint
            ) from e

    def read(self) -> CameraFrame:
        """The next frame, in memory of its own.

        Raises OSError when the camera gives nothing.
        """
        try:
            return CameraFrame("bgr", (self._camera.capture_array("main"),))
        except RuntimeError as e:
            # A source takes OSError as a lost camera, and opens it again.
            raise OSError(str(e)) from e

    def close(self) -> None:
        """Give the device back to the system."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None
