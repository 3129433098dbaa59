"""The C of crops reads and writes no byte beyond what it was given."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle
from edgec_runtime.model.native import _crop_scratch
from edgec_runtime.vision.camera import FORMATS
from edgec_runtime.vision.crop import Crop, CropGrid

from tests.cascade import objects

pytestmark = [pytest.mark.cc, pytest.mark.slow]
CASES = 600
IMAGE = (objects.POINTS, objects.POINTS)
COLUMN = {"rgb": 3, "bgr": 3, "gray": 1, "rgba": 4, "yuyv": 2, "nv12": 1}
"""Bytes of a column in the first plane."""


def case(rng: np.random.Generator, n: int) -> bytes:
    """Return a case of crop_cases.c: sizes, strides, a grid, and bytes of scratch."""
    format = FORMATS[n % len(FORMATS)]
    width, height = (2 * int(k) for k in rng.integers(1, 120, 2))
    if n % 5 == 0:
        width, height = 2, 2
    stride = width * COLUMN[format]
    second = width * height // 2 if format == "nv12" else 1
    # From a part of a pixel to many times the frame, inside it and far away.
    reach = 10 ** rng.uniform(0, 3.5)
    crop = Crop(
        rng.uniform(-2 * reach, width + reach),
        rng.uniform(-2 * reach, height + reach),
        10 ** rng.uniform(0.3, 3.5),
        10 ** rng.uniform(0.3, 3.5),
        rng.uniform(-4, 4),
        mirrored=n % 2 > 0,
    )
    grid = CropGrid.of(crop, (width, height), IMAGE)
    numbers = [
        *(n % len(FORMATS), width, height),
        *(stride * height, second, stride, width),
        *(grid.level, *grid.region, *grid.start, *grid.across, *grid.down),
        _crop_scratch(grid, IMAGE),
    ]
    return struct.pack(f"<{len(numbers)}q", *numbers)


def test_no_byte_beyond_the_buffers(tmp_path: Path) -> None:
    with Bundle.open(objects.bundle()) as cascade:
        inner = cascade.network("discs")
        for name in inner.names:
            if name.startswith("src/"):
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(inner.read(name))
    source = tmp_path / "src"
    program = tmp_path / "cases"
    command: list[str] = [
        *("gcc", "-std=gnu11", "-O1", "-g", "-march=x86-64-v3"),
        *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        *("-Wno-psabi", f"-I{source}", "-o", str(program)),
        str(Path(__file__).with_name("crop_cases.c")),
        str(source / "linux-x86_64" / "vision.c"),
        "-lm",
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode and "sanitize" in built.stderr:
        pytest.skip("this gcc has no sanitizers")
    assert built.returncode == 0, built.stderr
    rng = np.random.default_rng(0)
    cases = b"".join(case(rng, n) for n in range(CASES))
    done = subprocess.run([program], input=cases, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[:2000]
    assert int(done.stdout) == CASES
