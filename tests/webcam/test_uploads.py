"""Pictures that a page sends: of which files they are made, and which are refused."""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.errors import DeviceError, InputError
from edgec_runtime.webcam import uploads
from edgec_runtime.webcam.effects import Painter, effect
from edgec_runtime.webcam.show import Show
from edgec_runtime.webcam.sources import open_source
from edgec_runtime.webcam.uploads import LIMITS, MAX_SIDE, decode_upload
from PIL import Image

from tests.waiting import LIMIT_S
from tests.webcam.pictures import blank_png, encoded, gradient, many_scans


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_pictures_are_read(form: str) -> None:
    found = decode_upload(encoded(gradient(), form))
    assert found.shape == (40, 60, 3)
    assert np.abs(found.astype(int) - gradient()).max() <= 4


def test_large_ones_become_smaller() -> None:
    found = decode_upload(encoded(np.zeros((700, 2600, 3), np.uint8), "PNG"))
    assert found.shape == (round(700 * MAX_SIDE / 2600), MAX_SIDE, 3)


def test_they_are_turned_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    found = decode_upload(encoded(gradient(), "JPEG", exif=turned))
    assert found.shape == (60, 40, 3)


def test_sixteen_bits_of_grey_keep_their_light() -> None:
    for height in (40, 2000):
        grey = gradient(height)[..., 0].astype(np.uint16) * 257
        found = decode_upload(encoded(grey, "PNG"))
        assert found.shape == (min(height, MAX_SIDE), 60 * len(found) // height, 3)
        rows = gradient(len(found))[:, 0, 0].astype(int)
        assert np.abs(found.mean(axis=(1, 2)) - rows).max() <= 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: b"", "empty, or larger than 8 MB"),
        (lambda: b"GIF89a" + bytes(100), "cannot be read: it is not a JPEG or PNG"),
        (lambda: encoded(gradient(), "BMP"), "cannot be read: it is not a JPEG or PNG"),
        (lambda: encoded(gradient(), "PNG")[:80], "cannot be read"),
        (lambda: encoded(gradient(), "JPEG")[:300], "cannot be read"),
        (lambda: blank_png(12_000, 12_000), "has 12000 x 12000 pixels"),
        (lambda: blank_png(1, 24_000_000), "has 1 x 24000000 pixels"),
        (lambda: blank_png(8000, 8000), "has 8000 x 8000 pixels"),
        (lambda: blank_png(1 << 30, 1 << 30), "has 1073741824 x 1073741824 pixels"),
    ],
    ids=["empty", "gif", "bmp", "cut png", "cut jpeg", "bomb", "line", "area", "huge"],
)
def test_what_is_refused(data: Callable[[], bytes], said: str) -> None:
    with pytest.raises(InputError, match=said) as e:
        decode_upload(data())
    assert " at 0x" not in e.value.what
    assert e.value.hint


def test_it_takes_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest picture that is allowed has enough, and none gets more."""
    large = encoded(np.zeros((3000, 8000, 4), np.uint8), "PNG", compress_level=1)
    assert decode_upload(large).shape == (480, 1280, 3)
    monkeypatch.setattr(uploads, "LIMITS", LIMITS._replace(memory=100 << 20))
    with pytest.raises(InputError, match="takes more than 100 MB"):
        decode_upload(large)


def test_it_takes_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "LIMITS", LIMITS._replace(seconds=1))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(InputError, match="takes more than 1 s"):
        decode_upload(many_scans())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_it_ends_its_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder's fault is a message, and so is a system without room for it."""
    monkeypatch.setattr(uploads, "START", "import os; os.abort()")
    with pytest.raises(InputError, match="its decoder ended with -6"):
        decode_upload(b"picture")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(DeviceError, match="no process can be started"):
        decode_upload(b"picture")


@pytest.fixture
def bright(bundles: list[Path], photos: Path) -> Show:
    return Show(open_source(str(photos)), {"bright": str(bundles[1])})


@pytest.mark.slow
def test_a_background_of_ones_own(bright: Show) -> None:
    assert bright.effects("segmentation") == ["overlay", "blur"]
    red = np.zeros((30, 40, 3), np.uint8)
    red[..., 0] = 200
    bright.upload(red)
    assert bright.choice.effect == "replace=your picture 1"
    assert bright.effects("segmentation")[-1] == "replace=your picture 1"
    # Dark photos are all background.
    first = next(iter(bright))
    assert np.abs(first.after.astype(int) - [200, 0, 0]).max() <= 3
    bright.upload(np.full_like(red, 90))
    assert bright.effects("segmentation")[2:] == ["replace=your picture 2"]
    bright.switch(effect="overlay")
    bright.switch(effect="replace=your picture 2")
    bright.stop()


@pytest.mark.slow
def test_one_after_the_other_while_it_runs(bright: Show) -> None:
    """The show opens its program anew for each, and the next may come meanwhile."""
    bright._loop = True
    shown: list[Exception | None] = []

    def run() -> None:
        try:
            for _ in bright:
                pass
            shown.append(None)
        except InputError as e:
            shown.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    for level in range(30):
        bright.upload(np.full((30, 40, 3), level, np.uint8))
    assert bright.choice.effect == "replace=your picture 30"
    assert bright.effects("segmentation")[2:] == ["replace=your picture 30"]
    bright.stop()
    thread.join(LIMIT_S)
    assert shown == [None]


@pytest.mark.slow
def test_where_no_effect_wants_a_picture(bundles: list[Path], photos: Path) -> None:
    show = Show(open_source(str(photos)), {"same": str(bundles[0])})
    assert not show.takes_pictures()
    with pytest.raises(InputError, match="no effect for same wants a picture"):
        show.upload(gradient())


@pytest.mark.slow
@pytest.mark.parametrize("file", ["your picture 1", "x=your picture 1", "/etc/passwd"])
def test_a_page_names_no_files(bright: Show, file: str) -> None:
    bright.upload(gradient())
    bright.upload(gradient())
    with pytest.raises(InputError, match="a page names no files"):
        bright.switch(effect=f"replace={file}")


def test_an_effect_finds_it_by_its_name() -> None:
    with pytest.raises(InputError, match="there is no photo yours"):
        effect("replace=yours", Painter())
    effect("replace=yours", Painter(), uploads={"yours": gradient()})
