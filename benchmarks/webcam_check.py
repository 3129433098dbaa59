"""`edgec webcam` on networks of ../shared, every photo of ../shared/data, beside the
reference outputs.

    make webcam-check ARGS='--models movenet_lightning_i8 --photos 5 --seed 3'

Each network is compiled with its family; `edgec webcam --no-display --frames N --json
--out FOLDER` runs over the photos; what it kept of each is compared with what
onnxruntime, or LiteRT (its reference kernels, where there are integers), makes of the
same prepared photo under the published post-processing (tests/tasks/published.py). The
pictures are left in build/webcam-check, the figures in build/webcam-check.json. Exit
code 1 where a photo misses its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import OpResolverType
from edgec_runtime import Bundle, read_photo
from edgec_runtime.session.vision import Vision
from edgec_runtime.vision.photo import PHOTO_SUFFIXES

import edgec
from benchmarks import webcam_judging as judging
from benchmarks.quantized_onnx import onnxruntime_outputs
from benchmarks.task_table import LABELS, MODELS
from benchmarks.webcam_judging import Judge, Kept, Outputs
from edgec.ir import Array
from tests.cli.verbs import edgec as typed
from tests.conftest import SHARED
from tests.frontends.tflite_state import litert_calls
from tests.tasks import published

BEACH = SHARED / "data" / "photos" / "test_data__sunflower.png"
PERSON: Mapping[str, Judge] = {
    "overlay": judging.mask,
    "blur": judging.blurred,
    f"replace={BEACH}": judging.replaced(BEACH),
}
JUDGES: Mapping[str, Mapping[str, Judge]] = {
    "mp_selfie_land_f16": PERSON,
    "prisma_f32": PERSON,
    "fns_udnie_std_256": {"overlay": judging.style},
    "ultraface_rfb320": {"overlay": judging.boxes(published.ultraface, 0.7)},
    "mp_blazeface_short_f16": {"overlay": judging.boxes(published.blazeface, 0.5)},
    "mp_face_landmark_f16": {"overlay": judging.points(published.facemesh)},
    "movenet_lightning_i8": {"overlay": judging.points(published.movenet)},
    "yolox_nano_416": {"overlay": judging.boxes(published.yolox, 0.3)},
    "ssd_mnv1_coco_u8": {"overlay": judging.boxes(published.tflite_ssd, 0.5)},
    "mnv2_tf2_i8": {"overlay": judging.labels},
}
"""By network and effect.

What is behind `replace=` is a file of this machine: tables have it without.
"""


@dataclass(frozen=True)
class Row:
    """One network with one effect. worst: figure of all photos, by `measure`. found:
    boxes, points, masks in all.
    """

    model: str
    task: str
    effect: str
    measure: str
    photos: int
    found: int
    worst: float
    missed: tuple[str, ...]
    fps: float
    latency_ms: float


def rows(model: str, source: Path, out: Path) -> Iterator[Row]:
    """Compiled once, shown with each effect."""
    family, _ = MODELS[model]
    index = json.loads((SHARED / "models" / "index.json").read_text())
    file = SHARED / "models" / next(r["file"] for r in index if r["name"] == model)
    bundle = out / f"{model}.edgec"
    labels = SHARED / "data" / "labels" / LABELS[model] if model in LABELS else None
    edgec.compile(file, output=bundle, task=family, labels=labels)
    names = sorted(p for p in source.iterdir() if p.suffix.lower() in PHOTO_SUFFIXES)
    photos = [read_photo(p) for p in names]
    wanted = references(bundle, file, photos)
    for effect, judge in JUDGES[model].items():
        folder = out / model / effect.partition("=")[0]
        told = shown(bundle, source, effect, len(names), folder)
        worst = list[float]()
        found = 0
        missed = list[str]()
        for i, (photo, outputs) in enumerate(zip(photos, wanted, strict=True)):
            judged = judge(Kept(folder / f"{i + 1:05}", photo), outputs)
            worst.append(judged.figure)
            found += judged.count
            missed += [] if judged.holds else [f"{names[i].name}: {judged.figure:.4f}"]
        measure, most = measured(told["result"], effect)
        latency = told["latency"]["p50"] if told["latency"] else 0.0
        figure = (max if most else min)(worst)
        yield Row(
            model,
            family,
            effect.partition("=")[0],
            measure,
            len(names),
            found,
            figure,
            tuple(missed),
            round(told["fps"], 1),
            round(latency, 1),
        )


def measured(result: Mapping[str, Any], effect: str) -> tuple[str, bool]:
    """What the figure of a result of this form is, and whether the most of it is the
    worst.
    """
    if "image" in result or effect == "blur":
        return "levels off", True
    kinds = {
        "boxes": ("box IoU", False),
        "points": ("pixels off", True),
        "areas": ("mask IoU", False),
    }
    return next((kinds[k] for k in result if k in kinds), ("labels in order", False))


def shown(
    bundle: Path, source: Path, effect: str, frames: int, folder: Path
) -> dict[str, Any]:
    """What the command says of all photos, each of them shown once."""
    shutil.rmtree(folder, ignore_errors=True)
    words = [
        "--source",
        source,
        "--effect",
        effect,
        "--no-display",
        "--no-smooth",
        "--frames",
        frames,
        "--json",
    ]
    done = typed("webcam", bundle, *words, "--out", folder, cwd=Path.cwd())
    assert done.code == 0, done.err
    told: dict[str, Any] = json.loads(done.out)
    assert (told["delivered"], told["dropped"]) == (frames, 0), done.out
    return told


def references(bundle: Path, file: Path, photos: Sequence[Array]) -> list[Outputs]:
    """The outputs of each photo as numpy prepares it, real numbers where they are no
    integers' codes.
    """
    with Bundle.open(bundle) as opened:
        vision = Vision(opened, native=False)
        prepared = [next(iter(vision.prepare(photo).values())) for photo in photos]
    if file.suffix == ".onnx":
        return [list(found.values()) for found in onnxruntime_outputs(file, prepared)]
    integers = prepared[0].dtype.kind in "iu"
    given = [
        (x.astype(np.int16) + 128).astype(np.uint8) if x.dtype == np.int8 else x
        for x in prepared
    ]
    kind = OpResolverType.BUILTIN_REF if integers else OpResolverType.AUTO
    return [
        [np.array(a) for a in outputs]
        for outputs in litert_calls(file.read_bytes(), given, kind)
    ]


def folder_of(photos: Sequence[Path], folder: Path) -> Path:
    """A folder with those alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for photo in photos:
        (folder / photo.name).symlink_to(photo)
    return folder


def sample(count: int | None, seed: int) -> list[Path]:
    """So many photos of the data folder, all without a count."""
    every = sorted(
        p
        for p in (SHARED / "data" / "photos").iterdir()
        if p.suffix.lower() in PHOTO_SUFFIXES
    )
    return every if count is None else random.Random(seed).sample(every, count)


def check(models: Sequence[str], photos: Sequence[Path], out: Path) -> list[Row]:
    """The rows of all, each printed when it is there."""
    source = folder_of(photos, out / "source")
    print(
        "| network | task | effect | photos | found | worst | | frames/s | latency, ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    found = []
    for model in models:
        for row in rows(model, source, out):
            if row.missed:
                missed = f"**missed by {len(row.missed)}**: {'; '.join(row.missed)}"
            else:
                missed = "holds"
            cells = (
                row.model,
                row.task,
                row.effect,
                row.photos,
                row.found,
                f"{row.worst:.4f} {row.measure}",
                missed,
            )
            print(
                "| " + " | ".join(map(str, (*cells, row.fps, row.latency_ms))) + " |",
                flush=True,
            )
            found.append(row)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", default=",".join(JUDGES))
    parser.add_argument(
        "--photos", type=int, help="a sample of so many, in place of all"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    build = Path(os.environ.get("EDGEC_BUILD", "build"))
    out = (build / "webcam-check").resolve()
    out.mkdir(parents=True, exist_ok=True)
    found = check(options.models.split(","), sample(options.photos, options.seed), out)
    (build / "webcam-check.json").write_text(
        json.dumps([asdict(r) for r in found], indent=1) + "\n"
    )
    return 1 if any(r.missed for r in found) else 0


if __name__ == "__main__":
    sys.exit(main())
