from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.resources import tiny_bundle


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model for this machine, with its Edge TPU segment "compiled"."""
    return tiny_bundle(tmp_path_factory.mktemp("bundle"))
