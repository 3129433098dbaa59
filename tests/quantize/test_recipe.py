"""Recipes: read and written as data, their steps kept to what they say, the best kept
on samples held back.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from edgec.errors import InputError, InternalError
from edgec.ir import Graph, interp, print_graph
from edgec.quantize import quantize
from edgec.quantize.change.recipe import CHANGE_ORDER, RECIPE_FOLDER, Candidate, Recipe
from edgec.quantize.change.state import QuantizationState
from edgec.quantize.change.steps import steps
from edgec.quantize.change.steps.lower import Lower
from edgec.quantize.change.steps.minmax import MinMaxRanges
from edgec.quantize.observe.score import Score
from edgec.quantize.select.apply import apply_recipe
from tests.quantize.nets import NETS, samples


@pytest.mark.parametrize(
    "path", sorted(RECIPE_FOLDER.glob("*.toml")), ids=lambda p: p.stem
)
def test_what_is_written_is_what_was_read(path: Path) -> None:
    recipe = Recipe.load(path.stem)
    assert Recipe.of(recipe.to_json(), "other") == recipe


@pytest.mark.parametrize("name", steps())
def test_a_step_is_named_as_its_file_and_says_what_it_changes(name: str) -> None:
    assert steps()[name].name == name
    assert steps()[name].changes in CHANGE_ORDER


@pytest.mark.parametrize("name", NETS)
def test_fast_is_min_and_max(name: str) -> None:
    graph = NETS[name]()
    assert print_graph(
        apply_recipe(Recipe.load("fast"), graph, samples(graph)).int8_graph
    ) == print_graph(quantize(graph, samples(graph)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no .*candidate"),
        ("colour = 1", "colour"),
        ('candidate = [{name = "a"}]', "steps"),
        ('candidate = [{name = "a", steps = []}]', "no step finds the ranges"),
        ('candidate = [{name = "a", steps = ["minmacs"]}]', "did you mean.*minmax"),
        (
            'candidate = [{name = "a", steps = ["minmax", "lower"]}]',
            "must change graph, then ranges",
        ),
        (
            'candidate = [{name = "a", steps = [{step = "minmax", percent = 3}]}]',
            "percent",
        ),
        (
            'candidate = [{name = "a", steps = ["minmax"]}, {name = "a", '
            'steps = ["minmax"]}]',
            "two candidates",
        ),
        ('seed = "x"\ncandidate = [{name = "a", steps = ["minmax"]}]', "seed"),
        ("candidate = [", "cannot read mine.toml"),
    ],
)
def test_what_no_recipe_can_be(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        Recipe.load(str(path))


def test_a_recipe_of_no_such_name() -> None:
    with pytest.raises(InputError, match=r"no recipe fsat.*fast"):
        Recipe.load("fsat")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'seed = 3\n[[candidate]]\nname = "a"\nsteps = ["lower", "minmax"]\n'
    )
    recipe = Recipe.load(str(path))
    assert recipe == Recipe("mine", Candidate("a", (Lower(), MinMaxRanges())), seed=3)
    assert recipe == Recipe.of(tomllib.loads(path.read_text()), "mine")


@dataclass(frozen=True)
class _Halve:
    """Ranges of half the size, which clip; and, when it is `greedy`, another graph too."""

    greedy: bool = False
    name: ClassVar[str] = "halve"
    changes: ClassVar[str] = "ranges"

    def run(self, work: QuantizationState) -> None:
        work.ranges = {
            v: (low / 2, high / 2) for v, (low, high) in work.observed_ranges().items()
        }
        if self.greedy:
            work.graph = work.graph.copy()


def test_a_step_may_not_change_more_than_it_says() -> None:
    graph = NETS["chain"]()
    with pytest.raises(InternalError, match="halve changed graph"):
        QuantizationState(graph, samples(graph)).after(_Halve(greedy=True))


def _two(graph: Graph, count: int = 8, order: int = 1) -> tuple[str, int, int]:
    guard, candidate = (
        Candidate("minmax", (MinMaxRanges(),)),
        Candidate("half", (_Halve(),)),
    )[::order]
    found = apply_recipe(Recipe("r", candidate, guard), graph, samples(graph, count))
    return found.candidate.name, found.held_back_samples, len(found.trials)


def test_the_best_on_held_back_samples_is_kept() -> None:
    assert _two(NETS["chain"]()) == ("minmax", 8, 2), (
        "too few for a quarter: each is held back once"
    )
    assert _two(NETS["chain"](), order=-1) == ("minmax", 8, 2)
    assert _two(NETS["chain"](), 48) == ("minmax", 12, 2)
    assert _two(NETS["chain"](), 3, -1) == ("half", 0, 0), (
        "nothing to hold back: the first is taken"
    )


def test_no_single_sample_decides() -> None:
    """One with next to no signal, whose ratio is far below all others, counts as little
    as it has.
    """
    rng = np.random.default_rng(0)
    want = [{"y": rng.normal(size=100)} for _ in range(8)] + [
        {"y": np.full(100, 1e-9) * rng.normal(size=100)}
    ]
    noise = [rng.normal(size=100) for _ in want]

    def score(sizes: list[float]) -> float:
        got = (
            {"y": w["y"] + n * size}
            for w, n, size in zip(want, noise, sizes, strict=True)
        )
        return Score.of(zip(want, got, strict=True)).db()["y"]

    assert score([0.1] * 8 + [0.01]) == pytest.approx(20, abs=1.5)
    assert (
        score([0.03] * 8 + [0.02])
        > score([0.1] * 8 + [0.0])
        > score([0.1] * 8 + [0.01])
    )
    assert score([0.0] * 9) == 100


def test_what_is_kept_is_made_of_all_samples() -> None:
    """And the reference is what ran before: the float graph that the int8 one is of."""
    graph = NETS["residual"]()
    tries = samples(graph, 8)
    guard = Candidate("half", (_Halve(),))
    candidate = Candidate("minmax", (Lower(), MinMaxRanges()))
    found = apply_recipe(Recipe("r", candidate, guard), graph, tries)
    assert print_graph(found.int8_graph) == print_graph(quantize(graph, tries))
    for name, y in interp(graph, tries[0]).items():
        np.testing.assert_allclose(
            interp(found.float_graph, tries[0])[name], y, rtol=1e-5
        )
