"""Bundles whose only segment is a file that Google's compiler wrote."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from edgec_devices.stick.sources import IndexEntry
from edgec_runtime import Bundle, write_bundle
from edgec_runtime.bundle.archive import EDGETPU_FILE, MANIFEST
from edgec_runtime.edgetpu_file.compiled_file import read_compiled

import edgec
from edgec.emit.edgetpu_programs import SegmentProgram, edgetpu_programs
from tests import builds
from tests.conftest import SHARED

EDGETPU = SHARED / "edgetpu"


def compiled_bundle(
    entry: IndexEntry, cc: str | None = None, board: str = "host"
) -> Path:
    """The file as Edge TPU segment, with its source in C as twin.

    cc: a compiler of this machine, whose programs are linked dynamically
    """
    source = entry.source
    assert source is not None

    def make(folder: Path) -> None:
        edgec.compile(EDGETPU / source, board, folder / "twin.edgec", cc=cc)
        names = ("segments/seg0.tflite", "segments/seg0_edgetpu.tflite")
        with zipfile.ZipFile(folder / "twin.edgec") as archive:
            manifest = json.loads(archive.read(MANIFEST))
        with Bundle.open(folder / "twin.edgec") as twin:
            files = {name: twin.read(name) for name in manifest.pop("files")}
        files[names[0]] = (EDGETPU / source).read_bytes()
        files[names[1]] = (EDGETPU / entry.compiled).read_bytes()
        (segment,) = manifest["segments"]
        segment |= {"place": "edgetpu", "tflite": names[0], "edgetpu": names[1]}
        read = read_compiled(files[names[1]], entry.compiled)
        (operator,) = read.operators
        assert operator.package is not None
        program = SegmentProgram(
            0,
            operator.package,
            read.data,
            [read.tensors[i].name for i in operator.inputs],
            [read.tensors[i].name for i in operator.outputs],
        )
        files[EDGETPU_FILE] = edgetpu_programs([program], manifest["graph"], 0)
        write_bundle(folder / "model.edgec", manifest, files)

    return (
        builds.once(f"compiled bundle {entry.compiled} {cc} {board}", make)
        / "model.edgec"
    )
