"""Real float models, calibrated on photos, stay near their float outputs on other
photos.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import interp
from edgec.passes.pipeline import optimize
from edgec.quantize import choose, compare, load_calibration, quantize
from tests.conftest import MODELS

ROOT = Path(__file__).parents[2]
CALIBRATION = 8  # photos; the next ones judge
JUDGES = 2

CASES = {
    "pfld_ghostone": ("0_1,bgr", 0.99),
    "mp_selfie_land_onnx": ("0_1", 0.9),
    "mp_face_landmark_onnx": ("0_1", 0.98),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", CASES)
def test_int8_is_near_float(name: str, shared: Path) -> None:
    preprocess, least = CASES[name]
    _near(
        shared / "models" / MODELS[name]["file"],
        shared / "data" / "photos",
        preprocess,
        least,
    )


@pytest.mark.slow
def test_the_cartoon_fixture() -> None:
    _near(
        ROOT / "fixtures" / "cartoon" / "cartoon.onnx",
        ROOT / "fixtures" / "photos",
        "0_1",
        0.98,
    )


def _near(path: Path, photos: Path, preprocess: str, least: float) -> None:
    try:
        graph = optimize(read_model(path, {}))
    except UnsupportedError as e:
        pytest.skip(e.what)
    chosen = choose(graph.inputs, preprocess, {})[graph.inputs[0].name]
    samples = load_calibration(photos, graph.inputs, chosen, CALIBRATION + JUDGES)
    q = optimize(quantize(graph, samples[:-JUDGES]))
    found = compare((interp(graph, s), interp(q, s)) for s in samples[-JUDGES:])
    for output, agreement in found.items():
        assert agreement.cosine > least, f"{output}: {agreement}"
