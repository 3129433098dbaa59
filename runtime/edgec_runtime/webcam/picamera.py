"""Reads a Raspberry Pi's camera on the ribbon cable by picamera2.

V4L2 gives only the raw data of its sensor.  picamera2 comes with Raspberry Pi OS (apt
install python3-picamera2), not with edgec.
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
    """A Raspberry Pi's camera, which streams.

    Args:
        number: its number
        size: width and height; None for v4l2.SIZE
        rate: frames per second; None for v4l2.RATE

    Raises:
        DeviceError: picamera2 is not installed, or has no such camera
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
            # libcamera names the bytes from the last one: in memory it is B, G, R.
            pixels = {"size": size or SIZE, "format": "RGB888"}
            configuration = self._camera.create_video_configuration(
                main=pixels, controls={"FrameRate": self.rate}
            )
            self._camera.configure(configuration)
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
        """Return the next frame, which has its own memory.

        Raises OSError if the camera gives none.
        """
        try:
            return CameraFrame("bgr", (self._camera.capture_array("main"),))
        except RuntimeError as e:
            # After an OSError the source opens the camera again.
            raise OSError(str(e)) from e

    def close(self) -> None:
        """Release the device."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None
