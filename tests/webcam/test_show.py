"""A source through a bundle: every frame of a file in order, other bundles while it
runs, sources that are none.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle, Session
from edgec_runtime.errors import DeviceError, InputError
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.webcam import sources, video_output
from edgec_runtime.webcam.effects import Painter, effect
from edgec_runtime.webcam.playing import play
from edgec_runtime.webcam.show import Choice, Playback, Show
from edgec_runtime.webcam.sources import Source, clip, open_source
from PIL import Image

from tests.cli.verbs import edgec as typed

pytestmark = pytest.mark.slow


def _show(bundles: list[Path], source: Source, effect: str = "overlay") -> Show:
    return Show(source, {p.stem: str(p) for p in bundles}, effect)


def _levels(show: Iterator[object]) -> list[int]:
    return [int(np.median(picture.after)) for picture in show]  # type: ignore[attr-defined]


def test_every_photo_of_a_folder_in_order(bundles: list[Path], photos: Path) -> None:
    shown = list(_show(bundles[:1], open_source(str(photos))))
    assert [p.number for p in shown] == list(range(1, 10))
    assert [int(np.median(p.before)) for p in shown] == [20 + 20 * i for i in range(9)]
    assert (
        np.abs(np.array(_levels(iter(shown))) - [20 + 20 * i for i in range(9)]).max()
        <= 1
    )


def test_frames_of_a_file_have_its_times(bundles: list[Path], photos: Path) -> None:
    source = open_source(str(photos))
    times = [picture.at for picture in _show(bundles[:1], source)]
    assert times == [i / source.fps for i in range(9)]


def test_ctrl_c_before_the_first_frame_is_no_error(bundles: list[Path]) -> None:
    """A camera that takes its time: nobody is told to check it."""
    ended = threading.Event()

    def never(_: object) -> Iterator[CameraFrame]:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
        ended.wait(3)
        yield from ()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            play(
                _show(bundles[:1], Source("slow", True, 25.0, never)), None, None, print
            )
        ended.set()
        with pytest.raises(InputError, match="there was no frame to show"):
            play(
                _show(bundles[:1], Source("empty", False, 25.0, lambda _: iter(()))),
                None,
                None,
                print,
            )
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)


def test_a_switch_goes_on_with_the_next_frames(bundles: list[Path]) -> None:
    gray = [np.full((48, 64, 3), i, np.uint8) for i in range(200)]
    show = _show(
        bundles[:2],
        Source("gray", False, 25.0, lambda _: iter([CameraFrame.of(g) for g in gray])),
    )
    before: list[int] = []
    for picture in show:
        before.append(int(picture.before[0, 0, 0]))
        if picture.number == 5:
            show.switch("bright", "blur")
            assert show.choice[:2] == ("bright", "blur")
    assert before == sorted(before)
    assert before[:5] == [0, 1, 2, 3, 4]
    assert before[-1] == 199
    assert show.found()[1]["areas"][0]["label"] == "mask"


def test_a_picture_grows_to_the_frame_by_the_bundles_c_as_by_numpy(
    bundles: list[Path],
) -> None:
    frame = np.random.default_rng(0).integers(0, 256, (96, 120, 3), np.uint8)
    with Bundle.open(bundles[0]) as bundle, Session(bundle) as session:
        vision = Vision(bundle)
        assert vision.painting is not None
        result = vision.result(session.run(vision.prepare(frame)), (120, 96))
        by_c, by_numpy = (
            effect("overlay", Painter(p))(frame, result)
            for p in (vision.painting, None)
        )
    assert by_c.shape == (96, 120, 3)
    np.testing.assert_array_equal(by_c, by_numpy)
    np.testing.assert_array_equal(by_c, result.draw(frame))


def test_what_cannot_be_shown_is_refused_before_it_begins(
    bundles: list[Path], photos: Path
) -> None:
    with pytest.raises(InputError, match="does not say what its outputs mean"):
        _show(bundles[2:], open_source(str(photos)))
    with pytest.raises(InputError, match="blur is for a segmentation"):
        _show(bundles[:1], open_source(str(photos)), "blur")
    show = _show(bundles[:2], open_source(str(photos)))
    with pytest.raises(InputError, match='no bundle "brigt" was given; did you mean'):
        show.switch("brigt")
    with pytest.raises(InputError, match="there is no effect"):
        show.switch(effect="sparkle")
    assert show.choice[:2] == ("same", "overlay")


def test_switches_at_the_same_time_lose_nothing(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An effect that takes long to try, and meanwhile a bundle: once the last choice of
    the two was gone.
    """
    show = _show(bundles[:2], Source("gray", False, 25.0, lambda _: iter(())))
    tried = show._tried_out
    slow = threading.Event()

    def _slowly(choice: Choice) -> Choice:
        if choice.effect == "cartoon":
            slow.set()
            time.sleep(0.5)
        return tried(choice)

    monkeypatch.setattr(show, "_tried_out", _slowly)
    first = threading.Thread(target=show.switch, kwargs={"effect": "cartoon"})
    first.start()
    assert slow.wait(30)
    show.switch("bright")
    first.join(30)
    assert show.choice[:2] == ("bright", "overlay")


def test_effects_that_suit_while_it_runs(
    bundles: list[Path], photos: Path, tmp_path: Path
) -> None:
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(tmp_path / "light.png")
    light = f"replace={tmp_path / 'light.png'}"
    source = Source(
        "gray",
        False,
        25.0,
        lambda _: (
            CameraFrame.of(np.full((48, 64, 3), 30, np.uint8)) for _ in range(40)
        ),
    )
    show = Show(source, {p.stem: str(p) for p in (bundles[1], bundles[0])}, light)
    assert show.effects(show.choice.task) == ["overlay", "blur", light]
    seen: dict[str, int] = {}
    wishes = {
        5: ("same", None),
        15: (None, "cartoon"),
        25: ("bright", None),
        30: (None, light),
    }
    for picture in show:
        seen.setdefault(
            f"{show.choice.bundle} {show.choice.effect.partition('=')[0]}",
            int(np.median(picture.after)),
        )
        if picture.number in wishes:
            show.switch(*wishes[picture.number])
        if show.choice.bundle == "same":
            assert show.effects(show.choice.task) == ["overlay", "cartoon"]
    assert seen == {
        "bright replace": 200,
        "same overlay": 30,
        "same cartoon": 30,
        "bright overlay": 30,
    }
    assert show.choice[:2] == ("bright", light)
    for how, said in (
        ("cartoon", "cartoon is for an image, not for segments"),
        ("replace=/etc/passwd", "no files"),
    ):
        with pytest.raises(InputError, match=said):
            show.switch(effect=how)


def test_sources_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no photos"):
        open_source(str(tmp_path / "empty"))
    with pytest.raises(InputError, match="no such file"):
        open_source(str(tmp_path / "none.mp4"))
    monkeypatch.setattr(sources, "CAMERA", str(tmp_path / "video0"))
    with pytest.raises(DeviceError, match="there is no camera"):
        open_source(None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    (tmp_path / "a.mp4").write_bytes(b"")
    with pytest.raises(InputError, match="OpenCV is needed") as e:
        open_source(str(tmp_path / "a.mp4"))
    assert "pip install opencv-python-headless" in str(e.value)


def test_a_video_file_is_read_to_its_end_and_again(tmp_path: Path) -> None:
    cv2 = pytest.importorskip(
        "cv2", reason="OpenCV is not installed: pip install 'edgec[webcam]'"
    )
    writer = cv2.VideoWriter(
        str(tmp_path / "v.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10.0, (64, 48)
    )
    for i in range(12):
        writer.write(np.full((48, 64, 3), (10 * i, 50, 200 - 10 * i), np.uint8))
    writer.release()
    source = open_source(str(tmp_path / "v.avi"))
    assert (source.live, source.fps) == (False, 10.0)
    for _ in range(2):
        reds = [int(f.rgb()[24, 32, 0]) for f in source.frames()]
        assert len(reds) == 12
        assert reds[0] > 180
        assert reds == sorted(reds, reverse=True)


class _Camera:
    """A camera whose cable is pulled after some frames."""

    def __init__(self, frames: int) -> None:
        self.left = frames
        self.closed = False
        self.rate = 30.0

    def read(self) -> CameraFrame:
        self.left -= 1
        if self.left < 0:
            raise OSError("no such device")
        return CameraFrame.of(np.zeros((48, 64, 3), np.uint8))

    def close(self) -> None:
        self.closed = True


def test_a_camera_that_was_unplugged_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tests/pi unplugs real ones."""
    first = _Camera(3)
    second = _Camera(3)
    later: Iterator[_Camera | None] = iter([first, None, second])

    def opened(path: str, *asked: object) -> _Camera:
        assert path == "/dev/video7"
        assert asked == ("jpeg", (1280, 720), 15.0)
        camera = next(later)
        if camera is None:
            raise DeviceError("it is not there")
        return camera

    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    monkeypatch.setattr(sources, "Camera", opened)
    source = open_source("7?format=jpeg&size=1280x720&fps=15")
    assert (source.live, source.fps) == (True, 30.0)
    frames = source.frames()
    for _ in range(5):
        next(frames)
    assert first.closed
    assert source.lost == ""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("sise=1x1", 'a camera has no "sise"; did you mean "size"'),
        ("size=0x4", 'size of a camera cannot be "0x4"'),
        ("format=mjpg", 'format of a camera cannot be "mjpg"'),
        ("fps=", 'fps of a camera cannot be ""'),
    ],
)
def test_what_cannot_be_asked_of_a_camera(asked: str, said: str) -> None:
    with pytest.raises(InputError) as e:
        open_source(f"/dev/video0?{asked}")
    assert said in str(e.value)


@pytest.mark.skipif(sys.platform != "linux", reason="V4L2 is Linux's")
def test_files_that_are_no_cameras() -> None:
    with pytest.raises(DeviceError, match="/dev/null is not a camera"):
        open_source("/dev/null")
    with pytest.raises(DeviceError, match="is not a video output"):
        video_output.VideoOutput("/dev/null")
    with pytest.raises(DeviceError, match="cannot open /dev/video77: No such file"):
        open_source("77")


def test_a_picture_as_yuyv() -> None:
    picture = np.repeat(
        np.random.default_rng(0).integers(0, 256, (6, 4, 3)).astype(np.uint8), 2, axis=1
    )
    again = CameraFrame("yuyv", (video_output.yuyv(picture).reshape(6, 8, 2),)).rgb()
    assert np.abs(again.astype(int) - picture).max() <= 3
    assert [*video_output.yuyv(np.full((1, 2, 3), 255, np.uint8)).ravel()] == [
        235,
        128,
        235,
        128,
    ]


def test_the_clip_moves() -> None:
    photo = Path(__file__).parents[2] / "fixtures" / "photos" / "coffee.jpg"
    frames = [f.rgb() for f, _ in zip(clip([photo]).frames(), range(40), strict=False)]
    assert {f.shape for f in frames} == {(480, 640, 3)}
    assert all((a != b).any() for a, b in pairwise(frames))


def test_without_a_page(bundles: list[Path], photos: Path, tmp_path: Path) -> None:
    done = typed(
        "webcam",
        bundles[1],
        "--source",
        photos,
        "--no-display",
        "--frames",
        5,
        "--json",
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["delivered"], told["dropped"]) == (5, 0)
    assert [s["name"] for s in told["stages"]][:2] == ["capture", "prepare"]
    assert told["result"]["areas"][0]["label"] == "mask"
    done = typed("webcam", bundles[1], "--source", photos, "--no-display", cwd=tmp_path)
    assert done.out.startswith("9 frames, 0 dropped, ")


def test_what_contradicts_itself(bundles: list[Path], tmp_path: Path) -> None:
    for words, said in (
        (("--demo", bundles[0]), "--demo has a bundle and a clip of its own"),
        ((), "no bundle to show"),
        ((bundles[0], "--frames", "0"), "--frames 0 shows nothing"),
        ((bundles[0], "--source", tmp_path), "holds no photos"),
    ):
        done = typed("webcam", *words, cwd=tmp_path)
        assert done.code == 2
        assert said in done.err


def test_a_file_is_shown_at_its_pace(bundles: list[Path], photos: Path) -> None:
    source = open_source(str(photos))
    source.fps = 50.0
    start = time.monotonic()
    assert (
        len(list(Show(source, {"same": str(bundles[0])}, playback=Playback(pace=True))))
        == 9
    )
    assert time.monotonic() - start > 8 / 50


@pytest.mark.cc
@pytest.mark.parametrize("format", ["yuyv", "nv12", "bgr"])
def test_the_bundles_c_makes_frames_rgb(bundles: list[Path], format: str) -> None:
    """With the bits of numpy."""
    rng = np.random.default_rng(0)
    shapes = {
        "yuyv": ((46, 62, 2),),
        "nv12": ((46, 62), (23, 62)),
        "bgr": ((46, 62, 3),),
    }
    planes = tuple(rng.integers(0, 256, s).astype(np.uint8) for s in shapes[format])
    frame = CameraFrame(format, planes)
    with Bundle.open(bundles[0]) as opened:
        painting = Vision(opened).painting
    assert painting is not None
    np.testing.assert_array_equal(Painter(painting).rgb(frame), frame.rgb())


def test_a_source_of_broken_frames_ends_the_show(bundles: list[Path]) -> None:
    """A driver that gives one plane of NV12, and one whose array was changed since."""

    def one_plane(_: object) -> Iterator[CameraFrame]:
        yield CameraFrame("nv12", (np.zeros((4, 4), np.uint8),))

    def changed(_: object) -> Iterator[CameraFrame]:
        colours = np.zeros((24, 64), np.uint8)
        frame = CameraFrame("nv12", (np.zeros((48, 64), np.uint8), colours))
        colours.shape = (12, 128)
        yield frame

    for frames in (one_plane, changed):
        with pytest.raises(InputError, match="not one nv12 frame of"):
            list(_show(bundles[:1], Source("broken", False, 25.0, frames)))


@pytest.mark.cc
def test_arrays_that_are_not_the_bundles_are_refused(bundles: list[Path]) -> None:
    with Bundle.open(bundles[0]) as opened:
        vision = Vision(opened)
        (name,) = opened.manifest.inputs
        given = np.zeros((48, 64, 3), np.uint8)
        with pytest.raises(InputError, match=f'the array for "{name}" is uint8'):
            vision.prepare(given, {name: np.zeros(3, np.uint8)})
        outputs = {
            i.name: np.zeros(3, np.uint8) for i in opened.manifest.output_infos()
        }
        for wrong in ({}, outputs):
            with pytest.raises(InputError, match=r"is missing|is uint8"):
                vision.result(wrong, (64, 48))
        assert vision.painting is not None
        for shape in ((4, 4), (4, 4, 4)):
            with pytest.raises(InputError):
                vision.painting.resized(np.zeros(shape, np.uint8), (2, 2), "area")
        with pytest.raises(InputError, match="an array is float32"):
            vision.painting.matte(
                np.zeros((8, 8)),
                np.zeros((2, 2)),
                1,
                0.1,
                np.zeros((8, 8, 3), np.uint8),
            )
