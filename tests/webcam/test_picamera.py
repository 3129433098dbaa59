"""A Raspberry Pi's own camera, as picamera2 (0.3) gives it: names, what is asked of it,
colours, its end.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edgec_runtime import DeviceError, InputError
from edgec_runtime.webcam import sources
from edgec_runtime.webcam.sources import open_source

ORANGE = (240, 120, 10)


class Picamera2:
    """Of one camera, which shows orange."""

    made: list[Picamera2] = []

    def __init__(self, number: int = 0) -> None:
        if number != 0:
            raise IndexError("list index out of range")
        self.asked: dict[str, Any] = {}
        self.state = "open"
        Picamera2.made.append(self)

    def create_video_configuration(
        self, main: dict[str, Any], controls: dict[str, Any]
    ) -> dict[str, Any]:
        return {"main": main, "controls": controls}

    def configure(self, configuration: dict[str, Any]) -> None:
        self.asked = configuration

    def start(self) -> None:
        self.state = "started"

    def capture_array(self, name: str) -> Any:
        if self.state != "started":
            raise RuntimeError("Camera is not started")
        width, height = self.asked[name]["size"]
        assert self.asked[name]["format"] == "RGB888"
        return np.full((height, width, 3), ORANGE[::-1], np.uint8)

    def close(self) -> None:
        self.state = "closed"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[Picamera2]:
    """Those that were made."""
    module = SimpleNamespace(
        Picamera2=Picamera2, __spec__=SimpleNamespace(name="picamera2")
    )
    monkeypatch.setitem(sys.modules, "picamera2", module)
    monkeypatch.setattr(Picamera2, "made", [])
    return Picamera2.made


def test_its_frames(library: list[Picamera2]) -> None:
    source = open_source("picamera?size=64x48&fps=50")
    assert (source.live, source.fps) == (True, 50.0)
    frames = source.frames()
    picture = next(frames).rgb()
    assert picture.shape == (48, 64, 3)
    assert (picture == ORANGE).all()
    assert library[0].asked["controls"] == {"FrameRate": 50.0}
    frames.close()  # type: ignore[attr-defined]
    assert library[0].state == "closed"


def test_it_is_waited_for(
    library: list[Picamera2], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    frames = open_source("picamera").frames()
    next(frames)
    library[0].state = "broken"
    assert next(frames).rgb().shape == (480, 640, 3)
    assert [x.state for x in library] == ["closed", "started"]
    frames.close()  # type: ignore[attr-defined]


def test_it_is_the_camera_where_v4l2_reads_none(
    library: list[Picamera2], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "CAMERA", "/dev/null")
    assert open_source(None).name == "picamera"


def test_what_is_not_there(
    library: list[Picamera2], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        DeviceError, match="picamera2 does not open camera 1: list index out of range"
    ):
        open_source("picamera:1")
    with pytest.raises(InputError, match="picamera has one format"):
        open_source("picamera?format=jpeg")
    monkeypatch.setitem(sys.modules, "picamera2", None)
    with pytest.raises(DeviceError, match="picamera2 cannot be imported"):
        open_source("picamera")
