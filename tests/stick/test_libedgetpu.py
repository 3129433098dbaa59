"""Google's libedgetpu, unmodified, on our stick: outputs equal the source's by interp."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick
from edgec_devices.stick.sources import read_index

from edgec.frontends import read_model
from edgec.ir import Graph, interp
from tests.stick.real_stack import EDGETPU, Array, Call, run

pytestmark = [pytest.mark.cc, pytest.mark.shared]


def random_inputs(graph: Graph, seed: int) -> list[Array]:
    """Any integers of each input."""
    rng = np.random.default_rng(seed)
    made = []
    for value in graph.inputs:
        limits = np.iinfo(value.type.np_dtype)
        low, high = int(limits.min), int(limits.max) + 1
        drawn = rng.integers(low, high, value.type.shape)
        made.append(drawn.astype(value.type.np_dtype))
    return made


def test_a_dense_layer(tmp_path: Path) -> None:
    (entry,) = [e for e in read_index(EDGETPU) if e.name == "dense_256"]
    assert entry.source is not None
    graph = read_model(EDGETPU / entry.source)
    given = [random_inputs(graph, seed) for seed in range(2)]
    with Stick.serve(EDGETPU) as stick:
        calls = [Call(EDGETPU / entry.compiled, inputs) for inputs in given]
        answer = run(stick, calls, tmp_path)
        assert answer.code == 0, answer.text
    for inputs, outputs in zip(given, answer.outputs, strict=True):
        (expected,) = interp(graph, {graph.inputs[0].name: inputs[0]}).values()
        np.testing.assert_array_equal(outputs[0], expected)
