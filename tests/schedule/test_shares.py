"""How threads share passes: blocks by which all get as many, without a look at more of
them than that takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgec.schedule import shares
from edgec.schedule.shares import equal_blocks, largest_part


@given(st.integers(1, 400), st.integers(1, 60), st.integers(1, 9), st.integers(1, 4))
def test_the_largest_part_is_what_sharing_pass_by_pass_gives(
    total: int, block: int, panels: int, parts: int
) -> None:
    passes = [
        min(block, total - first)
        for first in range(0, total, block)
        for _ in range(panels)
    ]
    ends = [len(passes) * part // parts for part in range(parts + 1)]
    assert largest_part(total, block, panels, parts) == max(
        sum(passes[a:b]) for a, b in itertools.pairwise(ends)
    )


def test_blocks_are_asked_for_until_one_is_good_and_each_is_judged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged: list[int] = []

    def largest(total: int, block: int, panels: int, parts: int) -> int:
        judged.append(block)
        return largest_part(total, block, panels, parts)

    def lengths() -> Iterator[int]:
        yield from (90, 90, 60, 50)
        raise AssertionError("50 gives both as many")

    monkeypatch.setattr(shares, "largest_part", largest)
    assert equal_blocks(100, lengths(), 1, 2) == 50
    assert judged == [90, 60, 50]


def test_where_none_is_good_the_most_equal_is_taken() -> None:
    assert equal_blocks(100, (90, 60, 70), 1, 2) == 60
