"""Results of elementwise calls lie where an operand lay that nothing reads later, and
only there.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, Quant, TensorType, Value, interp
from edgec.ops.binary import Add, Mul
from edgec.ops.pool import MaxPool2D
from edgec.ops.unary import Logistic
from edgec.schedule.cores import PLAIN, Core, core
from edgec.schedule.steps import schedule
from edgec.schedule.variant import Rules
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

SHAPE = (1, 23, 17, 24)
POOL = MaxPool2D((3, 3), (1, 1), (1, 1, 1, 1))


def _graph(dtype: str, wanted: str) -> Graph:
    """A pool, what is made of its result, a pool; wanted: which."""
    b = Builder(wanted)
    rng = np.random.default_rng(0)
    quant = Quant.per_tensor(1 / 32, -5) if dtype == "int8" else None

    def put(v: Value) -> Value:
        v.type = v.type.with_quant(quant) if quant else v.type
        return v

    def pool(v: Value) -> Value:
        return put(b.add(POOL, [v]))

    x, other = (pool(b.input(name, TensorType(SHAPE, dtype, quant))) for name in "xy")
    if quant:
        k = rng.integers(-90, 90, SHAPE[-1]).astype(np.int8)
    else:
        k = rng.normal(size=SHAPE[-1]).astype(np.float32)
    constant = b.const(k, "k", quant)
    if wanted == "unary":
        y = [put(b.add(Logistic(), [x])), other]
    elif wanted == "binary":
        y = [put(b.add(Mul(), [put(b.add(Add(), [x, constant])), other])), other]
    elif wanted == "twice":  # both of its operands are one tensor
        y = [put(b.add(Mul(), [x, x])), other]
    else:  # what is read later stays
        y = [put(b.add(Logistic(), [x])), put(b.add(Add(), [x, other]))]
    b.graph.outputs = [pool(v) for v in y]
    return b.graph


GRAPHS = [
    _graph(dtype, wanted)
    for dtype in ("float32", "int8")
    for wanted in ("unary", "binary", "twice", "later")
]


@pytest.mark.parametrize("name", on(*WIDTHS, "sanitized"))
@pytest.mark.parametrize("parts", [0, 3])
@pytest.mark.sweep(4)
def test_results_in_place_are_the_same(name: str, parts: int) -> None:
    inputs = [random_inputs(g, i) for i, g in enumerate(GRAPHS)]
    for graph, given, got in zip(
        GRAPHS, inputs, run_on(name, GRAPHS, inputs, parts), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    ("wanted", "moved"), [("unary", 1), ("binary", 2), ("twice", 1), ("later", 1)]
)
@pytest.mark.parametrize("target", [PLAIN, core("cortex_a53")], ids=lambda c: c.name)
def test_what_dies_gives_its_place(
    dtype: str, wanted: str, moved: int, target: Core
) -> None:
    graph = _graph(dtype, wanted)
    where = schedule(graph, target, Rules(chains=False)).places
    assert sum(where[op.output].root is not op.output for op in graph.ops) == moved


def test_a_chain_needs_no_more_memory_than_its_inputs() -> None:
    graph = _graph("float32", "binary")
    plan = segment_source(graph, "s", core("cortex_a72")).plan
    assert plan.size == plan.lower_bound <= 2 * 4 * (int(np.prod(SHAPE)) + 16)
