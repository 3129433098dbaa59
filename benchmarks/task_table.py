"""Ten networks from file to result (reads ../shared), beside the result of their
reference outputs.

    make task-table ARGS='--models mp_selfie_land_f16'

Each is compiled with its family, run on its reference inputs, and its result compared;
then it is run on a photo, timed in stages on this machine, and what it found is drawn
into build/tasks. Exit code 1 where boxes or masks agree by less than 0.99, or points
are off by more than half a pixel.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from edgec_runtime import Session, read_photo
from edgec_runtime.vision.tasks.base import Result
from edgec_runtime.vision.tasks.classification import Classes
from edgec_runtime.vision.tasks.image import Picture
from edgec_runtime.vision.tasks.instances import Boxes
from edgec_runtime.vision.tasks.points import Points
from edgec_runtime.vision.tasks.segmentation import Segments
from edgec_runtime.webcam.effects import Painter, effect
from PIL import Image

import edgec
from edgec.ir import Array
from tests.conftest import SHARED
from tests.tasks.published import iou
from tests.tasks.test_published import Network

FRAME = (640, 480)
MODELS = {
    "mp_selfie_land_f16": ("selfie", "scikit-image__astronaut.png"),
    "prisma_f32": ("selfie", "openmv__person.png"),
    "fns_udnie_std_256": ("style-bgr", "scikit-image__astronaut.png"),
    "ultraface_rfb320": ("ultraface", "openmv__faces.png"),
    "mp_blazeface_short_f16": ("blazeface", "openmv__person.png"),
    "mp_face_landmark_f16": ("facemesh", "test_data__face.jpg"),
    "movenet_lightning_i8": ("movenet", "test_data__squat.png"),
    "yolox_nano_416": ("yolox", "test_data__kite_and_cold.jpg"),
    "ssd_mnv1_coco_u8": ("tflite-ssd", "tflite-support__cats_and_dogs.jpg"),
    "mnv2_tf2_i8": ("classification", "test_data__cat.png"),
}
LABELS = {"ssd_mnv1_coco_u8": "coco_labels.txt", "mnv2_tf2_i8": "imagenet_labels.txt"}


def agreement(mine: Result, reference: Result) -> tuple[float, bool]:
    """How far two results are the same, by the measure of their kind, and whether that
    is enough.
    """
    if isinstance(mine, Boxes) and isinstance(reference, Boxes):
        pairs = zip(mine.boxes, reference.boxes, strict=False)
        least = min(
            (iou(a.corners, b.corners) * (a.index == b.index) for a, b in pairs),
            default=1.0,
        )
        same = least if len(mine.boxes) == len(reference.boxes) else 0.0
        return same, same >= 0.99
    if isinstance(mine, Points) and isinstance(reference, Points):
        off = float(np.hypot(*(mine.points - reference.points).T).max())
        return off, off <= 0.5
    if isinstance(mine, Segments) and isinstance(reference, Segments):
        a, b = (r.mask() >= 0.5 for r in (mine, reference))
        share = float((a & b).sum() / max(1, (a | b).sum()))
        return share, share >= 0.99
    if isinstance(mine, Picture) and isinstance(reference, Picture):
        off = float(np.abs(mine.pixels.astype(int) - reference.pixels).max())
        return off, off <= 1
    assert isinstance(mine, Classes)
    assert isinstance(reference, Classes)
    return float(mine.classes[0].index == reference.classes[0].index), mine.classes[
        0
    ].index == reference.classes[0].index


def _best(call: Callable[[], object], rounds: int = 7) -> float:
    """Milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def row(name: str, out: Path) -> bool:
    family, photo_name = MODELS[name]
    net = Network(SHARED, name, family)
    bundle = out / f"{name}.edgec"
    labels = SHARED / "data" / "labels" / LABELS[name] if name in LABELS else None
    edgec.compile(net.file, output=bundle, task=family, labels=labels)
    worst = ""
    good = True
    with Session(bundle) as session:
        for given, reference in zip(
            net.inputs(), net.samples(kernels=True), strict=True
        ):
            made = session.run(
                {session.inputs[0].name: _as(given, session.inputs[0].numpy_dtype)}
            )
            held = net.result(reference, FRAME)
            figure, enough = agreement(session.vision.result(made, FRAME), held)
            worst = f"{figure:.4f}"
            good = good and enough
        photo = read_photo(SHARED / "data" / "photos" / photo_name)
        size = photo.shape[1], photo.shape[0]
        inputs = session.vision.prepare(photo)
        outputs = session.run(inputs)
        result = session.vision.result(outputs, size)
        ms = [
            _best(lambda: session.vision.prepare(photo)),
            _best(lambda: session.run(inputs)),
            _best(lambda: session.vision.result(outputs, size)),
            _best(lambda: result.draw(photo)),
        ]
        _drawn(out / f"{name}.png", result.draw(photo))
        if isinstance(result, Segments):
            painter = Painter(session.vision.painting)
            beach = SHARED / "data" / "photos" / "test_data__sunflower.png"
            for what in ("blur", f"replace={beach}"):
                _drawn(
                    out / f"{name}_{what.partition('=')[0]}.png",
                    effect(what, painter)(photo, result),
                )
        kind = type(result).__name__.lower()
        shape = f"{size[0]}x{size[1]}"
        print(f"{name:24}{kind:10}{worst:>8} {'' if good else 'NO':2}", end="")
        print(f"{shape:>11}" + "".join(f"{v:9.2f}" for v in ms), flush=True)
    return good


def _as(array: Array, dtype: np.dtype[np.generic]) -> Array:
    """Bytes as an input takes them."""
    if array.dtype == np.uint8 and dtype == np.int8:
        return (array.astype(np.int16) - 128).astype(dtype)
    return array


def _drawn(path: Path, picture: Array) -> None:
    Image.fromarray(picture).save(path)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(MODELS))
    out = Path(os.environ.get("EDGEC_BUILD", "build")) / "tasks"
    out.mkdir(parents=True, exist_ok=True)
    print(f"{'network':24}{'result':10}{'same':>8}   {'photo':>11}", end="")
    print(
        "".join(f"{stage:>9}" for stage in ("prepare", "run", "decode", "draw"))
        + "   (ms)"
    )
    good = [row(name, out) for name in parser.parse_args().models.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
