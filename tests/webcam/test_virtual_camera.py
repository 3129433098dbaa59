"""The picture as a camera for other programs: what it is given, and what is said where
there is no such device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.webcam import playing, v4l2
from edgec_runtime.webcam.playing import play
from edgec_runtime.webcam.show import Show
from edgec_runtime.webcam.sources import open_source

from edgec.ir import Array
from tests.cli.verbs import edgec as typed

pytestmark = pytest.mark.slow


class _Written(v4l2.VideoOutput):
    """A device's end in memory: a driver's part of the ioctls is tried on the emulated
    machine.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.pictures = list[Array]()
        self.closed = False

    def write(self, picture: Array) -> None:
        self.pictures.append(picture.copy())

    def close(self) -> None:
        self.closed = True


def test_every_picture_goes_there(
    bundles: list[Path], photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = _Written("/dev/video9")
    monkeypatch.setattr(playing, "VideoOutput", {output.path: output}.__getitem__)
    show = Show(open_source(str(photos)), {"same": str(bundles[0])})
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
    levels = [int(np.median(picture)) for picture in output.pictures]
    assert np.abs(np.array(levels) - [20 + 20 * i for i in range(5)]).max() <= 1


@pytest.mark.parametrize(
    ("name", "said"), [("gone9", "cannot open"), ("file", "is no video output")]
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
