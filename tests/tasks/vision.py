"""The C of frames and boxes, compiled alone and called as a bundle's is."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgec_runtime import Preprocess, TensorInfo
from edgec_runtime.model.native import FoundBoxes, FrameInput, function
from edgec_runtime.vision.preprocess import ImageLayout
from edgec_runtime.vision.tasks.base import Size
from edgec_runtime.vision.tasks.detection import Detection

from edgec.compiler.native import native_compiler
from edgec.emit.c import CSRC
from edgec.emit.vision import vision_source
from edgec.toolchain.build import build_library


def library(text: str, folder: Path) -> ctypes.CDLL:
    path = folder / "vision.so"
    path.write_bytes(build_library(text, CSRC, native_compiler(None)))
    return ctypes.CDLL(str(path))


def frame_inputs(
    infos: Sequence[TensorInfo], how: Mapping[str, Preprocess], folder: Path
) -> list[FrameInput]:
    """A function for each input."""
    lib = library(vision_source(infos, how, None, []), folder)
    found = []
    for i, info in enumerate(infos):
        layout = ImageLayout.of(info, how[info.name].layout)
        assert layout is not None
        size = layout.width, layout.height
        call = function(lib, f"edgec_frame_{i}")
        found.append(
            FrameInput(call, info, size, how[info.name].fit, how[info.name].filter)
        )
    return found


def found_boxes(
    rows: Sequence[tuple[Detection, Mapping[str, TensorInfo], Size]], folder: Path
) -> list[FoundBoxes]:
    """A function for each bound task."""
    text = ""
    for i, (task, outputs, image) in enumerate(rows):
        # an input of its size, that the boxes are in
        info = TensorInfo(f"in{i}", (1, image[1], image[0], 3), "|u1")
        from edgec_runtime.vision.preprocess import bind

        own = vision_source(
            [info], {info.name: bind(info)}, task, list(outputs.values())
        )
        text += re.sub(
            r"(edgec_boxes|edgec_frame|edgec_crop|edgec_vision_for|table)(_0)?\b",
            rf"\g<1>\g<2>_{i}",
            own,
        )
    lib = library(text, folder)
    return [
        FoundBoxes(function(lib, f"edgec_boxes_{i}"), task, outputs)
        for i, (task, outputs, _) in enumerate(rows)
    ]
