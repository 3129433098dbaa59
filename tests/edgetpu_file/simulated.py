"""Compiled files on the simulated chip, beside the networks that they were made of."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
from edgec_partitioner.rounding import as_chip
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, read_compiled
from edgec_runtime.edgetpu_file.executable import Executable, ExecutableType
from edgec_runtime.stick.layouts import OutputLayout, write_input
from numpy.typing import NDArray

from edgec.edgetpu_file.programs import instructions_of, tiles_of
from edgec.edgetpu_file.simulator.simulator import Simulator
from edgec.errors import InputError
from edgec.frontends.tflite import read_tflite
from edgec.ir import Graph
from tests.conftest import SHARED

Array = NDArray[Any]
FOLDER = SHARED / "edgetpu"


@cache
def compiled(name: str) -> CompiledFile:
    """Return the compiled file of a network."""
    return read_compiled((FOLDER / _entry(name)["compiled"]).read_bytes(), name)


@cache
def network(name: str) -> Graph:
    """Return the network that a file was made of, with the chip's arithmetic."""
    return as_chip(read_tflite(FOLDER / _entry(name)["source"], {}))


def _entry(name: str) -> dict[str, str]:
    index = json.loads((FOLDER / "compiled/index.json").read_text())
    entry: dict[str, str] = next(e for e in index if e["name"] == name)
    return entry


class SimulatedNetwork:
    """A network that is one program of the chip."""

    def __init__(self, file: CompiledFile, where: str) -> None:
        """Cache its parameters."""
        (package,) = file.packages
        runs = package.of_type(ExecutableType.EXECUTION_ONLY)
        assert runs is not None
        self.executable: Executable = runs
        self._data = file.data
        self._simulator = Simulator(file, package, where)

    def run(self, *inputs: Array) -> list[Array]:
        """Return the outputs, each as bytes in the order of its elements."""
        data = dict[str, bytes]()
        for layer, values in zip(self.executable.inputs, inputs, strict=True):
            memory = np.zeros(layer.size * layer.executions, np.uint8)
            write_input(layer, values, memory)
            data[layer.name] = memory.tobytes()
        results = self._simulator.run(data)
        outputs = list[Array]()
        for layer in self.executable.outputs:
            out = np.zeros(layer.y * layer.x * layer.z * layer.executions, np.uint8)
            memory = np.frombuffer(results[layer.name], np.uint8).copy()
            OutputLayout(layer).read(memory, out)
            outputs.append(out)
        return outputs

    def softmax(self, elements: int) -> Array:
        """Return the outputs of the SOFTMAX of the last inference [elements].

        They are where its last step has written them, a part of each tile.
        """
        last = [
            i
            for i in instructions_of(self._data, self.executable)
            if i.name == "compute" and i.value("?1843") == 0x1E and not i.value("curve")
        ][-1]
        tiles = [*tiles_of(last.value("tiles"))]
        at, size = last.value("out"), elements // len(tiles)
        return self._simulator.chip.narrow[tiles, at : at + size].reshape(-1)


def refusal_of(data: bytes, where: str) -> str:
    """Return why a file is not simulated; nothing if it is."""
    file = read_compiled(data, where)
    try:
        for package in file.packages:
            Simulator(file, package, where)
    except InputError as e:
        return str(e)
    return ""
