from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.bundle.cache import cache_dir

from tests.runtime import tiny_model


@pytest.fixture(autouse=True)
def _private_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = cache_dir("machine-images")
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path_factory.mktemp("cache")))
    # A machine that is started again would download its image again.
    (cache_dir() / images.name).symlink_to(images)


@pytest.fixture(scope="session")
def arm_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with programs for the Pi, 64 and 32 bits, and a library for this
    machine.
    """
    for emulator in ("qemu-aarch64", "qemu-arm"):
        if not shutil.which(emulator):
            pytest.skip(f"{emulator} is not installed: sudo apt-get install qemu-user")
    library = tiny_model.build_library(tmp_path_factory.mktemp("lib"))
    programs = {
        t: tiny_model.build_program(tmp_path_factory.mktemp(t), t)
        for t in tiny_model.ARM_TARGETS
    }
    path = tmp_path_factory.mktemp("bundle") / "tiny.edgec"
    write_bundle(path, *tiny_model.parts(library, programs))
    return path


@pytest.fixture
def bundle(arm_bundle: Path) -> Bundle:
    return Bundle.open(arm_bundle)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's program for this machine."""
    return tiny_model.build_program(tmp_path_factory.mktemp("program"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the device end of this machine keeps what is flashed."""
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"
