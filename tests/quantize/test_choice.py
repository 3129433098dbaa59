"""Which of the candidates that were tried is kept."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.quantize.recipe import Recipe
from edgec.quantize.search import choice, compared, search
from edgec.quantize.trials import Score, errors
from tests.quantize.nets import NETS, samples

STEPS = ["lower", "minmax"]


def score(*outputs: list[float]) -> Score:
    """Of samples of the same power with this noise, in dB below it, by output."""
    rows = {
        str(i): [(1.0, 10 ** (-db / 10)) for db in dbs] for i, dbs in enumerate(outputs)
    }
    return Score({name: [] for name in rows}, rows)


def recipe(count: int) -> Recipe:
    return Recipe.of(
        {"candidate": [{"name": str(i), "steps": STEPS} for i in range(count)]}, "some"
    )


def kept(*scores: Score) -> str:
    some = recipe(len(scores))
    found = compared(some, scores)
    return found[choice(found, some.within_errors)].name


def test_the_error_of_a_mean_is_what_its_samples_say() -> None:
    """Where they differ by the same, it is certain; else it is about that of a mean of
    so many.
    """
    noise = [*np.random.default_rng(0).normal(20, 3, 24)]
    assert errors(score(noise), score([db - 2 for db in noise]))[0] == pytest.approx(
        0, abs=1e-9
    )
    for spread in (0.5, 1.0):
        other = [
            db + x
            for db, x in zip(
                noise, np.random.default_rng(1).normal(0, spread, 24), strict=True
            )
        ]
        error, of_outputs = errors(score(noise), score(other))
        assert error == pytest.approx(spread / 24**0.5, rel=0.5)
        assert of_outputs["0"] == pytest.approx(error)
    whole, parts = errors(score(noise, noise), score(noise, other))
    assert parts["0"] == 0
    assert whole == pytest.approx(parts["1"] / 2)


def test_of_those_that_samples_cannot_tell_apart_the_last_is_kept() -> None:
    plain = [20.0] * 12
    lucky = [20.0] * 11 + [26.0]
    better = [21.0, 21.4] * 6
    assert kept(score(plain), score(lucky), score(plain)) == "1", (
        "one is surely no worse"
    )
    assert (
        kept(score(plain), score([22.0, 19.0] * 6), score([19.0, 21.9] * 6)) == "2"
    ), "by chance"
    assert kept(score(plain), score(better), score(plain)) == "1", "no chance"
    assert kept(score(better), score(plain)) == "0"


def test_one_that_is_below_the_first_is_refused() -> None:
    """By its mean, or by an output that is so much worse that it is no chance."""
    first = score([20.0] * 12, [20.0] * 12)
    below = compared(recipe(2), [first, score([19.5] * 12, [19.7] * 12)])[1]
    assert below.refused == "0.4 dB below the first"
    torn = compared(recipe(2), [first, score([30.0] * 12, [19.0] * 12)])[1]
    assert torn.refused == "1 is 1.0 dB below the first"
    noisy = compared(recipe(2), [first, score([30.0] * 12, [16.0, 23.0] * 6)])[1]
    assert not noisy.refused, (
        "half of the samples are better by as much as the others are worse"
    )


def test_a_search_keeps_the_last_of_equals() -> None:
    graph = next(iter(NETS.values()))()
    ways = {"plain": STEPS, "same": ["lower", {"step": "ranges", "method": "minmax"}]}
    rows = [{"name": name, "steps": steps} for name, steps in ways.items()]
    found = search(Recipe.of({"candidate": rows}, "some"), graph, samples(graph, 8))
    assert found.candidate.name == "same"
    assert [t.error for t in found.tried] == [0, 0]
