"""A file is there as a whole or not at all, and nothing that stands beside it is
written to.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from edgec_runtime import InputError
from edgec_runtime.bundle.atomic_write import atomic_write

from edgec.report.files import write_whole


def test_links_that_somebody_put_there_before(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (
        ".page.html.part",
        ".page.part.html",
        ".page.html",
        "page.html.part",
        "page.html",
    ):
        (tmp_path / name).symlink_to(victim)
    write_whole(tmp_path / "page.html", "text")
    assert victim.read_text() == "mine"
    assert (tmp_path / "page.html").read_text() == "text"
    assert not (tmp_path / "page.html").is_symlink()


def test_what_is_no_file_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """edgec … --json /dev/null, as root."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "null.html").symlink_to("/dev/null")
    (tmp_path / "full.html").symlink_to("/dev/full")
    os.mkfifo(tmp_path / "pipe.html")
    there = sorted(tmp_path.iterdir())
    write_whole(tmp_path / "null.html", "text")
    assert stat.S_ISCHR((tmp_path / "null.html").stat().st_mode)
    for name in ("full.html", "pipe.html"):  # nobody reads it
        with pytest.raises(InputError, match=name):
            write_whole(tmp_path / name, "text")
    reader = os.open(tmp_path / "pipe.html", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe.html", "text")
    assert os.read(reader, 99) == b"text"
    os.close(reader)
    assert sorted(tmp_path.iterdir()) == there


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    """/dev/full is such a disk; who writes to an open file knows no name."""

    def full() -> None:
        path = tmp_path / "m.json"
        with atomic_write(path), open("/dev/full", "wb", buffering=0) as disk:
            disk.write(b"1")

    with pytest.raises(OSError, match="No space left") as e:
        full()
    assert e.value.filename == str(tmp_path / "m.json")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text("before")

    def half() -> None:
        with atomic_write(path) as aside:
            aside.write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]
    assert path.read_text() == "before"
