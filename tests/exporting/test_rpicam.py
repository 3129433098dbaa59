"""A stage for rpicam-apps, against a header of ours that states their interface: it finds
in a frame what `edgec run` finds in the same picture.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.vision.camera import CameraFrame
from numpy.typing import NDArray
from PIL import Image

import edgec
from edgec.errors import InputError
from edgec.exporting.rpicam import stage_name
from tests import builds
from tests.cli.verbs import edgec as verb
from tests.conftest import ROOT
from tests.exporting import other_networks
from tests.exporting.test_hostile_names import NAMES
from tests.shapes import bundle as shapes_bundle

HEADERS = Path(__file__).with_name("rpicam")
FIXTURES = ROOT / "fixtures"
Picture = NDArray[np.uint8]

pytestmark = [
    pytest.mark.cc,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which("cmake") and shutil.which("g++")),
        reason="no cmake or g++: apt-get install cmake g++",
    ),
]


@dataclass(frozen=True)
class Frame:
    """A frame of the low resolution stream: its bytes, and the picture that it shows.

    Attributes:
        data: planes of Y, U and V, whose rows are longer than the picture
        stride: bytes of a row of Y
        picture: red, green and blue as edgec's own conversion has them
    """

    data: bytes
    stride: int
    picture: Picture

    @staticmethod
    def of(picture: Picture, full_709: bool = False) -> Frame:
        """The frame of a picture with even sides, uint8 [H, W, 3]."""
        height, width = picture.shape[:2]
        red, green, blue = (picture[..., i].astype(float) for i in range(3))
        kr, kb = (0.2126, 0.0722) if full_709 else (0.299, 0.114)
        luma = kr * red + (1 - kr - kb) * green + kb * blue
        half = luma[::2, ::2]
        u = (blue[::2, ::2] - half) / (2 * (1 - kb))
        v = (red[::2, ::2] - half) / (2 * (1 - kr))
        if not full_709:
            luma, u, v = 16 + luma * 219 / 255, u * 224 / 255, v * 224 / 255
        planes = [levels(plane) for plane in (luma, u + 128, v + 128)]
        stride = -(-width // 64) * 64
        rows = [
            padded(planes[0], stride),
            *(padded(p, stride // 2) for p in planes[1:]),
        ]
        colours = np.stack(planes[1:], -1).reshape(height // 2, width)
        shown = CameraFrame("nv12", (planes[0], colours)).rgb()
        return Frame(b"".join(r.tobytes() for r in rows), stride, shown)


def levels(plane: NDArray[Any]) -> Picture:
    return np.asarray(np.clip(np.rint(plane), 0, 255), np.uint8)


def padded(plane: Picture, stride: int) -> Picture:
    return np.pad(plane, ((0, 0), (0, stride - plane.shape[1])), constant_values=99)


def photo(width: int, height: int) -> Picture:
    with Image.open(FIXTURES / "photos" / "chelsea.jpg") as image:
        small = image.convert("RGB").resize((width, height))
    return np.asarray(small, np.uint8).copy()


class Stage:
    """An exported stage, built against the headers, and a program in the place of
    rpicam-apps.

    folder: has the bundle, as net.edgec
    """

    def __init__(self, folder: Path) -> None:
        self.bundle = folder / "net.edgec"
        self.folder = folder / "stage"
        self._program = folder / "drive"

    def build(self) -> None:
        """Export the stage; compile it and the program."""
        edgec.export(self.bundle, rpicam=self.folder)
        settings = [f"-DRPICAM_HEADERS={HEADERS}", "-DCMAKE_CXX_COMPILER=g++"]
        call(self.folder, "cmake", "-B", "build", *settings)
        call(self.folder, "cmake", "--build", "build")
        source = [str(HEADERS / "drive.cpp"), "-o", str(self._program), "-ldl"]
        call(self.folder, "g++", "-std=c++20", "-rdynamic", f"-I{HEADERS}", *source)

    def metadata(
        self, frame: Frame, *words: str, main: tuple[int, int] | None = None
    ) -> list[list[str]]:
        """The fields of each entry of the metadata, after the stage had a frame."""
        path = self.folder / "frame.yuv"
        path.write_bytes(frame.data)
        height, width = frame.picture.shape[:2]
        sides = (width, height, frame.stride, *(main or (width, height)))
        module = only(self.folder / "build", "*.so")
        command = [str(self._program), str(module), str(path), *map(str, sides)]
        text = call(self.folder, *command, *words)
        return [line.split("\t") for line in text.splitlines()]

    def result(self, picture: Picture) -> dict[str, Any]:
        """What `edgec run` says of a picture."""
        path = self.folder / "frame.png"
        Image.fromarray(picture).save(path)
        done = verb("run", self.bundle, "--input", path, "--json", cwd=self.folder)
        assert done.code == 0, done.err
        result: dict[str, Any] = json.loads(done.out)
        return result


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert "warning" not in done.stderr, done.stderr
    return done.stdout


def check_boxes(
    rows: Sequence[Sequence[str]], result: dict[str, Any], scale: float = 1.0
) -> None:
    boxes = result["boxes"]
    assert len(rows) == len(boxes) > 0
    for row, box in zip(rows, boxes, strict=True):
        tag, name, category, score, *sides = row
        assert tag == "object_detect.results"
        assert (name, int(category)) == (box["label"], box["class"])
        assert float(score) == pytest.approx(box["score"], abs=6e-5)
        x, y, width, height = map(int, sides)
        corners = np.array((x, y, x + width, y + height))
        # Theirs are whole pixels.
        np.testing.assert_allclose(corners, np.array(box["box"]) * scale, atol=0.51)


def stage_of(name: str) -> Stage:
    """The stage of one of the other networks, built once a run."""

    def make(to: Path) -> None:
        shutil.copy(other_networks.bundle(name), to / "net.edgec")
        Stage(to).build()

    return Stage(builds.once(f"rpicam {name}", make))


def _shapes(to: Path) -> None:
    shutil.copy(shapes_bundle(), to / "net.edgec")
    Stage(to).build()


def shapes() -> Stage:
    return Stage(builds.once("rpicam shapes", _shapes))


@pytest.mark.parametrize("size", [(96, 96), (320, 240), (452, 300), (90, 600)])
def test_a_detector_finds_what_run_finds(size: tuple[int, int]) -> None:
    stage = shapes()
    frame = Frame.of(photo(*size))
    check_boxes(stage.metadata(frame, "wait=1"), stage.result(frame.picture))


def test_while_the_network_runs_frames_pass_with_the_last_result() -> None:
    """And boxes are in pixels of the main stream."""
    stage = shapes()
    frame = Frame.of(photo(320, 240))
    rows = stage.metadata(frame, "threads=1", "every=1", main=(640, 480))
    check_boxes(rows, stage.result(frame.picture), scale=2)


def test_other_colour_spaces() -> None:
    """Of full range by Rec. 709 the colours are within a step of those of the picture."""
    stage = shapes()
    picture = np.repeat(np.repeat(photo(160, 120), 2, 0), 2, 1)
    frame = Frame.of(picture, full_709=True)
    (found, *_) = stage.metadata(frame, "full709", "wait=1")
    (box, *_) = stage.result(picture)["boxes"]
    assert found[1] == box["label"]
    assert float(found[3]) == pytest.approx(box["score"], abs=0.02)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", other_networks.NAMES)
def test_other_networks(name: str) -> None:
    stage = stage_of(name)
    frame = Frame.of(photo(128, 96))
    rows = stage.metadata(frame, "wait=1")
    result = stage.result(frame.picture)
    if "classes" in result:
        check_classes(rows, result["classes"])
    else:
        check_boxes(rows, result)


def check_classes(
    rows: Sequence[Sequence[str]], classes: Sequence[dict[str, Any]]
) -> None:
    best = classes[0]
    assert rows[0][0] == "annotate.text"
    assert rows[0][1].startswith(f"{best['label']} {best['score']:.0%}")
    for row, one in zip(rows[1:], classes, strict=True):
        assert row[:2] == ["object_classify.results", one["label"]]
        assert float(row[2]) == pytest.approx(one["score"], abs=6e-5)


# ---- the files


def test_the_json_asks_for_the_stream_that_the_network_wants() -> None:
    folder = shapes().folder
    read = json.loads((folder / "edgec_shapes.json").read_text())
    assert list(read) == ["rpicam-apps", "edgec_shapes", "object_detect_draw_cv"]
    lores = read["rpicam-apps"]["lores"]
    assert lores == {"width": 96, "height": 96, "format": "yuv420", "par": False}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_has_a_plain_name(name: str) -> None:
    assert re.fullmatch(r"edgec_[A-Za-z0-9_]+", stage_name(name))


def test_networks_of_other_kinds_are_refused(tmp_path: Path) -> None:
    """They say so before anything is written."""
    with Bundle.open(shapes().bundle) as bundle:
        fields = bundle.manifest_fields()
        files = {name: bundle.read(name) for name in bundle.names}
    del fields["task"]
    for preprocess, why in ((fields["preprocess"], "nobody said"), ({}, "not a pict")):
        fields["preprocess"] = preprocess
        write_bundle(tmp_path / "net.edgec", fields, files)
        with pytest.raises(InputError, match=why) as e:
            edgec.export(tmp_path / "net.edgec", rpicam=tmp_path / "stage")
        assert e.value.hint
        assert not (tmp_path / "stage").exists()
