"""Where a command wants a file: a pipe nobody writes to, what never ends, what is
larger than any disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from edgec_runtime import InputError
from edgec_runtime.device_end.disk import given
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.webcam.sources import open_source

from tests.cli.test_errors import DIGITS, onnx_model, refused
from tests.cli.verbs import edgec
from tests.devices.attacks import within


def _terabyte(path: Path) -> None:
    with path.open("wb") as f:
        f.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a terabyte": _terabyte,
    "a folder": Path.mkdir,
}
VERBS = {
    "a model": ("x.onnx", ("compile", "x.onnx")),
    "a .tflite model": ("x.tflite", ("explain", "x.tflite")),
    "a task": ("x.json", ("compile", "m.onnx", "--task", "x.json")),
    "a task in TOML": ("x.toml", ("compile", "m.onnx", "--task", "x.toml")),
    "anchors": (
        "x.csv",
        ("compile", "m.onnx", "--task", "yolox", "--anchors", "x.csv"),
    ),
    "anchors of numpy": (
        "x.npy",
        ("compile", "m.onnx", "--task", "yolox", "--anchors", "x.npy"),
    ),
    "schedules": ("x", ("compile", "m.onnx", "--allow-float", "--tuned", "x")),
    "labels": ("x", ("compile", "m.onnx", "--allow-float", "--labels", "x")),
    "a recipe": (
        "x.toml",
        ("compile", "m.onnx", "--calibrate", "m.onnx", "--quantize", "x.toml"),
    ),
    "a private key": ("x", ("sign", "m.edgec", "--key", "x")),
    "a public key": ("x", ("trust", "x", "--on", "local:")),
    "a wheel": (
        "x-1.0-py3-none-any.whl",
        ("sign", "x-1.0-py3-none-any.whl", "--key", "x"),
    ),
    "edgec.toml": ("edgec.toml", ("devices",)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", VERBS)
def test_what_is_no_file(tmp_path: Path, what: str, kind: str) -> None:
    name, words = VERBS[what]
    onnx_model(tmp_path / "m.onnx")
    KINDS[kind](tmp_path / name)
    with within(60):
        refused(edgec(*words, cwd=tmp_path))


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "a folder"])
def test_an_earlier_run(tmp_path: Path, kind: str) -> None:
    from edgec.benching.result import BenchReport

    KINDS[kind](tmp_path / "old.json")
    with within(60), pytest.raises(InputError, match="cannot read the earlier run"):
        BenchReport.load_file(tmp_path / "old.json")


@pytest.mark.parametrize("kind", ["a pipe", "a link to a device"])
def test_photos_and_videos(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "x.jpg")
    KINDS[kind](tmp_path / "x.mp4")
    with within(60):
        with pytest.raises(InputError, match="not a plain file"):
            read_photo(tmp_path / "x.jpg")
        for name in ("x.jpg", "x.mp4"):
            with pytest.raises(InputError, match="neither a file nor a folder"):
                open_source(str(tmp_path / name))
        with pytest.raises(InputError, match="not a plain file"):  # one of a folder
            list(open_source(str(tmp_path)).frames())


def test_what_is_given_may_be_a_link_but_no_larger_than_it_says(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(DIGITS)
    assert given(tmp_path / "link", 1 << 20) == DIGITS.read_bytes()
    with pytest.raises(OSError, match="more than 10"):
        given(DIGITS, 10)
    with pytest.raises(OSError, match="more than 10"):  # which says that it has none
        given("/proc/cpuinfo", 10)
