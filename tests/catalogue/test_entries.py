"""The rows of the catalogue: complete, consistent, and true of the files."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import edgec
from edgec.catalogue.entries import (
    FOLDER,
    CatalogueWheel,
    Entry,
    WheelEntries,
    catalogue,
)
from edgec.catalogue.listing import listing
from edgec.frontends import read_model
from edgec.frontends.task_file import task_file
from tests.catalogue.networks import fetched

ENTRIES = [entry for one in catalogue() for entry in one.entries]
NETWORKS = [entry for entry in ENTRIES if entry.kind == "network"]
HASH = re.compile("[0-9a-f]{64}")
WANTED = {
    "face-near",
    "face-far",
    "face-mesh",
    "face-mesh-attention",
    "iris",
    "palm",
    "palm-lite",
    "hand",
    "hand-lite",
    "pose-detector",
    "pose",
    "selfie",
    "selfie-wide",
    "text-detector",
    "text-recogniser",
    "astronaut",
}


def by_name(entry: Entry) -> str:
    return entry.name


def test_names_are_unique_and_complete() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(names) == len(set(names))
    assert set(names) == WANTED


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda p: p.stem)
def test_files_have_no_unknown_keys(path: Path) -> None:
    """The reader ignores them: a mistyped one would have no effect."""
    value = tomllib.loads(path.read_text())
    assert set(value) == {f.name for f in fields(WheelEntries)}
    assert set(value["wheel"]) == {f.name for f in fields(CatalogueWheel)}
    for row in value["entries"]:
        assert set(row) <= {f.name for f in fields(Entry)}


@pytest.mark.parametrize("one", catalogue(), ids=lambda one: one.wheel.project)
def test_wheels(one: WheelEntries) -> None:
    wheel = one.wheel
    assert HASH.fullmatch(wheel.sha256)
    assert wheel.bytes > 1_000_000
    assert re.fullmatch(r"[\w.+-]+", wheel.license)
    assert f"{wheel.name.partition('-')[0]}-{wheel.version}" in wheel.license_text
    assert re.fullmatch(r"[a-z-]+", wheel.project)
    assert wheel.platform in ("any", "manylinux_2_28_x86_64")


@pytest.mark.parametrize("entry", ENTRIES, ids=by_name)
def test_entries(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", entry.name)
    assert HASH.fullmatch(entry.sha256)
    assert not entry.path.startswith("/")
    assert ".." not in entry.path
    assert 10 < len(entry.purpose) <= 80
    assert (entry.kind == "network") == bool(entry.task) == (entry.macs > 0)


@pytest.mark.parametrize("entry", NETWORKS, ids=by_name)
def test_tasks_are_task_files(entry: Entry, tmp_path: Path) -> None:
    import json

    file = tmp_path / f"{entry.name}.edgec-task.json"
    file.write_text(json.dumps(dict(entry.task)))
    wanted = task_file(tmp_path / entry.file_name)
    assert wanted.task is not None
    assert str(wanted.preprocess)


def test_the_page_has_every_network() -> None:
    page = (FOLDER.parents[1] / "docs" / "models.md").read_text()
    for entry in ENTRIES:
        assert f"`{entry.name}`" in page, entry.name


def test_the_list_has_them_in_order() -> None:
    assert [one.name for one in listing()] == [f"models:{e.name}" for e in ENTRIES]


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=by_name)
def test_real_files(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each from the package index, or from the cache; the test is skipped, and says so,
    where the index cannot be reached.
    """
    path = fetched(entry.name)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
    if entry.kind == "photo":
        return
    wanted = task_file(path)
    graph = read_model(path, wanted.input_shapes)
    macs = sum(op.spec.macs(op) for op in graph.ops)
    assert entry.macs == pytest.approx(macs, rel=0.01)


@pytest.mark.slow
def test_a_real_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into an empty cache, the whole way; skipped, and said so, without the index."""
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    path = fetched("text-recogniser")
    assert str(path).startswith(str(tmp_path))
    (listed,) = edgec.models(["text-recogniser"])
    assert listed.license == "Apache-2.0"
    kept = sorted(p.name for p in (tmp_path / "cache").rglob("*") if p.is_file())
    assert kept == ["text-recogniser.edgec-task.json", "text-recogniser.onnx"]
