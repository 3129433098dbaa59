"""make sanitize-table: a model is clean on a board's core, and what is undefined is
told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from edgec_partitioner.segments import Segment

from edgec.emit.sources import TargetSources, target_sources
from edgec.ir import Graph
from edgec.schedule.cores import Core
from tests.conftest import ROOT
from tests.tables import sanitize_table
from tests.tables.sanitize_table import Row, markdown, undefined

DIGITS = ROOT / "fixtures" / "digits" / "digits.onnx"


def test_what_was_found_is_in_the_table() -> None:
    rows = [
        Row("a", "threads", "x86_64_v3", ""),
        Row("b", "addresses", "x86_64_v3", "out of\n bounds"),
    ]
    assert list(markdown(rows))[2:] == [
        "| a | threads | x86_64_v3 | nothing |",
        "| b | addresses | x86_64_v3 | out of bounds |",
    ]


@pytest.mark.slow
@pytest.mark.arm
def test_a_board_under_the_sanitizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitize_table, "BOARDS", ("pi4",))
    assert list(undefined(DIGITS)) == [("cortex_a72", "")]

    def wrong(
        graph: Graph, segments: Sequence[Segment], cores: Sequence[Core]
    ) -> TargetSources:
        made = target_sources(graph, segments, cores)
        texts = {
            name: text.replace(
                "    return 0;",
                "    volatile int x = 2147483647;\n    x++;\n    return 0;",
            )
            for name, text in made.texts.items()
        }
        return replace(made, texts=texts)

    monkeypatch.setattr(sanitize_table, "target_sources", wrong)
    ((core, found),) = undefined(DIGITS)
    assert core == "cortex_a72"
    assert "exit status" in found
