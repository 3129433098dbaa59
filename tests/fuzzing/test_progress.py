"""A run that was ended goes on where it was, and what failed runs first."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fuzzing.progress import Progress


def test_what_was_interrupted_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "7.json"
    kept = Progress.at(path)
    for case in kept.cases(10):
        if case == 6:  # the machine goes down: what was saved last counts
            kept.save()
            break
        kept.ended(
            case, "time" if case in (2, 4) else "exit 0", case in (2, 4), case / 2
        )
    again = Progress.at(path)
    assert (again.next, again.failed, again.ends) == (
        6,
        {2: "time", 4: "time"},
        {"exit 0": 4, "time": 2},
    )
    ran = []
    for case in again.cases(10):
        ran.append(case)
        again.ended(case, "time" if case == 4 else "exit 2", case == 4, 1.0)
    assert ran == [2, 4, 6, 7, 8, 9]
    done = Progress.at(path)
    assert (done.next, done.failed, done.slowest) == (10, {4: "time"}, 2.5)
    assert +done.ends == {"exit 0": 4, "exit 2": 5, "time": 1}
    assert list(done.cases(10)) == [4]
