from __future__ import annotations

from pathlib import Path

import pytest
from edgec_runtime import write_bundle

from tests.runtime import tiny_model
from tests.runtime.tiny_tflite import relu_tflite


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
def bundle_path(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model for this machine, with its Edge TPU segment "compiled"."""
    manifest, files = tiny_model.parts(library)
    manifest["segments"][1]["tflite"] = "segments/relu.tflite"
    manifest["segments"][1]["edgetpu"] = "segments/relu_edgetpu.tflite"
    files["segments/relu.tflite"] = files["segments/relu_edgetpu.tflite"] = relu_tflite()
    path = tmp_path_factory.mktemp("bundle") / "tiny.edgec"
    write_bundle(path, manifest, files)
    return path
