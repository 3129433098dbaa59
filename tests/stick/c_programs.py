"""Builds the driver in C as a library, and the files that it follows."""

from __future__ import annotations

from pathlib import Path

from edgec_runtime.edgetpu_file.compiled_file import CompiledOperator

from edgec.emit.edgetpu_programs import SegmentProgram, edgetpu_programs
from tests import builds
from tests.conftest import ROOT
from tests.stick.driving import read
from tests.stick.driving_c import GRAPH
from tests.stick.plugs import built_plug


def built_driver() -> Path:
    """The driver as a library."""
    csrc = ROOT / "runtime/edgec_runtime/csrc"
    flags = ("-std=gnu11", "-Wno-unused-function", "-fno-sanitize=all", f"-I{csrc}")
    return built_plug("c_driver.c", "c_driver.so", *flags)


def operator_program(path: Path, number: int, segment: int) -> SegmentProgram:
    """An operator of a compiled file as a segment."""
    file = read(path)
    operator: CompiledOperator = file.operators[number]
    assert operator.package is not None
    return SegmentProgram(
        segment,
        operator.package,
        file.data,
        [file.tensors[i].name for i in operator.inputs],
        [file.tensors[i].name for i in operator.outputs],
    )


def written_programs(operators: list[tuple[Path, int]]) -> Path:
    """A file like edgetpu.bin in which each operator is a segment, in order."""

    def make(folder: Path) -> None:
        programs = [
            operator_program(path, number, segment)
            for segment, (path, number) in enumerate(operators)
        ]
        (folder / "edgetpu.bin").write_bytes(edgetpu_programs(programs, GRAPH, 0))

    return builds.once(f"edgetpu.bin {operators}", make) / "edgetpu.bin"
