"""The picture as a camera for other programs: what it is given, and what is said where
there is no such device.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.errors import DeviceError
from edgec_runtime.webcam import playing
from edgec_runtime.webcam.playing import play
from edgec_runtime.webcam.show import Playback, Show
from edgec_runtime.webcam.sources import open_source
from edgec_runtime.webcam.video_output import (
    SteadyOutput,
    VideoOutput,
    fitted,
    i420,
    yuyv,
)

from edgec.ir import Array
from tests.cli.verbs import edgec as typed

pytestmark = pytest.mark.slow


class _Written(VideoOutput):
    """A device's end in memory: a driver's part of the ioctls is tried on the emulated
    machine.
    """

    def __init__(self, path: str = "/dev/video9", fails_at: int = -1) -> None:
        self.path = path
        self.fails_at = fails_at
        self.pictures = list[Array]()
        self.at = list[float]()
        self.closed = False

    def packed(self, picture: Array) -> Array:
        return picture.copy()

    def write_packed(self, data: Array) -> None:
        if len(self.pictures) == self.fails_at:
            raise DeviceError(f"{self.path} takes no frames")
        self.pictures.append(data)
        self.at.append(time.monotonic())

    def close(self) -> None:
        self.closed = True

    def levels(self) -> list[int]:
        """The median of each picture that was written, without repetitions."""
        levels = [int(np.median(picture)) for picture in self.pictures]
        return [level for level, _ in itertools.groupby(levels)]


def test_pictures_of_a_show_go_there(
    bundles: list[Path], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = _Written()
    monkeypatch.setattr(playing, "VideoOutput", {output.path: output}.__getitem__)
    show = Show(
        open_source(str(photos)),
        {"same": str(bundles[0])},
        playback=Playback(pace=True),
    )
    seen: list[int] = []
    play(
        show,
        None,
        5,
        lambda url: None,
        lambda picture: seen.append(picture.number),
        "/dev/video9",
    )
    assert (output.closed, seen) == (True, [1, 2, 3, 4, 5])
    # A busy machine may leave out some, but never the last.
    written = np.array(output.levels())
    numbers = np.rint(written / 20 - 1).astype(int)
    assert np.abs(written - (20 + 20 * numbers)).max() <= 1
    assert numbers.tolist() == sorted({*numbers.tolist()})
    assert numbers[-1] == 4


def test_a_slow_network_gives_a_steady_camera() -> None:
    """Its pictures are written again and again in between."""
    output = _Written()
    rate = 100
    with SteadyOutput(output, rate) as camera:
        for level in (10, 20, 30):
            camera.show(np.full((2, 2, 3), level, np.uint8))
            time.sleep(0.5)
    assert output.levels() == [10, 20, 30]
    # On a busy machine some are late, but none is lost and none comes early.
    assert 0.5 * 1.5 * rate < len(output.at) <= 1.5 * rate + 3
    assert output.closed


def test_the_last_picture_is_written_even_at_once() -> None:
    output = _Written()
    with SteadyOutput(output) as camera:
        camera.show(np.full((2, 2, 3), 7, np.uint8))
    assert output.levels() == [7]


@pytest.mark.parametrize("pictures", [1, 20])
def test_an_output_that_fails_ends_the_show(pictures: int) -> None:
    output = _Written(fails_at=0)

    def show() -> None:
        with SteadyOutput(output) as camera:
            for _ in range(pictures):
                camera.show(np.zeros((2, 2, 3), np.uint8))
                time.sleep(0.05)

    with pytest.raises(DeviceError, match="takes no frames"):
        show()
    assert output.closed


def test_pictures_are_fitted_with_borders() -> None:
    white = np.full((30, 30, 3), 255, np.uint8)
    wide = fitted(white, (80, 40))
    assert wide.shape == (40, 80, 3)
    assert not wide[:, :20].any()
    assert not wide[:, 60:].any()
    assert (wide[:, 20:60] == 255).all()
    assert fitted(white, (30, 30)) is white


def test_a_picture_as_i420() -> None:
    """The same colours as YUYV, whose U and V are finer in one direction."""
    blocks = np.random.default_rng(0).integers(0, 256, (3, 4, 3)).astype(np.uint8)
    picture = blocks.repeat(2, axis=0).repeat(2, axis=1)
    height, width = picture.shape[:2]
    y, u, v = np.split(i420(picture), [height * width, height * width * 5 // 4])
    packed = yuyv(picture).reshape(height, width, 2)
    assert (y.reshape(height, width) == packed[..., 0]).all()
    assert (u.reshape(3, 4) == packed[::2, ::2, 1]).all()
    assert (v.reshape(3, 4) == packed[::2, 1::2, 1]).all()


def test_rows_may_be_longer_than_the_picture() -> None:
    picture = np.full((2, 4, 3), 200, np.uint8)
    assert yuyv(picture, 12).reshape(2, 12)[:, 8:].max() == 0
    y = i420(picture, 8)[:16].reshape(2, 8)
    assert y[:, :4].min() > 16
    assert y[:, 4:].max() == 0


@pytest.mark.parametrize(
    ("name", "said"), [("gone9", "cannot open"), ("file", "is not a video output")]
)
def test_what_is_no_output(
    bundles: list[Path], photos: Path, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "file").write_text("")
    words = (
        "--source",
        photos,
        "--no-display",
        "--frames",
        2,
        "--virtual-camera",
        tmp_path / name,
    )
    done = typed("webcam", bundles[0], *words, cwd=tmp_path)
    assert done.code == 1
    assert said in done.err
    number = " video_nr=9" if name == "gone9" else ""
    assert f"modprobe v4l2loopback exclusive_caps=1{number}\n" in done.err


def test_one_of_the_device(bundles: list[Path], photos: Path, tmp_path: Path) -> None:
    words = (
        "--source",
        photos,
        "--no-display",
        "--virtual-camera",
        "/dev/gone9",
        "--on",
        "local:",
    )
    done = typed("webcam", bundles[0], *words, cwd=tmp_path)
    assert done.code == 1
    assert "cannot open /dev/gone9" in done.err
    assert "modprobe v4l2loopback exclusive_caps=1 video_nr=9" in done.err
