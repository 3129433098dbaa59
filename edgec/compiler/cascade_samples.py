"""Calibration data for the networks behind a detector: the crops that the float networks
before them make of photos.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle, CameraFrame, Session, read_photo
from edgec_runtime.bundle.arrays import write_npz
from edgec_runtime.cascade.networks import OpenedNetworks
from edgec_runtime.cascade.runner import Infer
from edgec_runtime.session.meters import Meter
from edgec_runtime.vision.photo import PHOTO_SUFFIXES

from edgec.errors import InputError
from edgec.ir import Array
from edgec.steps import Progress, each

MOST = 200
"""Inputs of a network that are kept: ranges hardly change beyond."""
FRAMES = 2
"""Times that each photo is shown: first crops follow from the detector, then from the
objects' own points.
"""

Inputs = dict[str, list[Mapping[str, Array]]]
"""The inputs that each network was given, by its name."""


def write_samples(bundle: Path, photos: Path, folder: Path, say: Progress) -> None:
    """Write NAME.npz with the inputs of each network that sees crops.

    Args:
        bundle: the cascade in float, for this machine.
        photos: a folder of photos.
        folder: the folder to write to.
        say: is called with each photo.

    Raises InputError where a network would see nothing.
    """
    with Bundle.open(bundle) as opened:
        seen = _inputs_seen(opened, _photos(photos), say)
        cascade = opened.manifest.cascade
        assert cascade is not None, "the caller compiled a cascade"
        for row in cascade.networks[1:]:
            if row.like is not None:
                continue
            if not seen[row.name]:
                raise InputError(
                    f'no photo shows anything that the network "{row.name}" would see',
                    at=str(photos),
                    hint=f'give photos in which "{row.after}" finds its objects',
                )
            arrays: dict[str, Array] = {}
            for name in seen[row.name][0]:
                arrays[name] = np.concatenate([one[name] for one in seen[row.name]])
            write_npz(folder / f"{row.name}.npz", arrays)


def _photos(folder: Path) -> list[Path]:
    """Return the photos of a folder; raises InputError without any."""
    found: list[Path] = []
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() in PHOTO_SUFFIXES and path.is_file():
                found.append(path)
    if not found:
        raise InputError(
            "a cascade is calibrated with a folder of photos",
            at=str(folder),
            hint="put some photos (jpg, png) in a folder, and give that",
        )
    return found


def _inputs_seen(bundle: Bundle, photos: list[Path], say: Progress) -> Inputs:
    """Return the inputs that the networks get for photos, at most MOST of each."""
    with ExitStack() as stack:
        opened = stack.enter_context(OpenedNetworks(bundle))
        seen: Inputs = {name: [] for name in opened.bundles}

        def infer_by(name: str) -> Infer:
            session = stack.enter_context(Session(opened.bundles[name], tpu="c"))

            def infer(inputs: Mapping[str, Array], meter: Meter) -> dict[str, Array]:
                if len(seen[name]) < MOST:
                    seen[name].append(inputs)
                return session.run(inputs)

            return infer

        runner = opened.runner(infer_by)
        for path in each(photos, len(photos), "crop photos", say):
            runner.reset()
            frame = CameraFrame.of(read_photo(path))
            for _ in range(FRAMES):
                runner.run(frame)
    return seen
