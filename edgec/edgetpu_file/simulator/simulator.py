"""Runs a compiled file on the simulated chip."""

from __future__ import annotations

from collections.abc import Mapping

from edgec_runtime.edgetpu_file.compiled_file import CompiledFile
from edgec_runtime.edgetpu_file.executable import (
    AddressOf,
    Executable,
    ExecutableType,
    Package,
)

from edgec.edgetpu_file.simulator.chip import Chip
from edgec.edgetpu_file.simulator.host import Host, buffers_of, key_of
from edgec.edgetpu_file.simulator.scalar_core import ScalarCore
from edgec.edgetpu_file.stream import Instruction, split


class Simulator:
    """The programs of one operator of a compiled file on a chip of their own."""

    def __init__(self, file: CompiledFile, package: Package) -> None:
        """Run the program that caches the parameters, where there is one."""
        self._data = file.data
        self._package = package
        self.chip = Chip()
        caching = package.of_type(ExecutableType.PARAMETER_CACHING)
        if caching is not None:
            self._run(caching, {})

    def run(self, inputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the bytes of each output layer, by name, for those of the inputs."""
        package = self._package
        executable = package.of_type(ExecutableType.EXECUTION_ONLY)
        executable = executable or package.of_type(ExecutableType.STAND_ALONE)
        assert executable is not None
        return self._run(executable, inputs)

    def _run(
        self, executable: Executable, inputs: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        numbers = buffers_of(executable)
        sizes = {
            (AddressOf.PARAMETER, ""): executable.parameters.size,
            (AddressOf.SCRATCH, ""): executable.scratch,
        }
        outputs = {(AddressOf.OUTPUT, o.name): o for o in executable.outputs}
        buffers = dict[int, bytearray]()
        for key, number in numbers.items():
            if key[0] is AddressOf.INPUT:
                buffers[number] = bytearray(inputs[key[1]])
            elif key in outputs:
                layer = outputs[key]
                buffers[number] = bytearray(layer.size * layer.executions)
            elif key[0] is AddressOf.PARAMETER:
                buffers[number] = bytearray(executable.parameters.of(self._data))
            else:
                buffers[number] = bytearray(sizes[key])
        core = ScalarCore(self.chip, Host(buffers))
        core.run(self._instructions(executable, numbers))
        return {key[1]: bytes(buffers[numbers[key]]) for key in outputs}

    def _instructions(
        self, executable: Executable, numbers: Mapping[tuple[AddressOf, str], int]
    ) -> list[Instruction]:
        """Return the instructions, with the addresses of the buffers."""
        found = list[Instruction]()
        for chunk in executable.instructions:
            bits = int.from_bytes(chunk.span.of(self._data), "little")
            for field in chunk.fields:
                bits &= ~(((1 << 32) - 1) << field.bit)
                if field.address.upper:
                    bits |= numbers[key_of(field.address)] << field.bit
            found += split(bits.to_bytes(chunk.span.size, "little"))
        return found
