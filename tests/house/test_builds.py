"""What tests share is built once, whoever wants it, and tried again where that failed;
each worker begins with the dearest tests.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tests import builds
from tests.conftest import cheapness, dealt


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


def test_each_worker_begins_with_the_dearest(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    assert _pieces(items) <= workers
    assert _pieces(dealt(items, 1)) == 1
    assert _pieces(dealt(items, 3)) <= 3
    assert sorted(map(id, dealt(items, 3))) == sorted(map(id, items))


def _pieces(items: Sequence[pytest.Item]) -> int:
    """How often the order begins anew with dearer tests."""
    return 1 + sum(cheapness(a) > cheapness(b) for a, b in pairwise(items))
