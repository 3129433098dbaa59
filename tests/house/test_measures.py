"""How readable the code is, room by room (`make house` prints the measures).

The bounds hold for every room: a package, or a folder of one.
"""

from __future__ import annotations

import pytest

from benchmarks.house import Room, class_names, files, kernel_name_tests, rooms

MAX_DENSITY = 8.0
"""Syntax nodes a line, the median over the functions of a room: httpx and onnx-ir have 5."""
MIN_COMMENTS = 25.0
"""Lines with a comment, in 1,000."""
MAX_PRONOUNS = 0.04
"""The share of what, which, that, those and such among the words of docstrings."""
MAX_COMPLEXITY = 15
USUAL_COMPLEXITY = 10
"""Nine functions in ten are no more complex."""
MAX_FILE_LINES = 600

ROOMS = rooms()


@pytest.mark.parametrize("name", sorted(ROOMS))
def test_a_room_is_readable(name: str) -> None:
    room = ROOMS[name]
    assert room.density <= MAX_DENSITY
    assert 1000 * room.comments / room.lines >= MIN_COMMENTS or _is_small(room)
    assert room.pronouns <= MAX_PRONOUNS * room.words
    worst = max((f.complexity, f.place) for f in room.functions)
    assert worst[0] <= MAX_COMPLEXITY, worst


def _is_small(room: Room) -> bool:
    """A few short files have little to explain."""
    return room.lines < 100


def test_nine_functions_in_ten_are_simple() -> None:
    functions = [f for room in ROOMS.values() for f in room.functions]
    simple = [f for f in functions if f.complexity <= USUAL_COMPLEXITY]
    assert len(simple) >= 0.9 * len(functions)


def test_files_are_no_longer_than_one_can_follow() -> None:
    for path in files():
        lines = path.read_text().splitlines()
        assert len(lines) <= MAX_FILE_LINES, path


def test_nothing_is_kept_from_the_formatter() -> None:
    assert sum(room.unformatted for room in ROOMS.values()) == 0


def test_a_class_name_means_one_thing() -> None:
    shared = [name for name, count in class_names().items() if count > 1]
    assert shared == []


def test_kernels_are_compared_as_objects() -> None:
    assert kernel_name_tests() == []
