"""The tutorial of YOLO up to the boxes on the page, as it is written.

Its device part is with the other tutorial's, on the emulated machine (tests/devices).
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from http import HTTPStatus
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from edgec.ir import Array
from tests.cli.verbs import edgec
from tests.house.pages import ROOT, commands
from tests.networks.yolo import yolo11n
from tests.signals import heed_signals

PAGE = "docs/tutorial-yolo.md"
HEADINGS = (
    "2. Explain: what will run where",
    "3. Compile",
    "4. Boxes",
    "5. Boxes on the page",
)
UNTRAINED = """
from ultralytics import YOLO

model = YOLO("yolo11n.yaml")
# An untrained network is sure of nothing; these scores are high enough for boxes.
for branch in model.model.model[-1].cv3:
    branch[-1].bias.data += 9.0
model.save("yolo11n.pt")
"""
SIZE = 160
PROPERTIES = {
    "author": "Ultralytics",
    "task": "detect",
    "stride": "32",
    "batch": "1",
    "imgsz": f"[{SIZE}, {SIZE}]",
    "names": str({i: f"thing {i}" for i in range(80)}),
    "channels": "3",
    "end2end": "False",
}
"""What the exporter writes into a file (docs.ultralytics.com, modes/export)."""


def _export(folder: Path) -> None:
    """Write yolo11n.onnx by the exporter, where `yolo` is on the PATH.

    Elsewhere, as edgec's own environment has no PyTorch, it is a network of the same
    layers and properties, of small pictures.
    """
    program = shutil.which("yolo")
    if program is None:
        model = onnx.load(yolo11n(folder / "yolo11n.onnx", SIZE))
        for key, value in PROPERTIES.items():
            model.metadata_props.add(key=key, value=value)
        onnx.save(model, folder / "yolo11n.onnx")
        return
    python = Path(program).with_name("python")
    subprocess.run([python, "-c", UNTRAINED], cwd=folder, check=True)
    (line,) = (c for c in commands(PAGE, "1. Export") if "yolo export" in c)
    subprocess.run([program, *shlex.split(line)[1:]], cwd=folder, check=True)


def _page_picture(words: list[str], folder: Path) -> Array:
    """Return the first picture of the page that `edgec webcam` serves, before and
    after side by side; uint8 [2, height, width, 3].
    """
    # Another program may have the usual port.
    command = [sys.executable, "-m", "edgec", *words, "--port", "0"]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_signals,
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            match = re.match(r"watch at (http://127\.0\.0\.1:\d+/\?token=\S+)", said)
            assert match, said
            url = match[1].replace("/?", "/picture?")
            # Without content where the first frame is not there yet.
            for _ in range(60):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    if answer.status == HTTPStatus.OK:
                        width = int(answer.headers["X-Before"])
                        both = np.asarray(Image.open(io.BytesIO(answer.read())))
                        return np.stack([both[:, :width], both[:, -width:]])
            raise AssertionError("no frame came")
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


@pytest.mark.arm
@pytest.mark.slow
def test_boxes_come_as_written(tmp_path: Path) -> None:
    _export(tmp_path)
    shutil.copytree(ROOT / "fixtures" / "photos", tmp_path / "photos")
    verbs = []
    for line in commands(PAGE, *HEADINGS):
        program, *words = shlex.split(line)
        assert program == "edgec"
        verbs.append(words[0])
        if words[0] == "webcam":
            before, after = _page_picture(words, tmp_path).astype(int)
            # Lines of boxes differ by far more than two pictures of one JPEG.
            assert np.abs(after - before).max() > 100
            continue
        done = edgec(*words, cwd=tmp_path)
        assert done.code == 0, (line, done.err)
        if words[0] == "run":
            assert re.search(r"^ +\d+\.\d% ", done.out, re.M), "there is a box"
    assert verbs == ["explain", "compile", "run", "bench", "webcam"]
    photo = Image.open(tmp_path / "photos" / "coffee.jpg")
    assert Image.open(tmp_path / "boxes.png").size == photo.size
