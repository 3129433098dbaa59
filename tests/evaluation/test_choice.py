"""Labelled pictures decide between two models where they can tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime.errors import InputError
from PIL import Image

import edgec
from edgec.cli.main import run_verb
from edgec.ir import Array, Run, interp
from edgec.measure.agreement import Agreement
from edgec.quantize.change.recipe import Recipe
from edgec.quantize.float_ops.limits import AccuracyGoal, CostBudget, PlanLimits
from edgec.quantize.observe.judgement import Judgement
from edgec.quantize.observe.score import Score
from edgec.quantize.observe.trial import Trial
from edgec.quantize.select.apply import apply_recipe
from fixtures.shapes.pictures import scenes, write_set
from tests.conftest import ROOT
from tests.quantize.nets import NETS, samples

SHAPES = ROOT / "fixtures" / "shapes"
STEPS = ["lower", "minmax"]
TWO = Recipe.of(
    {
        "candidate": [
            {"name": "plain", "steps": STEPS},
            {"name": "finer", "steps": STEPS},
        ]
    },
    "some",
)


def judgement(loss: float, spread: float = 0.2, seed: int = 0) -> Judgement:
    """A model that is so many points of top-1 worse than a float model of 90 %."""
    noise = np.random.default_rng(seed).normal(0, spread, 200)
    return Judgement("top-1", "%", 90 - loss, 90.0, loss + noise, loss)


def score(db: float) -> Score:
    return Score({"y": []}, {"y": [(1.0, 10 ** (-db / 10))] * 12})


def trial(db: float, judged: Judgement | None = None) -> Trial:
    return Trial("some", {}, {"y": db}, judged)


def chosen(dbs: Sequence[float], losses: Sequence[float]) -> str:
    """The candidate that is kept, by decibels and by points lost."""
    plain, finer = (
        Trial.of(c.name, score(db), judgement(loss))
        for c, db, loss in zip(TWO.candidates, dbs, losses, strict=True)
    )
    return plain.name if finer.against(plain, TWO.within_db).refused else finer.name


def test_pictures_decide_between_guard_and_candidate() -> None:
    # By decibels the candidate is refused, and by points it is kept; and the other way about.
    assert chosen((20, 15), (3.0, 1.0)) == "finer"
    assert chosen((20, 25), (1.0, 3.0)) == "plain"


def test_where_chance_explains_the_difference_decibels_decide() -> None:
    same = judgement(1.0)
    assert not same.is_better_than(judgement(1.1, seed=1))
    assert chosen((20, 15), (1.0, 1.0)) == "plain"
    assert chosen((20, 25), (1.0, 1.0)) == "finer"


def test_a_goal_in_percent_is_of_the_figure_on_labels() -> None:
    goal = AccuracyGoal.parse("1%")
    # Another first class on half of the samples would miss the goal without labels.
    agreement = Agreement(cosine=0.99, sqnr_db=20, top1=0.5, samples=10)
    assert [*goal.misses({"y": agreement})]
    assert [*goal.misses({"y": agreement}, judgement(0.9))] == []
    (miss,) = goal.misses({"y": agreement}, judgement(1.5))
    assert miss == "top-1 88.50 % (float 90.00 %): a drop of 1.50%, 0.01 allowed"
    (miss,) = AccuracyGoal.parse("30dB,1%").misses({"y": agreement}, judgement(0.5))
    assert miss == "y has 20.0 dB, 30.0 needed"


def test_float32_has_to_gain_more_than_chance_explains() -> None:
    before = trial(30.0, judgement(2.0))
    louder = trial(36.0, judgement(1.95, seed=1))
    better = trial(30.1, judgement(0.5))
    assert not louder.is_worth(before, 1.0)
    assert better.is_worth(before, 1.0)
    # Without labels decibels count.
    assert trial(31.0).is_worth(trial(30.0), 1.0)


class Judges:
    """Judges models by the error of their first output; counts how often."""

    pictures = 5

    def __init__(self, wanted: Run, inputs: Sequence[Mapping[str, Array]]) -> None:
        self._wanted = wanted
        self._inputs = inputs
        self.losses: list[float] = []

    def __call__(self, run: Run) -> Judgement:
        errors = []
        for sample in self._inputs:
            want = next(iter(self._wanted(sample, None).values()))
            got = next(iter(run(sample, None).values()))
            errors.append(float(np.abs(want - got).mean() / np.abs(want).mean()))
        loss = 100 * float(np.mean(errors))
        self.losses.append(loss)
        return Judgement("top-1", "%", 90 - loss, 90.0, np.full(50, loss), loss)


def test_a_plan_reaches_the_goal_on_labels() -> None:
    graph = NETS["chain"]()
    tries = samples(graph, 12)
    judge = Judges(partial(interp, graph), tries)
    plain = apply_recipe(TWO, graph, tries, limits=PlanLimits(judge=judge))
    assert plain.judged is not None
    assert plain.plan is None
    assert len(judge.losses) == 3  # both candidates, and the result
    allowed = plain.judged.loss / 2
    goal = AccuracyGoal(max_drop=allowed / 100)
    limits = PlanLimits(goal, CostBudget(), None, judge)
    found = apply_recipe(TWO, graph, tries, limits=limits)
    assert found.plan is not None
    assert found.float_ops
    assert found.judged is not None
    assert found.judged.loss <= allowed
    rows = [row.judged for row in found.plan.rows]
    assert all(row is not None for row in rows)
    assert found.to_json()["judged"]["figure"] == "top-1"


# ---- a whole compile


@pytest.mark.cc
@pytest.mark.slow
def test_a_detector_is_chosen_by_map(tmp_path: Path) -> None:
    """By decibels int8 is good enough; on labels float32 for its last operations pays."""
    labels = write_set(tmp_path / "set", 150)
    (tmp_path / "photos").mkdir()
    for i, scene in enumerate(scenes(32, 3)):
        Image.fromarray(scene.picture).save(tmp_path / "photos" / f"{i}.png")
    model = SHAPES / "shapes.onnx"
    by_noise = edgec.compile(
        model, output=tmp_path / "a.edgec", calibrate=tmp_path / "photos"
    )
    by_map = edgec.compile(
        model,
        output=tmp_path / "b.edgec",
        calibrate=tmp_path / "photos",
        data=labels,
    )
    assert by_noise.network.lowered.model.quantized is not None
    assert by_map.network.lowered.model.quantized is not None
    result = by_map.network.lowered.model.quantized
    assert result.judged is not None
    assert result.pictures == 150
    assert len(result.float_ops) > len(
        by_noise.network.lowered.model.quantized.float_ops
    )
    text = by_map.summary()
    assert "on 150 labelled pictures, none of which calibrated: mAP 50-95 " in text
    assert "SQNR, dB" in text

    # What the compile says is what `eval` measures.
    for path, floats in ((by_map.path, True), (by_noise.path, False)):
        report = edgec.eval(path, labels, model=model, resamples=50)
        last = report.sides[-1].figures["map"].value
        if floats:
            assert last == pytest.approx(result.judged.value, abs=0.02)
            assert report.sides[0].figures["map"].value == pytest.approx(
                result.judged.float_value, abs=0.02
            )
        else:
            assert last < result.judged.value - 0.5


def test_pictures_that_calibrate_do_not_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(ROOT / "fixtures" / "digits" / "digits_test.npz") as kept:
        pictures = kept["x"][:6]
        classes = kept["y"][:6]
    for i, (x, y) in enumerate(zip(pictures, classes, strict=True)):
        folder = tmp_path / "digits" / str(int(y))
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.rint(x[0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
        (tmp_path / "same").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "same" / f"{i}.png")
    model = ROOT / "fixtures" / "digits" / "digits.onnx"
    words = ["compile", str(model), "-o", str(tmp_path / "a.edgec")]
    words += ["--task", "classification", "--data", str(tmp_path / "digits")]
    # A quarter of the photos verifies, so all of them calibrate by --validate.
    same = str(tmp_path / "same")
    assert run_verb([*words, "--calibrate", same, "--validate", same]) == 2
    assert "every picture of digits calibrates already" in capsys.readouterr().err
    assert not (tmp_path / "a.edgec").exists()
    assert run_verb(words) == 2
    assert "--data is for a float model that becomes int8" in capsys.readouterr().err


def test_a_data_set_that_is_not_there(tmp_path: Path) -> None:
    model = ROOT / "fixtures" / "digits" / "digits.onnx"
    with pytest.raises(InputError, match="there is no data set"):
        edgec.compile(
            model,
            output=tmp_path / "a.edgec",
            calibrate=ROOT / "fixtures" / "digits" / "digits_calibration.npz",
            data=tmp_path / "gone",
        )
