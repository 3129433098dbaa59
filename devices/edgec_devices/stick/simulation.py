"""What programs compute whose instructions are understood: they are executed."""

from __future__ import annotations

from collections.abc import Mapping

from edgec_runtime.edgetpu_file.compiled_file import CompiledFile
from edgec_runtime.edgetpu_file.executable import ExecutableType, Package

from edgec.edgetpu_file.programs import instructions_of
from edgec.edgetpu_file.simulator.simulator import Simulator, check_package
from edgec.errors import InputError
from edgec_devices.stick.layouts import Array, input_bytes, output_elements
from edgec_devices.stick.programs import Compute

_QUICK = 200
"""Instructions of a program whose simulation ends while drivers wait, for 6 seconds."""


def is_quick(file: CompiledFile, package: Package) -> bool:
    """Return whether programs are so short that drivers wait for their simulation."""
    return all(
        len([*instructions_of(file.data, executable)]) <= _QUICK
        for executable in package.executables
    )


def simulation(file: CompiledFile, package: Package, where: str) -> Compute | None:
    """Return a function that executes a program; None where it is not understood.

    Args:
        file: the compiled file
        package: of one of its operators
        where: the file's name, for messages
    """
    runs = package.of_type(ExecutableType.EXECUTION_ONLY)
    runs = runs or package.of_type(ExecutableType.STAND_ALONE)
    if runs is None:
        return None
    try:
        check_package(file.data, package, where)
    except InputError:
        return None
    simulators = list[Simulator]()

    def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        # The parameters are cached at the first inference, for a quick start.
        if not simulators:
            simulators.append(Simulator(file, package, where))
        data = {
            layer.name: input_bytes(layer, inputs[layer.name]) for layer in runs.inputs
        }
        results = simulators[0].run(data)
        return {
            layer.name: output_elements(layer, results[layer.name])
            for layer in runs.outputs
        }

    return compute
