"""What the tests let the driver in C do, in a process that has a stick (plugged.py)."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from edgec_runtime.edgetpu_file.compiled_file import CompiledOperator

from edgec.emit.edgetpu_programs import SegmentProgram, edgetpu_programs
from tests import builds
from tests.conftest import ROOT
from tests.stick.driving import Array, read, shape
from tests.stick.plugs import built_plug

GRAPH = "c" * 64
"""The sha256 of the graph that all tests use."""
_LIBRARIES: list[ctypes.CDLL] = []


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
        (folder / "edgetpu.bin").write_bytes(edgetpu_programs(programs, GRAPH))

    return builds.once(f"edgetpu.bin {operators}", make) / "edgetpu.bin"


def prepare(library: Path, programs: Path, patience_s: float) -> bool:
    """Load the driver and the programs.

    patience_s: longest pause in a first inference
    """
    if not _LIBRARIES:
        loaded = ctypes.CDLL(str(library))
        loaded.driver_fault.restype = ctypes.c_char_p
        _LIBRARIES.append(loaded)
    path, graph = str(programs).encode(), GRAPH.encode()
    return bool(_LIBRARIES[0].driver_prepare(path, graph, int(1000 * patience_s)))


def connect() -> str:
    """Look for a stick; what is wrong, or ""."""
    loaded = _LIBRARIES[0]
    if loaded.driver_connect():
        return ""
    return str(loaded.driver_fault().decode())


def run(
    segment: int, operator: tuple[Path, int], inputs: list[Array], now: bool
) -> list[Array] | None:
    """The outputs of one inference as bytes; None if the twin has to run."""
    file = read(operator[0])
    indexes = file.operators[operator[1]].outputs
    outputs = [np.full(shape(file.tensors[i]), 0xA5, np.uint8) for i in indexes]
    given = [np.ascontiguousarray(one) for one in inputs]
    addresses = [
        (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        for arrays in (given, outputs)
    ]
    if not _LIBRARIES[0].driver_run(segment, *addresses, now):
        return None
    return [one.reshape(-1) for one in outputs]


def counts() -> dict[str, int]:
    found = (ctypes.c_int * 3)()
    _LIBRARIES[0].driver_counts(found)
    return dict(zip(("opened", "lost", "recovered"), found, strict=True))


def fault() -> str:
    return str(_LIBRARIES[0].driver_fault().decode())


def stop() -> None:
    _LIBRARIES[0].driver_stop()
