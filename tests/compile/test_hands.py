"""How many candidates a compile tries at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgec.compiler import executor as module
from edgec.compiler.executor import hands
from edgec.errors import DeviceError
from edgec.quantize.recipe import Recipe
from tests.quantize.nets import NETS

BEST = Recipe.load("best")
FAST = Recipe.load("fast")


@pytest.mark.parametrize(
    ("workers", "cores", "free", "want"),
    [
        (None, 4, 64 << 30, 4),
        (None, 4, 600 << 20, 2),
        (None, 4, 1 << 20, None),  # too little for two: one after the other
        (None, 1, 64 << 30, None),
        ("3", 1, 1 << 20, 3),
        ("1", 4, 64 << 30, None),
    ],
)
def test_as_many_as_cores_and_memory_allow_or_as_asked(
    workers: str | None,
    cores: int,
    free: int,
    want: int | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_available", lambda: free)
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda pid: set(range(cores)), raising=False
    )
    with hands(BEST, NETS["chain"](), workers, None) as ours:
        found = ours.executor
        assert (
            found._max_workers if isinstance(found, ThreadPoolExecutor) else None
        ) == want
    with hands(FAST, NETS["chain"](), workers, None) as ours:
        assert ours.executor is None


def test_the_memory_that_there_is() -> None:
    assert module._available() > 1 << 20


def test_an_executor_that_was_given_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path))
    with (
        ThreadPoolExecutor(1) as pool,
        hands(BEST, NETS["chain"](), None, pool) as ours,
    ):
        assert ours.executor is pool


def test_no_cluster_is_asked_where_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path))
    pytest.importorskip("distributed", reason="no Dask: pip install 'edgec[dask]'")
    monkeypatch.setattr(module, "TIMEOUT_S", 0.5)
    with hands(FAST, NETS["chain"](), "dask://127.0.0.1:9", None) as ours:
        assert ours.executor is None
    with (
        pytest.raises(DeviceError, match="no Dask scheduler answers"),
        hands(BEST, NETS["chain"](), "dask://127.0.0.1:9", None),
    ):
        pass
