"""Whether an avatar mirrors what its driver does: 12 known motions, 3 portraits.

A clip is a photo of a person, warped into a known pose. Its frames go through the
detector, the mesh network and the effect, as a camera's do. The float mesh network then
finds the points of the portrait that was drawn; they are compared with the portrait's
own points moved by the known motion. Beside that: a driver that keeps still, noise of a
sensor apart; pixels that no motion reaches; and that each pixel is drawn. All of it is
done with float and with int8 networks.

    python -m benchmarks.mirror_check [--clips blink,wink] [--float]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.bundle.archive import Bundle
from edgec_runtime.face.landmarks import LEFT_CORNERS, RIGHT_CORNERS
from edgec_runtime.face.motion import Driver, FaceMotion
from edgec_runtime.face.points import depth_scale, solid
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.webcam.effects import Painter
from edgec_runtime.webcam.effects.avatar import SAMPLES, Avatar, drawn, framed
from edgec_runtime.webcam.effects.faces import SteadyFace
from numpy.typing import NDArray
from PIL import Image

from benchmarks.data_folder import SHARED
from benchmarks.face_meshes import FaceMeshes, cropped, square_of
from benchmarks.face_motions import POSES, FacePose, motion_of
from edgec.compiler.compile import compile_model
from edgec.options.compile import CompileOptions

Array = NDArray[Any]

SIZE = (640, 480)
"""Width and height of frames."""
FPS = 30.0
NEUTRAL = 14
RAMP = 8
HOLD = 16
"""Frames of a clip at rest, on the way to the pose, and in it."""
JUDGED = 4
"""Frames at the end of a clip that are compared: the filter has come to rest."""
MEDIAN = 0.03
WORST = 0.08
"""How far points may be off, in distances of the eyes: the median, and 95 in 100."""
STILL_PIXELS = 0.5
"""How far a point may move while the driver keeps still."""
STILL_FRAMES = 60
NOISE = 2.0
"""Standard deviation of a sensor's noise, levels."""
UNMOVED = 1e-3
"""Pixels by which a corner moves that keeps its place."""
CROP = 192
"""The side of the faces that int8 networks are calibrated on."""
CELL = 320
"""The side of a picture on the sheet."""
HEAD_SIDES = 1.3
"""The side of the head with its hair, in sides of the mesh network's crop."""

NETWORKS: Mapping[str, str] = {
    "blazeface": "mp_blazeface_short_f16",
    "facemesh": "mp_face_landmark_f16",
}
"""The networks by their formats."""
PORTRAITS: Mapping[str, str] = {
    "astronaut": "scikit-image__astronaut.png",
    "officer": "test_data__grace_hopper.png",
    "student": "openmv__person.png",
}
MAN = ("test_data__face.jpg", (215, 0, 400, 355))
"""One of four people in a photo, who drives and has no portrait."""


@dataclass(frozen=True)
class Clip:
    """Frames of a person that are known to show a pose.

    Attributes:
        name: of the pose
        pose: the pose at the end
        frames: uint8 [H, W, 3] each
        shape: the person's neutral face in the layout's frame
    """

    name: str
    pose: FacePose
    frames: Sequence[Array]
    shape: Array


@dataclass(frozen=True)
class Mirrored:
    """The figures of one clip and one portrait.

    Attributes:
        networks: "float" or "int8"
        clip: the motion
        driver: the person of the clip
        portrait: the portrait
        median, worst: distances of points from their places, in distances of the eyes:
            the median, and the 95th percentile
        unmoved: the most levels by which a pixel differs that no motion reaches
        holes: pixels that were not drawn
    """

    networks: str
    clip: str
    driver: str
    portrait: str
    median: float
    worst: float
    unmoved: int
    holes: int


@dataclass(frozen=True)
class Stage:
    """What a check works with.

    Attributes:
        networks: "float" or "int8"
        meshes: find the driver's face
        judge: finds the face of the portrait that was drawn
        painter: draws
    """

    networks: str
    meshes: FaceMeshes
    judge: FaceMeshes
    painter: Painter


def face_of(picture: Array, meshes: FaceMeshes, last: Array | None = None) -> Points:
    """Return the face in a picture.

    Args:
        picture: uint8 [H, W, 3]
        meshes: finds it
        last: the points of the frame before
    """
    found = meshes(picture, last)
    assert found is not None, "no face was found"
    return found


def portrait_of(picture: Array, meshes: FaceMeshes) -> Portrait:
    """Return a portrait as large as a frame."""
    return framed(picture, solid_points(face_of(picture, meshes)), SIZE)


def solid_points(found: Points) -> Array:
    """Return the points of a face with depth in pixels [468, 3]."""
    assert found.depth is not None
    points = np.column_stack([found.points, found.depth]).astype(np.float64)
    return solid(points, depth_scale(points))


def clip_of(name: str, person: Portrait, painter: Painter) -> Clip:
    """Return the clip of a person who takes on a pose."""
    pose = POSES[name]
    shares = [0.0] * NEUTRAL
    shares += [float(x) for x in np.linspace(0, 1, RAMP + 2)[1:-1]]
    shares += [1.0] * HOLD
    frames: list[Array] = []
    for share in shares:
        motion = motion_of(pose.part(share), person.shape)
        frames.append(drawn(person, motion, painter))
    return Clip(name, pose, frames, person.shape)


def eyes_apart(points: Array) -> float:
    """Return the distance of the middles of the eyes."""
    left = points[list(LEFT_CORNERS), :2].mean(axis=0)
    right = points[list(RIGHT_CORNERS), :2].mean(axis=0)
    return float(np.hypot(*(right - left)))


def mirrored(
    clip: Clip, driver: str, name: str, picture: Array, stage: Stage
) -> tuple[Mirrored, Array, Array]:
    """Return the figures of a clip and a portrait.

    Args:
        clip: the motion
        driver: the person's name
        name: the portrait's name
        picture: the portrait
        stage: what it is done with

    Returns:
        the figures, distances of all points, and the last picture
    """
    points = solid_points(face_of(picture, stage.meshes))
    own = framed(picture, points, SIZE)
    effect = Avatar(stage.painter, lambda size: own)
    # The judge's own portrait: its points are compared with its points.
    portrait = portrait_of(picture, stage.judge)
    motion = motion_of(clip.pose, clip.shape)
    wanted = portrait.moved(motion)[:, :2]
    last: Array | None = None
    off: list[Array] = []
    out = picture
    for i, frame in enumerate(clip.frames):
        found = face_of(frame, stage.meshes, last)
        last = found.points
        out = effect(frame, found, i / FPS)
        if i >= len(clip.frames) - JUDGED:
            again = face_of(out, stage.judge)
            apart = np.hypot(*(again.points - wanted).T)
            off.append(apart / eyes_apart(wanted))
    distances = np.concatenate(off)
    figures = Mirrored(
        stage.networks,
        clip.name,
        driver,
        name,
        round(float(np.median(distances)), 4),
        round(float(np.percentile(distances, 95)), 4),
        unmoved_levels(own, motion, stage.painter),
        holes(own, motion, stage.painter),
    )
    return figures, distances, out


def unmoved_levels(portrait: Portrait, motion: FaceMotion, painter: Painter) -> int:
    """Return the most levels by which pixels differ that no motion reaches.

    They lie in triangles whose corners keep their places in the picture.
    """
    warp = portrait.warp(motion)
    rest = portrait.warp(motion.eased(0))
    corner_moved = np.abs(warp.end - rest.end).max(axis=1) > UNMOVED
    kept = ~corner_moved[warp.triangles].any(axis=1)
    # A pixel at an edge is partly another triangle's: all its samples must be kept.
    large = np.zeros((SIZE[1] * SAMPLES, SIZE[0] * SAMPLES, 3), np.uint8)
    white = np.full((2, 2, 4), 255, np.uint8)
    inside = replace(warp, source=white, triangles=warp.triangles[kept])
    painter.warp_into(inside.moved(np.zeros(2), SAMPLES), large)
    samples = large[..., 0].reshape(SIZE[1], SAMPLES, SIZE[0], SAMPLES)
    is_kept = (samples > 0).all(axis=(1, 3))
    moved = drawn(portrait, motion, painter)
    difference = np.abs(moved.astype(int) - portrait.picture)[is_kept]
    return int(difference.max(initial=0))


def holes(portrait: Portrait, motion: FaceMotion, painter: Painter) -> int:
    """Return the number of pixels that are not drawn."""
    warp = portrait.warp(motion)
    white = np.full_like(warp.source, 255)
    out = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    painter.warp_into(replace(warp, source=white), out)
    return int((out != 255).any(axis=2).sum())


def still_pixels(person: Array, picture: Array, stage: Stage) -> float:
    """Return how far a point of a portrait moves, while its driver keeps still.

    Args:
        person: the driver, uint8 [H, W, 3]
        picture: the portrait
        stage: what it is done with
    """
    frame = portrait_of(person, stage.meshes).picture
    portrait = portrait_of(picture, stage.meshes)
    rng = np.random.default_rng(0)
    steady = SteadyFace()
    driver = Driver()
    last: Array | None = None
    places: list[Array] = []
    for i in range(STILL_FRAMES):
        noisy = frame + rng.normal(0, NOISE, frame.shape)
        seen = np.asarray(np.clip(noisy + 0.5, 0, 255), np.uint8)
        found = face_of(seen, stage.meshes, last)
        last = found.points
        points = steady(found, i / FPS)
        assert points is not None
        motion = driver(points)
        if motion is not None:
            places.append(portrait.moved(motion)[:, :2])
    apart = np.array(places) - np.median(places, axis=0)
    return float(np.hypot(apart[..., 0], apart[..., 1]).max())


def networks_in(folder: Path, calibrate: Path | None) -> dict[str, Path]:
    """Return bundles of both networks, compiled for this machine.

    Args:
        folder: where they are written
        calibrate: faces that int8 networks are calibrated on; None: float ones
    """
    found: dict[str, Path] = {}
    for task, name in NETWORKS.items():
        kind = "float" if calibrate is None else "int8"
        found[task] = folder / f"{task}-{kind}.edgec"
        options = CompileOptions(output=found[task], task=task, calibrate=calibrate)
        compile_model(SHARED / "models" / name / f"{name}.tflite", options)
    return found


def write_faces(people: Mapping[str, Array], meshes: FaceMeshes, folder: Path) -> Path:
    """Write crops of faces as the mesh network sees them, for its calibration."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in people.items():
        square = square_of(face_of(picture, meshes).points)
        matrix = square / CROP
        matrix[:, 2] = square[:, 2]
        crop = Image.fromarray(cropped(picture, matrix, CROP))
        crop.save(folder / f"{name}.png")
        crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(folder / f"{name}-m.png")
    return folder


def photos() -> dict[str, Array]:
    """Return the people, uint8 [H, W, 3] by name: three portraits, and one more."""
    folder = SHARED / "data" / "photos"
    found = {name: read_photo(folder / file) for name, file in PORTRAITS.items()}
    left, top, right, bottom = MAN[1]
    found["man"] = read_photo(folder / MAN[0])[top:bottom, left:right]
    return found


def check(stage: Stage, clips: Sequence[str], out: Path) -> tuple[list[Mirrored], bool]:
    """Return the figures of all clips, and whether they hold; each is printed.

    Args:
        stage: what it is done with
        clips: names of poses
        out: the folder of the sheet
    """
    people = photos()
    rows: list[Mirrored] = []
    every: list[Array] = []
    sheet: list[Array] = []
    for i, name in enumerate(clips):
        # Everyone drives in turn, also in a portrait of their own.
        driver = sorted(people)[i % len(people)]
        person = portrait_of(people[driver], stage.judge)
        clip = clip_of(name, person, stage.painter)
        cells = [clip.frames[-1]]
        for portrait in PORTRAITS:
            figures, off, shown = mirrored(
                clip, driver, portrait, people[portrait], stage
            )
            print(_row(figures), flush=True)
            rows.append(figures)
            every.append(off)
            cells.append(shown)
        sheet.append(np.concatenate([head(c, stage.judge) for c in cells], axis=1))
    still = still_pixels(people["man"], people["officer"], stage)
    # A row a motion: the driver, and what the portraits made of it.
    picture = Image.fromarray(np.concatenate(sheet, axis=0))
    picture.save(out / f"sheet-{stage.networks}.png")

    off = np.concatenate(every)
    median = float(np.median(off))
    worst = float(np.percentile(off, 95))
    holds = median <= MEDIAN and worst <= WORST and still <= STILL_PIXELS
    holds = holds and all(r.unmoved <= 1 and r.holes == 0 for r in rows)
    verdict = "holds" if holds else "**does not hold**"
    print(
        f"{stage.networks}: median {median:.2%}, 95 in 100 below {worst:.2%} of the "
        f"distance between the eyes; still driver {still:.2f} pixels: {verdict}"
    )
    return rows, holds


def head(picture: Array, meshes: FaceMeshes) -> Array:
    """Return the head in a picture, CELL pixels square."""
    square = square_of(face_of(picture, meshes).points)
    side = float(np.hypot(*square[:, 0]))
    middle = square[:, 2] + square[:, :2].sum(axis=1) / 2
    # Upright, so that a tilt is seen, and with the hair.
    corner = middle - side * HEAD_SIDES / 2
    matrix = np.array([[1, 0], [0, 1]]) * side * HEAD_SIDES / CELL
    return cropped(picture, np.column_stack([matrix, corner]), CELL)


def _row(m: Mirrored) -> str:
    """Return the row of a table."""
    cells = (m.networks, m.clip, m.driver, m.portrait, f"{m.median:.2%}")
    return "| " + " | ".join((*cells, f"{m.worst:.2%}", str(m.unmoved), str(m.holes)))


def main() -> int:
    """Check all, and return 1 where something does not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", default=",".join(POSES))
    parser.add_argument("--float", action="store_true", help="without int8 networks")
    options = parser.parse_args()
    build = Path(os.environ.get("EDGEC_BUILD", "build"))
    out = build / "mirror-check"
    out.mkdir(parents=True, exist_ok=True)

    bundles = networks_in(out, None)
    judge = FaceMeshes(bundles["blazeface"], bundles["facemesh"])
    with Bundle.open(str(bundles["facemesh"])) as bundle:
        painter = Painter(Vision(bundle).painting)
        stages = [Stage("float", judge, judge, painter)]
        if not options.float:
            faces = write_faces(photos(), judge, out / "faces")
            small = networks_in(out, faces)
            meshes = FaceMeshes(small["blazeface"], small["facemesh"])
            stages.append(Stage("int8", meshes, judge, painter))
        print(
            "| networks | motion | driver | portrait | median | 95 % | unmoved | holes"
        )
        print("|---|---|---|---|---|---|---|---")
        rows: list[Mirrored] = []
        holds = True
        for stage in stages:
            found, good = check(stage, options.clips.split(","), out)
            rows += found
            holds = holds and good
    text = json.dumps([asdict(r) for r in rows], indent=1) + "\n"
    (build / "mirror-check.json").write_text(text)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
