"""Elementwise calls that follow each other, in one loop: what they compute, what is
stored, and what stays apart.
"""

from __future__ import annotations

import numpy as np
import pytest

from edgec.emit.c import segment_source
from edgec.ir import Builder, Graph, TensorType, Value, interp
from edgec.ops.activation import Clamp
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.norm import BatchNorm
from edgec.ops.pool import MaxPool2D
from edgec.ops.prelu import PRelu
from edgec.ops.shape import Reshape
from edgec.ops.unary import HardSwish, Logistic, Relu, Tanh
from edgec.schedule.cores import core
from edgec.schedule.steps import schedule
from edgec.schedule.variant import Rules
from tests.harness import assert_agree, random_inputs
from tests.schedule.on import WIDTHS, on
from tests.schedule.runner import run_on

CHAIN = "ek_chain_f32_simd"
SHAPES = (
    (1, 20, 20, 48),
    (1, 13, 15, 3),
    (2, 9, 31, 17),
    (1, 4, 3, 600),
    (1, 1, 103, 5),
    (37, 65),
    (3, 511),
)


class _Net:
    """A graph as it is built: inputs of one shape, constants of its channels."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.build = Builder("chain")
        self.shape = shape
        self.rng = np.random.default_rng(seed)

    def input(self, name: str) -> Value:
        return self.build.input(name, TensorType(self.shape))

    def const(self, *shape: int) -> Value:
        return self.build.const(
            self.rng.uniform(0.2, 1.5, shape).astype(np.float32),
            f"c{self.rng.integers(1 << 30)}",
        )

    def norm(self, x: Value) -> Value:
        return self.build.add(
            BatchNorm(1e-5), [x, *(self.const(self.shape[-1]) for _ in range(4))]
        )

    def graph(self, *outputs: Value) -> Graph:
        self.build.graph.outputs = [*outputs]
        return self.build.graph


def _line(shape: tuple[int, ...], seed: int) -> Graph:
    """add, norm, PReLU, function, and constants of one element."""
    net = _Net(shape, seed)
    add = net.build.add
    y = net.norm(add(Add(), [net.input("a"), net.input("b")]))
    y = add(Tanh(), [add(PRelu(), [y, net.const(shape[-1])])])
    y = add(Sub(), [add(Mul("relu"), [y, net.const()]), net.const(shape[-1])])
    return net.graph(add(HardSwish(), [y]))


def _tree(shape: tuple[int, ...], seed: int) -> Graph:
    """A sum of two functions of sums, of which a part is an output too."""
    net = _Net(shape, seed)
    add = net.build.add
    a, b, c, d = (net.input(name) for name in "abcd")
    left = add(Logistic(), [add(Add(), [a, b])])
    right = add(Relu(), [add(Mul(), [c, d])])
    both = add(Mul(), [left, right])
    return net.graph(add(Clamp(-0.5, 0.7), [add(Sub(), [both, a])]), left)


def _square(shape: tuple[int, ...], seed: int) -> Graph:
    """A square, and a value that is read after the next was made: a slot that is free
    is free once.
    """
    net = _Net(shape, seed)
    add = net.build.add
    y = add(Clamp(-9.0, 9.0), [net.input("a")])
    y = add(Sub(), [add(Mul(), [y, y]), net.const()])
    gated = add(Mul(), [y, add(Tanh(), [y])])
    return net.graph(add(HardSwish(), [gated]))


def _as_views(shape: tuple[int, ...]) -> Graph:
    """What a chain makes is read under another shape: its end, and, before that end,
    what lies between.
    """
    net = _Net(shape, 1)
    add = net.build.add
    y = add(Tanh(), [add(Add(), [net.input("a"), net.input("b")])])
    rows = add(Reshape(shape), [add(Reshape((*shape, 1)), [y])])
    pooled = add(MaxPool2D((3, 3), (1, 1), (1, 1, 1, 1)), [rows])
    z = add(Mul(), [add(Relu(), [y]), pooled])
    end = add(
        Reshape((shape[0], shape[2], shape[1], shape[3])),
        [add(Logistic(), [add(Sub(), [z, y])])],
    )
    return net.graph(add(MaxPool2D((2, 2), (1, 1), (0, 0, 0, 0)), [end]))


GRAPHS = [
    make(shape, i) for i, shape in enumerate(SHAPES) for make in (_line, _tree, _square)
]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", on(*WIDTHS, "sanitized"))
@pytest.mark.parametrize("parts", [0, 3])
def test_chains_compute_what_the_ops_do(name: str, parts: int) -> None:
    target = core("x86_64_v3" if name == "sanitized" else name)
    for graph in GRAPHS:
        assert segment_source(graph, "seg", target).text.count(f"{CHAIN}(") == 1
        assert len(schedule(graph, target).steps) == 1
    inputs = [random_inputs(g, i) for i, g in enumerate(GRAPHS)]
    for graph, given, got in zip(
        GRAPHS, inputs, run_on(name, GRAPHS, inputs, parts), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


@pytest.mark.parametrize("name", on(*WIDTHS))
def test_what_is_read_as_a_view_is_stored_and_made_in_time(name: str) -> None:
    graphs = [
        _as_views(shape) for shape in SHAPES if len(shape) == 4 and min(shape[1:3]) > 1
    ]
    for graph in graphs:
        assert CHAIN in segment_source(graph, "seg", core(name)).text
    inputs = [random_inputs(g, i) for i, g in enumerate(graphs)]
    for graph, given, got in zip(
        graphs, inputs, run_on(name, graphs, inputs), strict=True
    ):
        assert_agree(got, interp(graph, given), of=graph)


def test_what_is_no_larger_than_a_block_stays_apart() -> None:
    """It is in the first cache anyway: a recurrent network's gates are faster one by
    one.
    """
    assert (
        CHAIN
        not in segment_source(_line((1, 8, 8, 8), 0), "seg", core("cortex_a72")).text
    )
    assert (
        CHAIN in segment_source(_line((1, 8, 8, 9), 0), "seg", core("cortex_a72")).text
    )


def test_what_lies_between_leaves_the_arena() -> None:
    graph = _line((1, 64, 64, 32), 0)
    target = core("cortex_a72")
    assert segment_source(graph, "seg", target).plan.size == 0
    assert segment_source(graph, "seg", target, rules=Rules(chains=False)).plan.size > 0
    assert (
        CHAIN
        not in segment_source(graph, "seg", target, rules=Rules(chains=False)).text
    )


def test_a_value_that_others_read_before_the_chain_ends_is_made_before() -> None:
    net = _Net((1, 16, 16, 8), 0)
    add = net.build.add
    y = net.norm(add(Add(), [net.input("a"), net.input("b")]))
    pooled = add(MaxPool2D((3, 3), (1, 1), (1, 1, 1, 1)), [y])
    graph = net.graph(add(Mul(), [add(Relu(), [y]), pooled]))
    steps = schedule(graph, core("cortex_a72")).steps
    assert [[graph.ops[i].kind for i in s.ops] for s in steps] == [
        ["add", "batch_norm"],
        ["max_pool2d"],
        ["relu", "mul"],
    ]


def test_a_graph_that_gives_a_constant() -> None:
    """As folding leaves it: there is nothing to join, and the constant has no place."""
    build = Builder("constant")
    x = build.input("x", TensorType((2, 3)))
    build.graph.outputs = [build.const(np.zeros((2, 3), np.float32), "c"), x]
    assert CHAIN not in segment_source(build.graph, "seg", core("cortex_a72")).text
