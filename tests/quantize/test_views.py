"""Other views of the photos that candidates are judged on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from edgec.ir import Array
from edgec.ops.slice import Slice
from edgec.quantize.recipe import Candidate, Recipe
from edgec.quantize.search import search
from edgec.quantize.steps.minmax import MinMaxRanges
from edgec.quantize.trials import Score
from edgec.quantize.views import views
from edgec.quantize.work import QuantizationState
from tests.quantize.nets import Net


def photo(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "across"), [((1, 24, 36, 3), 2), ((1, 3, 24, 36), 3), ((1, 1, 24, 36), 3)]
)
def test_a_photo_is_seen_mirrored_moved_and_dimmed(
    shape: tuple[int, ...], across: int
) -> None:
    sample = {"x": photo(*shape), "other": np.arange(3)}
    own, mirrored, moved, dimmed, both = (v["x"] for v in views(sample, 9))
    assert own is sample["x"]
    assert all(v["other"] is sample["other"] for v in views(sample, 9))
    np.testing.assert_array_equal(mirrored, np.flip(own, across))
    assert dimmed.min() == own.min()
    assert np.ptp(dimmed) == pytest.approx(0.7 * np.ptp(own), rel=1e-5)
    inner, outer = ([slice(None)] * 4 for _ in range(2))
    inner[across - 1], inner[across] = slice(2, None), slice(None, -3)
    outer[across - 1], outer[across] = slice(None, -2), slice(3, None)
    np.testing.assert_array_equal(moved[tuple(inner)], own[tuple(outer)])
    assert {*np.unique(both)} <= {*np.unique(own)}
    assert all(
        v.shape == shape and v.dtype == np.float32
        for v in (mirrored, moved, dimmed, both)
    )
    assert [len(views(sample, most)) for most in (-1, 0, 2)] == [1, 1, 3]


@pytest.mark.parametrize(
    "x",
    [
        photo(1, 40),
        photo(1, 24, 36, 8),
        photo(1, 4, 36, 3),
        np.ones((1, 9, 9, 3), np.int8),
    ],
)
def test_what_is_no_photo_is_seen_as_it_is(x: Array) -> None:
    sample = {"x": x}
    assert views(sample, 9) == [sample]


def test_a_sample_counts_once_with_all_its_views() -> None:
    """The figures that people see are of the samples themselves."""
    want = {"y": np.ones(100)}
    rough = {"y": np.full(100, 1.1)}
    fine = {"y": np.full(100, 1.01)}
    found = Score.of([[(want, fine), (want, rough)], [(want, fine), (want, fine)]])
    assert [len(rows) for rows in found.rows.values()] == [2]
    (first, second) = found.rows["y"]
    assert first == pytest.approx((200, 100 * (0.1**2 + 0.01**2)))
    assert second == pytest.approx((200, 200 * 0.01**2))
    (state,) = found.tallies["y"]
    assert state["samples"] == 2
    assert state["_ee"] == pytest.approx(200 * 0.01**2)


@dataclass(frozen=True)
class _Narrow:
    """Ranges that hold what the right of these photos has, and nothing brighter."""

    name: ClassVar[str] = "narrow"
    changes: ClassVar[str] = "ranges"

    def run(self, work: QuantizationState) -> None:
        seen = work.extremes()
        pictures = {*work.graph.inputs}
        work.ranges = {
            v: (low / 50, high / 50) if v in pictures else (low, high)
            for v, (low, high) in seen.items()
        }


def test_a_candidate_for_these_photos_alone_is_not_kept() -> None:
    """All of them are bright on the left, where the network does not look; other photos
    may be so on the right.
    """
    net = Net("right", 3)
    x = net.input(1, 16, 16, 3)
    y = net.op(Slice((0, 0, 8, 0), (1, 16, 8, 3), (1, 1, 1, 1)), x)
    graph = net.done(net.conv(y, 4, 1, act="none"))
    rng = np.random.default_rng(1)
    tries = []
    for _ in range(8):
        array = rng.uniform(0, 0.02, (1, 16, 16, 3)).astype(np.float32)
        array[:, :, :4] *= 50
        tries.append({x.name: array})
    recipe = Recipe(
        "r", (Candidate("minmax", (MinMaxRanges(),)), Candidate("narrow", (_Narrow(),)))
    )
    found = search(recipe, graph, tries)
    assert found.candidate.name == "minmax"
    plain = {t.name: t.outputs[graph.outputs[0].name].sqnr_db for t in found.tried}
    assert plain["narrow"] > plain["minmax"], "on the photos as they are"
