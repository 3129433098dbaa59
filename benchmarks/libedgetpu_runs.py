"""Which libedgetpu works with which interpreter: the runs of the tests on the emulated
stick, in benchmarks/libedgetpu.json, and the table of docs/stick.md that is made of them.

The tests write a run with `pytest --update-golden` (tests/stick/test_libedgetpu.py for this
machine, tests/pi/test_stick.py for a whole emulated Pi), and compare with it without.

    python -m benchmarks.libedgetpu_runs
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.data_folder import ROOT
from benchmarks.tables import markdown, with_tables, write_json

RESULTS = Path(__file__).with_name("libedgetpu.json")
PAGE = ROOT / "docs" / "stick.md"
TABLE = "libedgetpu"
EQUAL = "outputs equal"
LIBRARIES = {
    "libedgetpu-x86_64.so.1": ("e35aed1", "x86-64"),
    "libedgetpu-aarch64.so.1": ("e35aed1", "arm64"),
    "libedgetpu-x86_64-old-abi.so.1": ("e35aed1, for TensorFlow 2.9", "x86-64"),
    "libedgetpu-aarch64-old-abi.so.1": ("e35aed1, for TensorFlow 2.9", "arm64"),
}
"""The version and the machine by the name of the library's file."""


@dataclass(frozen=True, order=True)
class Run:
    """A libedgetpu with an interpreter on an emulated stick.

    Attributes:
        library: the name of its file
        interpreter: the project and its version
        debian: the name of the release
        python: major and minor version
        outcome: EQUAL, or the last line of the error
    """

    library: str
    interpreter: str
    debian: str
    python: str
    outcome: str

    @property
    def pair(self) -> tuple[str, ...]:
        """All but the outcome."""
        return self.library, self.interpreter, self.debian, self.python


def run_of(library: Path, text: str) -> Run:
    """Return the run that tests/stick/run_files.py tells of.

    Args:
        library: the library's file
        text: what the program wrote: a line of JSON about its Python, and at the end
            "done" or an error
    """
    lines = text.strip().splitlines()
    facts = json.loads(lines[0])
    outcome = EQUAL if lines[-1] == "done" else lines[-1].strip()
    return Run(
        library.name, facts["interpreter"], facts["debian"], facts["python"], outcome
    )


def read() -> list[Run]:
    """Return the runs of the file."""
    return [Run(**row) for row in json.loads(RESULTS.read_text())]


def check(run: Run, update: bool) -> None:
    """Raise AssertionError if a run of the file had another outcome; write it instead.

    A run of other versions than those of the file is not compared.

    Args:
        run: the run, whose outputs were compared by the caller
        update: whether to write
    """
    others = {r.pair: r for r in read()}
    before = others.get(run.pair, run)
    if update:
        others[run.pair] = run
        write_json(RESULTS, sorted(others.values()))
    else:
        assert before == run, "if meant, run pytest --update-golden"


def rows(runs: list[Run]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table; a library without a run has one that says so."""
    for library, (version, machine) in LIBRARIES.items():
        its = [r for r in sorted(runs) if r.library == library]
        for r in its:
            where = f"{r.debian}, {r.python}"
            yield version, machine, r.interpreter, where, r.outcome
        if not its:
            yield version, machine, "", "", "not run"


def page(text: str, runs: list[Run]) -> str:
    """Return the text of docs/stick.md with its table made anew."""
    heads = ("libedgetpu of", "for", "interpreter", "Debian, Python", "outcome")
    lines = markdown(heads, rows(runs), len(heads))
    return with_tables(text, {TABLE: "".join(f"{line}\n" for line in lines)})


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(), read()))
