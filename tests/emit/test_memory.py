"""The arena planner: no two live buffers overlap, and the plan is near the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgec.emit.memory import plan_offsets
from edgec.schedule.liveness import ALIGNMENT, Lifetime, aligned


@st.composite
def _lives(draw: st.DrawFn) -> list[Lifetime]:
    spans = draw(
        st.lists(
            st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 8)),
            max_size=25,
        )
    )
    return [
        Lifetime(f"b{i}", size, first, first + length)
        for i, (size, first, length) in enumerate(spans)
    ]


@given(_lives())
def test_live_buffers_never_overlap(lives: list[Lifetime]) -> None:
    plan = plan_offsets(lives)
    assert plan.lower_bound <= plan.size <= sum(aligned(b.nbytes) for b in lives)
    for i, a in enumerate(lives):
        assert plan.offsets[a.name] % ALIGNMENT == 0
        assert plan.offsets[a.name] + a.nbytes <= plan.size
        for b in lives[:i]:
            if a.first <= b.last and b.first <= a.last:
                ao = plan.offsets[a.name]
                bo = plan.offsets[b.name]
                assert ao + a.nbytes <= bo or bo + b.nbytes <= ao, (
                    f"{a} and {b} overlap"
                )


def test_a_chain_needs_two_buffers() -> None:
    lives = [Lifetime(f"b{i}", 640, i, i + 1) for i in range(10)]
    plan = plan_offsets(lives)
    assert plan.size == plan.lower_bound == 2 * 640
