"""Partitions of real models: segments against the reference kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_partitioner.partition import partition

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, interp
from edgec.passes.pipeline import optimize
from tests.conftest import MODELS
from tests.harness import run_tflite

pytestmark = pytest.mark.shared


INT8 = [
    m
    for m in MODELS.values()
    if "kref" in m.get("ref", {})
    and m["tensor_types"].get("float32", 0) < m["nops"]  # not: float with int8 weights
]


def _read(path: Path) -> Graph:
    try:
        return read_model(path, {})
    except UnsupportedError as e:
        pytest.skip(e.what)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("model", INT8, ids=lambda m: m["name"])
def test_segments_are_the_reference_kernels(
    model: dict[str, Any], shared: Path
) -> None:
    """Chained segments give TFLite's reference outputs; each Edge TPU segment, as
    TFLite, gives what interp gives.
    """
    graph = optimize(_read(shared / "models" / model["file"]))
    parts = partition(graph, "usb3")
    ref = np.load(shared / "models" / model["ref"]["file"])
    values: dict[str, Array] = {
        v.name: ref[f"in0_{j}"] for j, v in enumerate(graph.inputs)
    }
    for s in parts.segments:
        inputs = {v.name: values[v.name] for v in s.graph.inputs}
        outputs = interp(s.graph, inputs)
        if s.place == "edgetpu":
            for name, y in run_tflite(s.graph, inputs).items():
                np.testing.assert_array_equal(y, outputs[name])
        values.update(outputs)
    for j, v in enumerate(graph.outputs):
        want = ref[f"kref0_{j}" if f"kref0_{j}" in ref else f"out0_{j}"]
        if want.dtype.kind == "f":
            np.testing.assert_allclose(
                values[v.name], want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max())
            )
        else:
            np.testing.assert_array_equal(values[v.name], want)
