"""Bounds of the code's measures (`make house` prints all of them)."""

from __future__ import annotations

from benchmarks.house import files, rooms

MAX_COMPLEXITY = 15
MAX_PARAMETERS = 6
MAX_FILE_LINES = 600


def test_functions_have_few_branches_and_parameters() -> None:
    functions = [function for room in rooms().values() for function in room]
    branches = max((f.complexity, f.place) for f in functions)
    assert branches[0] <= MAX_COMPLEXITY, branches
    parameters = max((f.parameters, f.place) for f in functions)
    assert parameters[0] <= MAX_PARAMETERS, parameters


def test_files_are_no_longer_than_one_can_follow() -> None:
    for path in files():
        lines = path.read_text().splitlines()
        assert len(lines) <= MAX_FILE_LINES, path
