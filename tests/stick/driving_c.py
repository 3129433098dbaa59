"""What the tests let the driver in C do, in a process that has a stick (plugged.py)."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from tests.stick.driving import Array, read, shape

GRAPH = "c" * 64
"""The sha256 of the graph that all tests use."""
_LIBRARIES: list[ctypes.CDLL] = []


def prepare(
    library: Path, programs: Path, patience_s: float, least_s: float = 0.25
) -> bool:
    """Load the driver and the programs.

    patience_s: longest pause in a first inference; least_s: in later ones
    """
    if not _LIBRARIES:
        loaded = ctypes.CDLL(str(library))
        loaded.driver_fault.restype = ctypes.c_char_p
        _LIBRARIES.append(loaded)
    path, graph = str(programs).encode(), GRAPH.encode()
    limits = int(1000 * patience_s), int(1000 * least_s)
    return bool(_LIBRARIES[0].driver_prepare(path, graph, *limits))


def library() -> ctypes.CDLL:
    """The driver that `prepare` has loaded."""
    return _LIBRARIES[0]


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
