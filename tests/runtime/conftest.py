from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime import tiny_model
from tests.runtime.resources import tiny_bundle


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.build_library(tmp_path_factory.mktemp("lib"))


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.build_program(tmp_path_factory.mktemp("bin"))


@pytest.fixture(autouse=True)
def _private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model for this machine, with its Edge TPU segment "compiled"."""
    return tiny_bundle(tmp_path_factory.mktemp("bundle"))
