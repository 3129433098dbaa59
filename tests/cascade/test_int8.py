"""A cascade in int8: the crops that the float networks make of photos calibrate the
networks that see crops.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import Bundle, InputError, Session
from PIL import Image

import edgec
from tests.cascade import objects
from tests.cascade.objects import Thing, found, scene, seen

pytestmark = [pytest.mark.cc, pytest.mark.slow]
OPTIONS: dict[str, Any] = {
    "quantize": "fast",
    "budget": "0%",
    "float_ops": ("v*",),
    "min_cosine": -1.0,
}
"""The convolutions in int8, and the arithmetic after them in float."""


def photos(folder: Path, *scenes: tuple[Thing, ...]) -> Path:
    folder.mkdir()
    for i, things in enumerate(scenes):
        Image.fromarray(scene(*things)).save(folder / f"{i:02}.png")
    return folder


def test_crops_of_photos_calibrate(tmp_path: Path) -> None:
    scenes = [
        (Thing(40 + 4 * i, 50 + 3 * i, 0.5 * i), Thing(150, 100, 1 + i, 22))
        for i in range(12)
    ]
    file = objects.write(tmp_path)
    path = tmp_path / "x.edgec"
    told: list[str] = []
    done = edgec.compile(
        file,
        "host",
        path,
        calibrate=photos(tmp_path / "p", *scenes),
        progress=told.append,
        **OPTIONS,
    )
    turns = [int(m[1]) for t in told if (m := re.match(r"step (\d+) of 24: ", t))]
    assert len(turns) == len([t for t in told if t])
    assert list(dict.fromkeys(turns)) == list(range(1, 25)), "none is left out"
    # Two objects in twelve photos, each seen by three crops in two frames.
    assert "calibrated on" in done.networks["discs"].first_screen()
    assert " discs.npz, held back from calibration" in done.summary()
    with Bundle.open(path) as bundle:
        for name in ("thing", "discs"):
            tensors = bundle.network(name).manifest
            assert tensors.quantization["recipe"]
    thing = Thing(70, 60, 0.4)
    with Session(path) as session:
        points = found(seen(session, scene(thing)), "discs")[1]
    assert np.abs(points - thing.points).max() < 0.5
    assert [p.name for p in tmp_path.glob("*.edgec")] == ["x.edgec"]


def test_photos_without_objects_calibrate_nothing(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    with pytest.raises(InputError) as raised:
        edgec.compile(
            file,
            output=tmp_path / "x.edgec",
            calibrate=photos(tmp_path / "p", (), ()),
            **OPTIONS,
        )
    assert 'no photo shows anything that the network "discs" would see' in str(
        raised.value
    )
    assert not (tmp_path / "x.edgec").exists()


def test_calibration_data_are_photos(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    np.savez(tmp_path / "x.npz", frame=np.zeros((4, 3, 96, 96), np.float32))
    with pytest.raises(InputError, match="calibrated with a folder of photos"):
        edgec.compile(file, calibrate=tmp_path / "x.npz", **OPTIONS)
