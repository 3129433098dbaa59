"""A gather between two ops of one segment."""

from __future__ import annotations

import pytest

from edgec.ir import Builder, TensorType, interp
from edgec.ops.binary import Add
from edgec.ops.shape import Transpose
from tests.harness import assert_agree, random_inputs, run_c


@pytest.mark.cc
@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_its_result_is_seen_by_the_next_op(perm: tuple[int, ...]) -> None:
    """gcc 12 at -O1 once dropped the call: both of its tensors lie in the arena."""
    b = Builder("chain")
    x = b.input("x", TensorType((1, 48, 48, 2)))
    doubled = b.add(Add(), [x, x], "doubled")
    y = b.add(Transpose(perm), [b.add(Add(), [doubled, doubled], "fourfold")], "moved")
    b.graph.outputs = [b.add(Add(), [y, y], "y")]
    inputs = random_inputs(b.graph)
    assert_agree(run_c(b.graph, inputs), interp(b.graph, inputs))
