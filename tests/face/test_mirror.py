"""Avatars mirror known motions, with the real mesh network (make mirror-check does
all of it).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle
from edgec_runtime.session.vision import Vision
from edgec_runtime.webcam.effects import Painter

from benchmarks.face_meshes import FaceMeshes
from benchmarks.mirror_check import (
    MEDIAN,
    STILL_PIXELS,
    WORST,
    Stage,
    clip_of,
    mirrored,
    networks_in,
    photos,
    portrait_of,
    still_pixels,
)

pytestmark = [pytest.mark.shared, pytest.mark.slow, pytest.mark.cc]


def test_a_portrait_mirrors_a_tilt_and_a_blink(tmp_path: Path) -> None:
    bundles = networks_in(tmp_path, None)
    meshes = FaceMeshes(bundles["blazeface"], bundles["facemesh"])
    with Bundle.open(str(bundles["facemesh"])) as bundle:
        painter = Painter(Vision(bundle).painting)
        stage = Stage("float", meshes, meshes, painter)
        people = photos()
        driver = portrait_of(people["astronaut"], meshes)
        for name in ("tilt right", "blink"):
            clip = clip_of(name, driver, painter)
            figures, off, _ = mirrored(
                clip, "astronaut", "officer", people["officer"], stage
            )
            assert np.median(off) <= MEDIAN
            assert np.percentile(off, 95) <= WORST
            assert figures.unmoved <= 1
            assert figures.holes == 0
        still = still_pixels(people["man"], people["officer"], stage)
        assert still <= STILL_PIXELS
