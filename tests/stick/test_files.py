"""The files that a stick beside QEMU is given."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from edgec_devices.machine.machine import stick_error
from edgec_devices.stick.sources import read_files
from edgec_runtime.edgetpu_file.compiled_file import read_compiled

from tests.cli.verbs import edgec
from tests.stick.bundles import EDGETPU, compiled_bundle
from tests.stick.test_driver import entry

FILE = entry("dense_256")


@pytest.mark.cc
@pytest.mark.shared
@pytest.mark.parametrize("kind", ["bundle", "file", "folder"])
def test_each_kind_has_the_program(kind: str) -> None:
    path = {"file": EDGETPU / FILE.compiled, "folder": EDGETPU}.get(kind)
    book = read_files([path or compiled_bundle(FILE, "cc")])
    file = read_compiled((EDGETPU / FILE.compiled).read_bytes(), FILE.compiled)
    for package in file.packages:
        for executable in package.executables:
            (chunk, *_) = executable.instructions
            assert book.find(chunk.span.of(file.data))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("wrong.edgec", "this is not a bundle"),
        ("wrong.tflite", "the file is not a .tflite file"),
        ("folder", "the folder has no compiled/index.json"),
    ],
)
def test_a_wrong_file_is_named(name: str, why: str, tmp_path: Path) -> None:
    """By the program, and so by the error of `edgec devices boot`."""
    (tmp_path / "folder").mkdir()
    wrong = tmp_path / name
    if name != "folder":
        wrong.write_bytes(b"no bundle")
    words = ("-m", "edgec_devices.stick", tmp_path / "socket", "mark", wrong)
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert not done.stderr
    error = stick_error(done.stdout)
    assert error.what.startswith(f"the stick does not start: {why}")
    assert error.at == str(wrong)


def test_it_ends_with_qemu(tmp_path: Path) -> None:
    """It greets whoever listens, and ends when the connection does."""

    async def work() -> int | None:
        greeted = asyncio.Event()

        async def listen(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            await reader.readexactly(12 + 68)
            greeted.set()
            writer.close()

        await asyncio.start_unix_server(listen, tmp_path / "socket")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "edgec_devices.stick"),
            *(tmp_path / "socket", "mark"),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(process.communicate(), 60)
        assert greeted.is_set()
        assert said == b"ready\n"
        return process.returncode

    assert asyncio.run(work()) == 0


@pytest.mark.parametrize("url", ["emulated:pi4", "emulated:pi4+camera"])
def test_a_board_without_a_stick_gets_none(url: str, tmp_path: Path) -> None:
    done = edgec("devices", "boot", url, "--whole", "--stick", tmp_path, cwd=tmp_path)
    assert done.code
    assert "use emulated:pi4+coral" in done.err
