"""Which scratch counts in the memory of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgec.ir import KernelCall, Scratch
from edgec.ops.conv import Conv2D
from edgec.schedule.liveness import STACK_BYTES, peak, step_lifetimes
from edgec.schedule.views import apart
from tests.harness import sample_graph


@pytest.mark.parametrize("threads", [1, 4])
def test_large_scratch_is_in_the_arena_for_each_thread(threads: int) -> None:
    graph = sample_graph(next(iter(Conv2D.samples())))
    (call,) = graph.ops[0].calls()

    def bytes_with(nbytes: int) -> int:
        """The peak of a step whose call has so much more scratch."""
        more: KernelCall = replace(call, operands=(*call.operands, Scratch(nbytes)))
        return peak(step_lifetimes([[more]], apart(graph), (), threads))

    on_stack = bytes_with(STACK_BYTES)
    assert bytes_with(0) == on_stack
    assert bytes_with(2 * STACK_BYTES) == on_stack + 2 * STACK_BYTES * threads
