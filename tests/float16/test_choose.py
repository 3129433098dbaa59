"""The choice of float16 by its loss: what is given back, and what is not."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.float16.choose import Float16Choice, Float16Chooser, Sample
from edgec.ir import Array, Builder, Graph, Observe, Run, Value, interp
from tests.float16.nets import dense, given, large, noisy, samples


def _run(graph: Graph, winograd: int) -> Run:
    return partial(interp, graph)


def _net(middle: str = "") -> Graph:
    """Two layers with something between them."""
    build = Builder("net")
    y = dense(build, given(build), "first")
    if middle == "noisy":
        y = noisy(build, y)
    if middle == "large":
        y = large(build, y)
    build.graph.outputs = [dense(build, y, "second")]
    return build.graph


def _chooser(graph: Graph) -> Float16Chooser:
    return Float16Chooser(graph, samples(), _run)


def _halves(choice: Float16Choice) -> set[str]:
    """The ops that compute with float16, by their outputs in the float32 graph."""
    names = [
        op.outputs[0].name
        for op in choice.graph.ops
        if op.kind != "cast" and op.outputs[0].type.dtype == "float16"
    ]
    return {name.removesuffix("_f16") for name in names}


def test_all_is_float16_where_all_is_fine() -> None:
    choice = _chooser(_net()).within_limits()
    assert _halves(choice) == {"first", "second"}
    assert choice.kept == ()
    assert choice.converted == 2
    assert choice.losses["second"].is_small
    assert choice.losses["second"].sqnr_db < 100
    assert choice.samples == 2


def test_a_noisy_layer_is_given_back_and_no_other() -> None:
    graph = _net("noisy")
    everything = _chooser(graph).all_float16()
    assert _halves(everything) == {"first", "raised", "lowered", "second"}
    assert not everything.losses["second"].is_small

    choice = _chooser(graph).within_limits()
    assert choice.losses["second"].is_small
    assert set(choice.kept) == {"raised", "lowered"}
    assert _halves(choice) == {"first", "second"}


def test_tiles_of_winograd_become_smaller_before_ops_are_given_back() -> None:
    def noisy_tiles(graph: Graph, winograd: int) -> Run:
        """Run a graph whose larger tiles lose a tenth of each output of float16."""

        def run(sample: Sample, observe: Observe | None = None) -> dict[str, Array]:
            def scaled(v: Value, array: Array) -> None:
                if winograd > 2 and array.dtype == np.float16:
                    array *= np.float16(0.9)
                if observe is not None:
                    observe(v, array)

            return interp(graph, sample, scaled)

        return run

    choice = Float16Chooser(_net(), samples(), noisy_tiles).within_limits()
    assert choice.winograd == 2
    assert choice.to_json()["winograd"] == 2
    assert choice.kept == ()
    assert choice.losses["second"].is_small
    assert _chooser(_net()).within_limits().winograd == 4


def test_samples_may_be_read_only() -> None:
    """As pictures of a file are; their network has noises to be measured."""
    fixed = samples()
    for sample in fixed:
        for array in sample.values():
            array.setflags(write=False)
    choice = Float16Chooser(_net("noisy"), fixed, _run).within_limits()
    assert set(choice.kept) == {"raised", "lowered"}


def test_numbers_beyond_half_of_the_largest_stay_float32() -> None:
    """The op that reads them too: a cast before it would overflow."""
    for choice in (
        _chooser(_net("large")).within_limits(),
        _chooser(_net("large")).all_float16(),
    ):
        assert choice.kept == ("back", "scaled")
        assert _halves(choice) == {"first", "second"}
        assert choice.losses["second"].is_small


def test_a_graph_that_is_noisy_throughout_stays_float32() -> None:
    build = Builder("net")
    build.graph.outputs = [noisy(build, dense(build, given(build), "first"))]
    choice = _chooser(build.graph).within_limits()
    assert "raised" not in _halves(choice)
    assert all(loss.is_small for loss in choice.losses.values())


def test_the_manifest_has_the_choice() -> None:
    choice = _chooser(_net("noisy")).within_limits()
    facts = json.loads(json.dumps(choice.to_json()))
    assert facts["operations"] == 2
    assert facts["float32"] == ["lowered", "raised"]
    assert facts["samples"] == 2
    assert facts["losses"]["second"]["sqnr_db"] == pytest.approx(
        choice.losses["second"].sqnr_db, abs=0.01
    )
