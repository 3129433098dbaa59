"""The values that are judged, and the figures of a loss."""

from __future__ import annotations

import math

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.float16.loss import Loss, judged_values, losses
from edgec.ir import Array, Builder
from edgec.ops.argmax import ArgMax
from edgec.ops.scan import TopK
from tests.float16.nets import dense, given


def _loss(want: Array, got: Array) -> Loss:
    return losses(["y"], [{"y": want}], [{"y": got}])["y"]


def test_an_output_of_floats_is_judged_itself() -> None:
    build = Builder("net")
    first = dense(build, given(build), "first")
    build.graph.outputs = [dense(build, first, "second"), first]
    assert [v.name for v in judged_values(build.graph)] == ["second", "first"]


def test_floats_before_an_argmax_are_judged() -> None:
    build = Builder("net")
    scores = dense(build, given(build), "scores")
    build.graph.outputs = [build.add(ArgMax(1), [scores], "class")]
    assert [v.name for v in judged_values(build.graph)] == ["scores"]


def test_floats_before_a_top_k_are_judged() -> None:
    """Its own floats may change places, as may all that is taken by its positions."""
    build = Builder("net")
    scores = dense(build, given(build), "scores")
    best, places = build.add_multi(TopK(5, axis=1), [scores], "best")
    build.graph.outputs = [best, places]
    assert [v.name for v in judged_values(build.graph)] == ["scores"]


def test_an_input_has_no_loss() -> None:
    build = Builder("net")
    x = given(build)
    build.graph.outputs = [build.add(ArgMax(1), [x], "class")]
    assert judged_values(build.graph) == []


def test_the_figures_are_by_the_formulas() -> None:
    rng = np.random.default_rng(1)
    want = rng.normal(size=1000).astype(np.float32)
    got = want + rng.normal(size=1000).astype(np.float32) * 1e-3
    loss = _loss(want, got)
    x, y = want.astype(np.float64), got.astype(np.float64)
    ratio = (x**2).sum() / ((x - y) ** 2).sum()
    assert loss.sqnr_db == pytest.approx(10 * math.log10(ratio))
    assert loss.largest == pytest.approx(np.abs(x - y).max() / np.ptp(x))
    assert loss.sqnr_db == pytest.approx(60, abs=1)
    assert loss.is_small


def test_samples_are_summed() -> None:
    """A quiet sample with much noise of its own counts by its power, not as a half."""
    loud, quiet = np.full(4, 100, np.float32), np.full(4, 1, np.float32)
    loss = losses(
        ["y"], [{"y": loud}, {"y": quiet}], [{"y": loud}, {"y": quiet * 1.5}]
    )["y"]
    assert loss.sqnr_db == pytest.approx(10 * math.log10(10001 / 0.25))
    assert loss.largest == pytest.approx(0.5 / 100)


def test_infinities_are_no_signal() -> None:
    want = np.array([1, -np.inf, 2], np.float32)
    assert _loss(want, want) == Loss(math.inf, 0.0)
    assert _loss(want, np.array([1, 0, 2], np.float32)).is_small


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_is_not_small(wrong: float) -> None:
    want = np.array([1, 2], np.float32)
    assert not _loss(want, np.array([1, wrong], np.float32)).is_small


def test_a_value_of_nothing_but_zero_must_stay_so() -> None:
    zeros = np.zeros(3, np.float32)
    assert _loss(zeros, zeros).is_small
    assert not _loss(zeros, zeros + np.float32(1e-6)).is_small


def test_both_limits_count() -> None:
    assert Loss(47.0, 0.01).is_small
    assert not Loss(46.9, 0.001).is_small
    assert not Loss(60.0, 0.011).is_small
    assert Loss(42.0, 0.001).missing_db == pytest.approx(5)

    # An error ten times too large is 20 dB too much.
    assert Loss(60.0, 0.1).missing_db == pytest.approx(20)
