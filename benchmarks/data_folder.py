"""The shared data folder: its models, what its index says of them, and its photos.

The folder is `EDGEC_SHARED`, by default ../shared; its README describes it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from edgec.frontends import read_model
from edgec.ir import Array
from edgec.quantize import choose, load_calibration

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
MODELS = SHARED / "models"
PHOTOS = SHARED / "data" / "photos"
PREPROCESS: Mapping[str, str] = {
    "0_255": "0_255",
    "0_1": "0_1",
    "m1_1": "m1_1",
    "bgr_0_255": "0_255,bgr",
    "bgr_0_1": "0_1,bgr",
    "imagenet": "imagenet",
    "y01": "0_1,gray",
    "ulff": "0_255,mean=127,std=128",
    "sinet": "0_255,bgr,mean=102.890434/111.25247/126.91212,std=16047.89/16019.45/16920.70",
}
"""The index's words for the preprocessing of photos, as `--preprocess` takes them."""


@cache
def index() -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of models/index.json by name; exit where there is no folder."""
    path = MODELS / "index.json"
    if not path.is_file():
        sys.exit(f"no data folder at {SHARED} (set EDGEC_SHARED)")
    return {entry["name"]: entry for entry in json.loads(path.read_text())}


def model_file(name: str) -> Path:
    """Return the file of a model; exit where the index has none of this name."""
    if name not in index():
        sys.exit(f"{MODELS} has no {name}: it has {', '.join(index())}")
    return MODELS / str(index()[name]["file"])


def photo_samples(name: str) -> list[Array]:
    """Return all photos as a model's one input takes them, float32 [N, ...] each."""
    inputs = read_model(model_file(name), {}).inputs
    spec = PREPROCESS[index()[name]["preproc"]]
    preprocess = choose(inputs, spec, {})[inputs[0].name]
    samples = load_calibration(PHOTOS, inputs, preprocess)
    return [sample[inputs[0].name] for sample in samples]
