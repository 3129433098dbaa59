"""The table of libedgetpu and interpreters in docs/stick.md, and the runs that it is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import libedgetpu_runs
from benchmarks.libedgetpu_runs import EQUAL, PAGE, Run


def test_the_page_has_the_table_of_the_runs() -> None:
    text = PAGE.read_text()
    assert libedgetpu_runs.page(text, libedgetpu_runs.read()) == text, (
        "run python -m benchmarks.libedgetpu_runs"
    )


def test_a_run_with_another_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused, or written."""
    monkeypatch.setattr(libedgetpu_runs, "RESULTS", tmp_path / "runs.json")
    (tmp_path / "runs.json").write_text("[]")
    facts = '{"interpreter": "litert 2", "debian": "trixie", "python": "3.13"}'
    library = Path("a/libedgetpu-aarch64.so.1")
    works = libedgetpu_runs.run_of(library, f"{facts}\nINFO: a\ndone\n")
    fails = libedgetpu_runs.run_of(library, f"{facts}\nError:\n no call\n")
    assert works == Run(library.name, "litert 2", "trixie", "3.13", EQUAL)
    libedgetpu_runs.check(works, update=True)
    libedgetpu_runs.check(works, update=False)
    with pytest.raises(AssertionError, match="update-golden"):
        libedgetpu_runs.check(fails, update=False)
    libedgetpu_runs.check(fails, update=True)
    assert libedgetpu_runs.read() == [fails]
    _, arm, *others = libedgetpu_runs.rows([fails])
    assert arm == ("e35aed1", "arm64", "litert 2", "trixie, 3.13", "no call")
    assert [row[-1] for row in others] == ["not run"] * 2
