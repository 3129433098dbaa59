"""Tables of a terminal: aligned, the same in every log, within the width; cells are
text; terms are explained.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgec.report.explain.text import report_terms, to_text
from edgec.report.legend import TERMS, legend
from edgec.report.tables import WIDTH, table
from tests.report.test_explain_html import report


def test_columns_are_aligned() -> None:
    text = table(
        ("name", "ms", "why"), [("a", "1.5", ""), ("longer", "12.25", "it is")], "lrl"
    )
    assert text.splitlines() == [
        "name       ms  why",
        "a         1.5",
        "longer  12.25  it is",
    ]
    assert table(("name",), [], "l") == ""


def test_it_is_the_same_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = table(("a", "b"), [("x", "long " * 60)], "ll")
    for name, value in (
        ("COLUMNS", "40"),
        ("FORCE_COLOR", "1"),
        ("TERM", "xterm-256color"),
        ("NO_COLOR", "1"),
    ):
        monkeypatch.setenv(name, value)
    assert table(("a", "b"), [("x", "long " * 60)], "ll") == before
    assert max(map(len, before.splitlines())) <= WIDTH
    assert before.split() == ["a", "b", "x", *["long"] * 60], (
        "it wraps, and nothing is lost"
    )


def test_cells_are_text() -> None:
    names = ("[bold]x[/bold]", "\x1b[31mred\x1b]0;t\x07", ":smile:\n2", "n" * 10_000)
    text = table(("name", "why"), [(name, name) for name in names], "ll")
    assert "[bold]x[/bold]" in text
    assert ":smile: 2" in text
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert max(map(len, text.splitlines())) <= WIDTH
    assert len(text) < 3_000


def test_terms_are_explained_once_at_the_end() -> None:
    r = report()
    lines = to_text(r).splitlines()
    assert max(map(len, lines)) <= WIDTH
    start = next(i for i, line in enumerate(lines) if line.startswith("(MACs = "))
    assert lines[start - 1] == ""
    assert "" not in lines[start:]
    names = report_terms(r)
    assert {"MACs", "estimated", "segment", "invoke", "streamed"} <= {*names}
    footnote = " ".join(lines[start:])
    for name in names:
        # A line ends between any two words.
        assert f"{name} = {TERMS[name]}" in " ".join(footnote.split())
    assert legend(()) == ""


def test_only_terms_in_use_are_explained() -> None:
    text = to_text(report())
    assert "uncertain" not in text
    assert "streamed = " not in to_text(report(link=None))


def test_a_rules_name_reads_as_words() -> None:
    text = to_text(report(), each_op=True)
    assert "not an op of the Edge TPU: dequantize" in text
    assert "supported_op" not in text
    assert "int8_tensors" not in text


@pytest.mark.parametrize("fix", ["", None])
def test_what_needs_no_fix_is_a_line_for_each_rule(fix: str | None) -> None:
    r = report("chain")
    kept = [op for op in r.ops if op.refusals]
    rows = tuple(
        replace(op, refusals=tuple(replace(why, fix=fix) for why in op.refusals))
        for op in r.ops
    )
    text = to_text(replace(r, ops=rows))
    assert "  fix:  " not in text
    assert "rule:" not in text
    assert text.count("no fix: ") == len({op.refusals[0].constraint for op in kept})
    assert all(
        " ".join(op.refusals[0].constraint.split()) in " ".join(text.split())
        for op in kept
    )
