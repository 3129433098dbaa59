"""The C of frames, boxes and mattes as a program of any target, which writes what it
made to standard output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from edgec_runtime import TensorInfo
from edgec_runtime.vision.camera import FORMATS, CameraFrame
from edgec_runtime.vision.photo import Placement
from edgec_runtime.vision.preprocess import ImageLayout, Preprocess
from edgec_runtime.vision.resample import padded

from edgec.ir import Array


def c_array(kind: str, name: str, array: Array) -> str:
    """As a constant of C."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "f":
        texts = [float(v).hex() for v in flat]
    else:
        texts = [str(int(v)) for v in flat]
    return f"static const {kind} {name}[] = {{{', '.join(texts) or '0'}}};\n"


def frame_calls(
    frames: Sequence[CameraFrame],
    infos: Sequence[TensorInfo],
    how: Sequence[Preprocess],
) -> tuple[str, str]:
    """Constants, and statements that make every input of every frame and write it."""
    data = ""
    calls = ""
    for f, frame in enumerate(frames):
        planes = ["NULL", "NULL"]
        strides = [0, 0]
        for i, plane in enumerate(frame.planes):
            data += c_array("uint8_t", f"plane_{f}_{i}", plane)
            planes[i], strides[i] = f"plane_{f}_{i}", plane.strides[0]
        width, height = frame.size
        data += (
            f"static const ek_frame_t frame_{f} = {{{FORMATS.index(frame.format)}, "
            f"{width}, {height}, "
            f"{{{', '.join(planes)}}}, {{{strides[0]}, {strides[1]}}}}};\n"
        )
        for n, (info, p) in enumerate(zip(infos, how, strict=True)):
            layout = ImageLayout.of(info, p.layout)
            assert layout is not None
            place = Placement.of((width, height), (layout.width, layout.height), p.fit)
            names = []
            for axis, length, at, count in (
                ("down", height, (place.box[1], place.box[3]), place.target[3]),
                ("across", width, (place.box[0], place.box[2]), place.target[2]),
            ):
                first, weights = padded(p.filter, length, *at, count)
                own = f"{axis}_{f}_{n}"
                data += c_array("int32_t", f"first_{own}", first) + c_array(
                    "int16_t", f"weights_{own}", weights
                )
                data += (
                    f"static const ek_taps_t {own} = {{{count}, "
                    f"{weights.shape[1]}, "
                    f"first_{own}, weights_{own}}};\n"
                )
                names.append(f"&{own}")
            calls += (
                f"    if (edgec_frame_{n}(&frame_{f}, {', '.join(names)}, "
                f"{place.target[0]}, {place.target[1]}, "
                f"scratch, made)) return 1;\n    fwrite(made, 1, {info.nbytes}, stdout);\n"
            )
    return data, calls


def program(vision: str, data: str, calls: str) -> str:
    """The whole text."""
    return (
        f"#include <stdio.h>\n{vision}\n{data}\n"
        "static unsigned char scratch[1 << 20] __attribute__((aligned(64)));\n"
        "static unsigned char made[1 << 20] __attribute__((aligned(64)));\n"
        f"int main(void) {{\n{calls}    return 0;\n}}\n"
    )
