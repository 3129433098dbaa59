"""A core's kernels need no more of the arena than plain ones: small scratch is on the
stack.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgec.compiler.lower import lower
from edgec.emit.c import segment_source
from edgec.errors import EdgecError
from edgec.ir import Builder, Graph, TensorType, interp
from edgec.ops.conv import Conv2D
from edgec.options.compile import CompileOptions
from edgec.schedule.cores import PLAIN, core
from edgec.schedule.liveness import STACK_BYTES
from tests.conftest import MODELS
from tests.harness import assert_agree, random_inputs
from tests.schedule.runner import run_on

FIXTURES = Path(__file__).parents[2] / "fixtures"
CORES = ("cortex_a53", "cortex_a72", "cortex_a76", "x86_64_v3", "x86_64_v4_vnni")


def _larger(model: Path) -> list[str]:
    """Where a core's arena is larger than that of plain kernels; nothing of what edgec
    cannot read.
    """
    # All floats are float16 at once, without a search for those that stay float32.
    options = CompileOptions(target="pi5", float_width="16")
    try:
        segments = lower(model, options).partition.segments
    except EdgecError:
        return []
    found = []
    for s in segments:
        plain = segment_source(s.graph, "s", PLAIN).plan
        for name in CORES:
            plan = segment_source(s.graph, "s", core(name)).plan
            if plan.size > plain.size:
                found.append(
                    f"{model.stem} on {name}: {plan.size} bytes, "
                    f"by plain kernels {plain.size}"
                )
    return found


@pytest.mark.parametrize("name", ["digits", "cartoon"])
def test_fixtures(name: str) -> None:
    models = [
        p
        for p in sorted((FIXTURES / name).iterdir())
        if p.suffix in (".onnx", ".tflite")
    ]
    assert models
    assert [line for m in models for line in _larger(m)] == []


@pytest.mark.sweep(5)
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_real_models(name: str, shared: Path) -> None:
    assert _larger(shared / "models" / MODELS[name]["file"]) == []


def _padded(channels: int) -> Graph:
    """A convolution whose padded rows go by way of scratch."""
    b = Builder("g")
    w = b.const(
        np.random.default_rng(0).normal(size=(8, 3, 3, channels)).astype(np.float32),
        "w",
    )
    x = b.input("x", TensorType((1, 5, 30, channels)))
    b.graph.outputs = [b.add(Conv2D(pads=(1, 1, 1, 1)), [x, w], "y")]
    return b.graph


@pytest.mark.cc
@pytest.mark.parametrize("parts", [0, 3])
def test_scratch_is_on_the_stack_where_it_is_small(parts: int) -> None:
    graphs = [_padded(4), _padded(200)]
    small, large = (segment_source(g, "s", core("x86_64_v3")) for g in graphs)
    assert small.plan.size == 0
    assert "EK_STACK(" in small.text
    assert large.plan.size > STACK_BYTES
    assert "EK_STACK(" not in large.text
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(
        graphs, inputs, run_on("x86_64_v3", graphs, inputs, parts), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)
