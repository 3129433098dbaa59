"""What a compiled file gives for inputs, on a simulated Edge TPU."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.bundle.arrays import read_arrays, write_npz
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import (
    DATA_TYPES,
    Executable,
    ExecutableType,
    Layer,
    Package,
)
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError
from edgec_runtime.stick.layouts import OutputLayout, dense_shape, write_input
from numpy.typing import NDArray

from edgec.edgetpu_file.simulator.simulator import Simulator
from edgec.errors import InputError
from edgec.inspecting.compiled import DAMAGED, content_of

Array = NDArray[Any]


def simulate(path: Path, inputs: Path, outputs: Path) -> list[str]:
    """Write the outputs of a compiled file for inputs.

    Args:
        path: the compiled file, whose only operator for the Edge TPU is executed
        inputs: an .npz file with an array for each of its inputs, or an .npy file of one
        outputs: the .npz file that is written

    Returns: a line for each output

    Raises:
        InputError: a file cannot be read, an input is missing or of another shape, or an
            instruction is not understood
    """
    file = read_compiled(content_of(path), str(path))
    if len(file.packages) != 1:
        raise InputError(
            f"{len(file.packages)} operators are for the Edge TPU",
            at=str(path),
            hint="give a file with one: only such files are simulated",
        )
    (package,) = file.packages
    simulator = Simulator(file, package, str(path))
    program = _executed(package)
    arrays = read_arrays(inputs)
    try:
        data = {
            layer.name: _input(layer, _array(program, layer, arrays, inputs), inputs)
            for layer in program.inputs
        }
        results = simulator.run(data)
        made = {
            layer.name: _output(layer, results[layer.name]) for layer in program.outputs
        }
    except DamagedError as e:
        raise InputError(f"the file cannot be read: {e}", str(path), DAMAGED) from None
    write_npz(outputs, made)
    return [
        f"{name}: {array.dtype} {' x '.join(map(str, array.shape))}, "
        f"{array.min()} to {array.max()}"
        for name, array in made.items()
    ]


def _executed(package: Package) -> Executable:
    runs = package.of_type(ExecutableType.EXECUTION_ONLY)
    runs = runs or package.of_type(ExecutableType.STAND_ALONE)
    # The simulator has refused a file without one.
    assert runs is not None
    return runs


def _array(
    program: Executable, layer: Layer, arrays: Mapping[str, Array], where: Path
) -> Array:
    """Return the array of an input; that of an .npy file is of the only one."""
    if layer.name in arrays:
        return arrays[layer.name]
    if "" in arrays and len(program.inputs) == 1:
        return arrays[""]
    names = ", ".join(i.name for i in program.inputs)
    raise InputError(
        f"it has no array {layer.name}",
        at=str(where),
        hint=f"give an .npz file with {names}",
    )


def _input(layer: Layer, array: Array, where: Path) -> bytes:
    """Return the bytes of an input in the chip's layout."""
    kind = np.dtype(DATA_TYPES[layer.data_type])
    count = layer.executions * math.prod(dense_shape(layer))
    if array.dtype != kind or array.size != count:
        raise InputError(
            f"{layer.name} is {array.dtype} of {array.size} elements",
            at=str(where),
            hint=f"give {kind} of {count} elements",
        )
    memory = np.zeros(layer.size * layer.executions, np.uint8)
    write_input(layer, array, memory)
    return memory.tobytes()


def _output(layer: Layer, data: bytes) -> Array:
    """Return an output in the order of its elements."""
    shape = dense_shape(layer)
    shape = shape if layer.executions == 1 else (layer.executions, *shape)
    made = np.zeros(shape, DATA_TYPES[layer.data_type])
    OutputLayout(layer).read(np.frombuffer(data, np.uint8).copy(), made)
    return made
