"""The C of frames and boxes as the boards' code, and under sanitizers: what numpy
makes, bit for bit.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.boards import Board
from edgec_runtime import TensorInfo, prepare
from edgec_runtime.vision.camera import FORMATS
from edgec_runtime.vision.preprocess import bind, parse
from edgec_runtime.vision.tasks.anchors import Anchors
from edgec_runtime.vision.tasks.detection import Detection
from edgec_runtime.vision.tasks.find_boxes import find_boxes

from edgec.emit.c import CSRC
from edgec.emit.vision import vision_source
from edgec.toolchain.cc import Compiler
from tests.tasks.program import c_array, frame_calls, program
from tests.tasks.test_frames import WAYS, frame

SIZES = [(38, 26), (50, 34), (14, 90)]


def _text() -> tuple[str, bytes]:
    """A program, and what it has to write before the boxes: inputs of frames in all
    formats.
    """
    infos = [*WAYS.values()]
    how = [bind(info, parse(text)) for text, info in WAYS.items()]
    frames = [frame(format, *SIZES[i % 3], i) for i, format in enumerate(FORMATS)]
    image = TensorInfo("x", (1, 48, 64, 3), "|u1")
    boxes = {"o": TensorInfo("o", (1, 60, 11), "<f4")}
    grid = Anchors(strides=(8, 16), offset=0.0)
    task = Detection(anchors=grid, objectness=4, score_column=5, threshold=0.2).bind(
        boxes, (64, 48)
    )
    output = np.random.default_rng(3).random((1, 60, 11)).astype(np.float32)
    anchors = grid.made((64, 48), {})
    vision = vision_source(
        infos, {i.name: p for i, p in zip(infos, how, strict=True)}, None, []
    )
    own = vision_source([image], {"x": bind(image)}, task, [*boxes.values()])
    vision += '#include "ek_boxes.h"\n' + own[own.index("\nEK_API int edgec_boxes") :]
    data, calls = frame_calls(frames, infos, how)
    data += c_array("float", "output", output) + c_array("float", "anchors", anchors)
    data += "static float rows[60 * 7];\nstatic ek_candidate_t candidates[60];\n"
    calls += (
        "    const int n = edgec_boxes(output, output, anchors, candidates, "
        "made, "
        "rows);\n"
    )
    calls += "    fwrite(rows, 28, (size_t)n, stdout);\n"
    expected = b"".join(
        prepare(f.rgb(), p, i).tobytes()
        for f in frames
        for i, p in zip(infos, how, strict=True)
    )
    return program(vision, data, calls), expected + find_boxes(
        task, output, output, anchors, (64, 48)
    ).tobytes()


def _same(made: bytes, expected: bytes) -> None:
    """All inputs to the bit; boxes, at the end, but for how exp rounds."""
    assert len(made) == len(expected)
    inputs = sum(info.nbytes for info in WAYS.values()) * len(FORMATS)
    assert made[:inputs] == expected[:inputs]
    boxes, law = (np.frombuffer(data[inputs:], np.float32) for data in (made, expected))
    assert boxes.size > 0
    np.testing.assert_allclose(boxes, law, rtol=1e-5, atol=1e-4)


@pytest.mark.arm
@pytest.mark.slow
@pytest.mark.parametrize("target", ["linux-aarch64", "linux-armv7"])
def test_boards_make_the_same(tmp_path: Path, target: str) -> None:
    board = Board.load("pi4").target(target)
    text, expected = _text()
    (tmp_path / "main.c").write_text(text)
    cc = Compiler.zig(board.library, board.program, board.mcpu)
    cc.compile(
        tmp_path / "main.c", [CSRC], tmp_path / "main.o", ["-Wno-unused-function"]
    )
    cc.link_program([tmp_path / "main.o"], tmp_path / "main")
    done = subprocess.run(
        [board.qemu, "-cpu", board.qemu_cpu, tmp_path / "main"],
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    _same(done.stdout, expected)


@pytest.mark.cc
@pytest.mark.slow
def test_nothing_is_written_elsewhere(tmp_path: Path) -> None:
    text, expected = _text()
    (tmp_path / "main.c").write_text(text)
    flags = [
        "-std=c11",
        "-O2",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    command = [
        "gcc",
        *flags,
        f"-I{CSRC}",
        str(tmp_path / "main.c"),
        "-lm",
        "-o",
        str(tmp_path / "main"),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode and "sanitize" in built.stderr:
        pytest.skip("this gcc has no sanitizers")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "main"], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    _same(done.stdout, expected)
