"""Pictures that a page sends: of which files they are made, and which are refused."""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.errors import InputError
from edgec_runtime.webcam.effects import Painter, effect
from edgec_runtime.webcam.show import Show
from edgec_runtime.webcam.sources import open_source
from edgec_runtime.webcam.uploads import MAX_SIDE, decode_upload
from PIL import Image

from edgec.ir import Array


def encoded(picture: Array, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, form, **options)
    return buffer.getvalue()


def gradient(height: int = 40, width: int = 60) -> Array:
    rows = np.linspace(0, 255, height)[:, None, None]
    return np.broadcast_to(rows, (height, width, 3)).astype(np.uint8)


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


def bomb() -> bytes:
    """A PNG of 12,000 x 12,000 pixels in some bytes."""
    size = struct.pack(">IIBBBBB", 12_000, 12_000, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", size), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n"
    for name, content in parts:
        check = struct.pack(">I", zlib.crc32(name + content))
        data += struct.pack(">I", len(content)) + name + content + check
    return data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: b"", "empty, or larger than 8 MB"),
        (lambda: b"GIF89a" + bytes(100), "cannot be read"),
        (lambda: encoded(gradient(), "BMP"), "cannot be read"),
        (lambda: encoded(gradient(), "PNG")[:80], "cannot be read"),
        (lambda: encoded(gradient(), "JPEG")[:300], "cannot be read"),
        (bomb, "has 12000 x 12000 pixels"),
    ],
    ids=["empty", "gif", "bmp", "cut png", "cut jpeg", "bomb"],
)
def test_what_is_refused(data: Callable[[], bytes], said: str) -> None:
    with pytest.raises(InputError, match=said):
        decode_upload(data())


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
    thread.join(20)
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
    with pytest.raises(InputError, match="yours cannot be read"):
        effect("replace=yours", Painter())
    effect("replace=yours", Painter(), uploads={"yours": gradient()})
