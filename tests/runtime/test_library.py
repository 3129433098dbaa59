"""What a manifest says of a library that was made for something else never reaches its
code.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edgec_runtime import Bundle, BundleError, Session, write_bundle
from edgec_runtime.bundle.extraction import program_command
from edgec_runtime.device_end.bundles import WEIGHTS_FILE, machine_target
from edgec_runtime.device_end.elf import fault

from tests.runtime import tiny_model

pytestmark = pytest.mark.cc

Manifest = dict[str, Any]
LIES: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "no arena": (
        lambda m: m["segments"][0].update(arena=0),
        "shift needs 64 bytes of scratch, the manifest says 0",
    ),
    "small arena": (
        lambda m: m["segments"][0].update(arena=63),
        "shift needs 64 bytes",
    ),
    "huge arena": (
        lambda m: m["segments"][0].update(arena=1 << 40),
        'impossible "arena"',
    ),
    "larger input": (
        lambda m: m["tensors"]["image"].update(shape=[1, 400, 4, 3]),
        "its tensors are",
    ),
    "smaller output": (
        lambda m: m["tensors"]["out"].update(shape=[1]),
        "its tensors are",
    ),
    "same bytes, other shape": (
        lambda m: m["tensors"]["q"].update(shape=[48], quant=None),
        "its tensors are",
    ),
    "other type": (
        lambda m: m["tensors"]["image"].update(dtype="|i1"),
        "its tensors are",
    ),
    "outputs the other way": (
        lambda m: m.update(outputs=["sums", "out"]),
        "its outputs are",
    ),
    "an output less": (lambda m: m.update(outputs=["out"]), "its outputs are"),
    "ports the other way": (
        lambda m: m["segments"][2].update(outputs=["sums", "out"]),
        "mix has other inputs",
    ),
    "another graph": (lambda m: m.update(graph="0" * 64), "its graph are"),
    "no graph": (lambda m: m.pop("graph"), "its graph are"),
    "more threads": (
        lambda m: m.update(threads=4),
        "for 1 threads, the manifest says 4",
    ),
    "another segment": (
        lambda m: m["segments"][1].update(name="other"),
        "other segments",
    ),
    "no weights": (lambda m: m.update(weights={}), "its weights are"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies(tmp_path: Path, library: Path, lie: str) -> None:
    manifest, files = tiny_model.parts(library)
    change, what = LIES[lie]
    change(manifest)

    def run() -> None:
        write_bundle(tmp_path / "m", manifest, files)
        Session(tmp_path / "m", tpu="c")

    with pytest.raises(BundleError, match=what):
        run()


def test_weights_of_another_model(tmp_path: Path, library: Path) -> None:
    manifest, files = tiny_model.parts(library)
    write_bundle(
        tmp_path / "m",
        manifest,
        {**files, WEIGHTS_FILE: bytes(len(tiny_model.WEIGHTS))},
    )
    with pytest.raises(BundleError, match="its weights are"):
        Session(tmp_path / "m", tpu="c")


def test_a_library_that_says_nothing(tmp_path: Path, library: Path) -> None:
    manifest, files = tiny_model.parts(library)
    name = manifest["libraries"][machine_target()]
    for old, new in (
        (b"edgec_made_for", b"edgec_made_fox"),
        (b'{"inputs"', b'["inputs"'),
    ):
        assert old in files[name]
        write_bundle(
            tmp_path / "m", manifest, {**files, name: files[name].replace(old, new)}
        )
        with pytest.raises(BundleError, match="made for something else"):
            Session(tmp_path / "m", tpu="c")


def test_every_length_of_a_library_that_was_cut_off(
    tmp_path: Path, library: Path
) -> None:
    """Each is refused by its headers; a loader would map what is not there."""
    data = library.read_bytes()
    loads = [p for p in headers(data) if p[0] == 1]
    needed = max(offset + stored for _, offset, stored in loads)
    for size in [*range(0, 70), *range(70, needed, max(1, needed // 60)), needed - 1]:
        (tmp_path / "l").write_bytes(data[:size])
        assert fault(str(tmp_path / "l"), machine_target(), library=True), size
    manifest, files = tiny_model.parts(library)
    name = manifest["libraries"][machine_target()]
    write_bundle(tmp_path / "m", manifest, {**files, name: data[: needed // 2]})
    with pytest.raises(BundleError, match="is cut off"):
        Session(tmp_path / "m", tpu="c")
    assert fault(str(library), machine_target(), library=True) is None


def headers(data: bytes) -> list[tuple[int, int, int]]:
    """Kind, offset and stored bytes of each program header of 64-bit code."""
    (table,), (number,) = (
        struct.unpack_from("<Q", data, 32),
        struct.unpack_from("<H", data, 56),
    )
    rows = [
        struct.unpack_from("<IIQQQQQQ", data, table + 56 * i) for i in range(number)
    ]
    return [(r[0], r[2], r[5]) for r in rows]


@pytest.mark.parametrize("at", range(64))
def test_headers_that_lie(tmp_path: Path, library: Path, at: int) -> None:
    """Whatever one byte of the first header is, it is judged, not believed: no
    exception.
    """
    data = bytearray(library.read_bytes())
    for value in (0, 1, 0x7F, 0xFF):
        data[at] = value
        (tmp_path / "l").write_bytes(data)
        for target in ("linux-x86_64", "linux-armv7", "linux-aarch64"):
            fault(str(tmp_path / "l"), target, library=True)


def test_a_program_and_another_programs_manifest(tmp_path: Path, program: Path) -> None:
    manifest, files = tiny_model.parts(None, {machine_target(): program})
    write_bundle(tmp_path / "good", manifest, files)
    manifest["graph"] = "0" * 64
    write_bundle(tmp_path / "bad", manifest, files)
    with Bundle.open(tmp_path / "good") as good, Bundle.open(tmp_path / "bad") as bad:
        assert (
            subprocess.run(
                [*program_command(good, machine_target()), "--json"],
                capture_output=True,
            ).returncode
            == 0
        )
        done = subprocess.run(
            [*program_command(bad, machine_target()), "--json"],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 2
    assert re.search(r"made of another graph: 7{64}", done.stderr)
