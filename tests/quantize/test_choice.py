"""Whether the candidate of a recipe or its guard is kept."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.quantize.change.recipe import Recipe
from edgec.quantize.observe.score import Score
from edgec.quantize.observe.trial import Trial
from edgec.quantize.select.apply import apply_recipe
from tests.quantize.nets import NETS, samples

STEPS = ["lower", "minmax"]
TWO = [{"name": "plain", "steps": STEPS}, {"name": "finer", "steps": STEPS}]


def score(*outputs: list[float]) -> Score:
    """Of samples of the same power with this noise, in dB below it, by output."""
    powers = {
        str(i): [(1.0, 10 ** (-db / 10)) for db in dbs] for i, dbs in enumerate(outputs)
    }
    return Score({name: [] for name in powers}, powers)


def test_a_candidate_below_its_guard_is_refused() -> None:
    guard = Trial.of("plain", score([20.0] * 12, [20.0] * 12))
    below = Trial.of("finer", score([19.5] * 12, [19.7] * 12))
    assert below.against(guard, 0.3).refused == "0.4 dB below the first"
    near = Trial.of("finer", score([19.8] * 12, [19.7] * 12))
    assert not near.against(guard, 0.3).refused


def test_the_candidate_is_kept_where_it_is_as_good() -> None:
    graph = next(iter(NETS.values()))()
    recipe = Recipe.of({"candidate": TWO}, "some")
    found = apply_recipe(recipe, graph, samples(graph, 8))
    assert found.candidate.name == "finer"
    assert len({t.db for t in found.trials}) == 1


def test_without_samples_to_hold_back_the_guard_is_kept() -> None:
    graph = next(iter(NETS.values()))()
    recipe = Recipe.of({"candidate": TWO}, "some")
    found = apply_recipe(recipe, graph, samples(graph, 3))
    assert found.candidate.name == "plain"
    assert found.trials == ()


def test_three_candidates_are_refused() -> None:
    rows = [*TWO, {"name": "another", "steps": STEPS}]
    with pytest.raises(ValueError, match="it has 3 candidates"):
        Recipe.of({"candidate": rows}, "some")


def test_an_empty_mask_counts_as_a_part_of_the_mean_signal() -> None:
    """Its own ratio would say nothing; equal outputs count as 100 dB."""
    powers = {"y": [(1.0, 0.01), (0.0, 0.01)]}
    floored = Score({"y": []}, powers).db()["y"]
    own = (20 + 10 * np.log10(0.005 / 0.01)) / 2
    together = 10 * np.log10(1.0 / 0.02)
    assert floored == pytest.approx((own + together) / 2)
    assert Score({"y": []}, {"y": [(1.0, 0.0)]}).db()["y"] == 100
