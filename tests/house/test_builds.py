"""What tests share is built once, whoever wants it, and tried again where that failed;
the dearest tests come first.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests import builds
from tests.conftest import cheapness


def test_many_that_want_one_thing_build_it_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.05)
        (folder / "x").write_text("done")

    found: list[str] = []
    key = str(tmp_path)
    wanting = [
        threading.Thread(
            target=lambda: found.append((builds.once(key, make) / "x").read_text())
        )
        for _ in "1234"
    ]
    for one in wanting:
        one.start()
    for one in wanting:
        one.join()
    assert found == ["done"] * 4
    assert len(made) == 1


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        builds.once(str(tmp_path), fail)
    builds.once(str(tmp_path), lambda folder: None)


def test_the_dearest_come_first(request: pytest.FixtureRequest) -> None:
    costs = [cheapness(item) for item in request.session.items]
    assert costs == sorted(costs)
