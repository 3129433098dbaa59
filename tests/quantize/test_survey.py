"""Calibration samples that do not belong: named with their effect, and left out where
that helps the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgec.compiler.compile import compile_model
from edgec.compiler.native import HostRunners, native_compiler
from edgec.frontends import read_model
from edgec.ir import Array, Graph
from edgec.options.compile import CompileOptions
from edgec.passes.pipeline import optimize
from edgec.quantize.change.lower import lower
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.observe.calibration import load_calibration
from edgec.quantize.observe.preprocess import choose
from edgec.quantize.observe.survey import SampleReport, Survey
from edgec.quantize.select.apply import apply_recipe
from tests.quantize.nets import NETS, samples

TWO = Recipe.of(
    {
        "candidate": [
            {"name": "minmax", "steps": ["lower", "minmax"]},
            {"name": "bias", "steps": ["lower", "minmax", "bias"]},
        ]
    },
    "two",
)


def reported(graph: Graph, tries: Sequence[dict[str, Array]]) -> SampleReport:
    return (
        QuantizationState(graph, tries)
        .survey()
        .report([f"sample {i}" for i in range(len(tries))])
    )


def scaled(sample: dict[str, Array], by: float) -> dict[str, Array]:
    return {k: x * np.float32(by) for k, x in sample.items()}


def test_what_is_of_another_size_is_named_with_its_effect() -> None:
    graph = NETS["residual"]()
    tries = samples(graph, 12)
    assert reported(graph, tries) == SampleReport(widened=1.0)
    tries[7] = scaled(tries[7], 10)
    found = reported(graph, tries)
    assert [s.name for s in found.outliers] == ["sample 7"]
    assert found.widened > 3
    (note,) = found.notes()
    assert "sample 7 (its values range" in note
    assert "made the ranges" in note


def test_a_picture_of_nothing_is_named() -> None:
    graph = NETS["residual"]()
    tries = [
        *samples(graph, 9),
        {k: np.full_like(x, 0.1) for k, x in samples(graph, 1)[0].items()},
    ]
    (one,) = reported(graph, tries).outliers
    assert one.sample == 9
    assert one.contrast == pytest.approx(0, abs=1e-6)
    assert "none of the usual contrast" in reported(graph, tries).notes()[0]


def test_several_kinds_are_no_outliers() -> None:
    graph = NETS["residual"]()
    tries = samples(graph, 12)
    assert not reported(
        graph, [*tries[:7], *(scaled(s, 10) for s in tries[7:])]
    ).outliers


def test_samples_that_are_all_alike() -> None:
    graph = NETS["residual"]()
    one, *more = samples(graph, 9)
    near = [
        {k: x + np.float32(0.2) * other[k] for k, x in one.items()} for other in more
    ]
    assert reported(graph, near).alike
    assert "nearly the same" in reported(graph, near).notes()[0]
    assert not reported(graph, more).alike
    assert not reported(graph, [one]).alike


def test_the_best_is_made_without_what_harms_the_others() -> None:
    """As if it had never been there; `fast` only names it."""
    graph = NETS["residual"]()
    tries = samples(graph, 12)
    found = apply_recipe(TWO, graph, [*tries[:5], scaled(tries[5], 10), *tries[5:]])
    assert found.sample_report.left_out
    assert found.sample_report.without_db is not None
    assert found.sample_report.with_db is not None
    assert found.sample_report.without_db > found.sample_report.with_db + 3
    assert found.samples == 12
    clean = apply_recipe(TWO, graph, tries)
    assert found.int8_graph == clean.int8_graph
    assert [t.db for t in found.trials] == [t.db for t in clean.trials]
    fast = apply_recipe(Recipe.load("fast"), graph, [*tries, scaled(tries[5], 10)])
    assert fast.samples == 13
    assert not fast.sample_report.left_out
    assert "leave out" in fast.sample_report.notes()[0]
    assert (
        json.loads(json.dumps(found.to_json()))["calibration"]["strangers"][0]["name"]
        == "sample 5"
    )


def test_what_does_not_harm_stays() -> None:
    graph = NETS["residual"]()
    tries = [
        *samples(graph, 12),
        {k: np.full_like(x, 0.1) for k, x in samples(graph, 1)[0].items()},
    ]
    found = apply_recipe(TWO, graph, tries)
    assert [s.sample for s in found.sample_report.outliers] == [12]
    assert found.sample_report.without_db is not None
    assert found.sample_report.with_db is not None
    assert found.sample_report.left_out == (
        found.sample_report.without_db > found.sample_report.with_db
    )


BLAZEFACE = "mp_blazeface_short_f16"
RESNET = "resnet8_f32"


def pictures(
    shared: Path, model: str, folder: Path
) -> tuple[Graph, Sequence[dict[str, Array]]]:
    """The float graph of a model and its inputs of a folder's photos."""
    graph = lower(
        optimize(read_model(shared / "models" / model / f"{model}.tflite", {}))
    )
    spec = {BLAZEFACE: "m1_1", RESNET: "0_255"}[model]
    chosen = choose(graph.inputs, spec, {})[graph.inputs[0].name]
    return graph, [dict(s) for s in load_calibration(folder, graph.inputs, chosen)]


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "named"),
    [
        (BLAZEFACE, ["black", "digit", "mask", "white"]),
        (RESNET, ["black", "mask", "white"]),
    ],
    ids=["blazeface", "resnet8"],
)
def test_planted_pictures_are_named_and_no_photo_is(
    tmp_path: Path, shared: Path, model: str, named: list[str]
) -> None:
    """Each planted alone among photos, and any photos by themselves.

    A digit is nothing special to resnet8.
    """
    other = shared / "data" / "other"
    for name, picture in {
        "black": Image.new("RGB", (64, 64)),
        "digit": Image.open(other / "test_data__mnist_nine.png"),
        "mask": Image.open(other / "test_data__dog_segmentation_mask.png"),
        "white": Image.new("RGB", (64, 64), (255, 255, 255)),
    }.items():
        picture.convert("RGB").save(tmp_path / f"{name}.png")
    graph, photos = pictures(shared, model, shared / "data" / "photos")
    _, planted = pictures(shared, model, tmp_path)
    survey = QuantizationState(
        graph, [*photos, *planted], HostRunners(native_compiler(None)), passes=99
    ).survey()

    def outliers(numbers: Sequence[int]) -> list[int]:
        each = [survey.sample_ranges[i] for i in numbers]
        contrast = [survey.contrast[i] for i in numbers]
        return [
            numbers[s.sample]
            for s in Survey(graph, each, contrast).report([""] * len(numbers)).outliers
        ]

    count = len(photos)
    assert outliers(range(count)) == []
    found = set[str]()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        some = rng.choice(count, int(rng.integers(4, 34)), replace=False).tolist()
        assert outliers(some) == []
        for i, name in enumerate(["black", "digit", "mask", "white"], count):
            found |= {name} if outliers([*some, i]) == [i] else set()
            assert (outliers([*some, i]) == [i]) == (name in named), (seed, name)
    assert sorted(found) == named


@pytest.mark.shared
@pytest.mark.cc
@pytest.mark.slow
def test_a_compile_says_what_it_left_out(tmp_path: Path, shared: Path) -> None:
    """A mask among photos costs BlazeFace's ranges a factor, and held-back photos most
    of their accuracy.
    """
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in sorted((shared / "data" / "photos").iterdir())[:16]:
        Image.open(path).convert("RGB").resize((128, 128)).save(
            folder / f"{path.stem}.png"
        )
    mask = Image.open(
        shared / "data" / "other" / "test_data__dog_segmentation_mask.png"
    ).convert("RGB")
    recipe = tmp_path / "two.toml"
    recipe.write_text(
        '[[candidate]]\nname = "minmax"\nsteps = ["lower", "minmax"]\n'
        '[[candidate]]\nname = "mse"\nsteps = ["lower", { step = "ranges", '
        'method = "mse" }]\n'
    )
    for i in range(2):  # either may be held back to verify with
        mask.resize((128 - i, 128)).save(folder / f"mask{i}.png")
    model = shared / "models" / BLAZEFACE / f"{BLAZEFACE}.tflite"
    options = CompileOptions(
        output=tmp_path / "m.edgec",
        calibrate=folder,
        preprocess="m1_1",
        quantize=str(recipe),
        min_cosine=-1,
    )
    text = compile_model(model, options).summary()
    text = " ".join(text.split())
    assert "note: unlike the other calibration samples: mask" in text
    assert "left out" in text
    assert "dB without" in text
