"""Runs the programs of a compiled file on a simulated chip."""

from __future__ import annotations

from collections.abc import Mapping

from edgec_runtime.edgetpu_file.compiled_file import CompiledFile
from edgec_runtime.edgetpu_file.executable import (
    AddressOf,
    Executable,
    ExecutableType,
    Package,
)

from edgec.edgetpu_file.programs import instructions_of
from edgec.edgetpu_file.simulator.chip import Chip, NotUnderstoodError, StuckError
from edgec.edgetpu_file.simulator.host import Host, buffers_of, key_of
from edgec.edgetpu_file.simulator.scalar_core import ScalarCore
from edgec.edgetpu_file.simulator.understood import check
from edgec.edgetpu_file.stream import Instruction, split
from edgec.errors import InputError

_HINT = (
    "only programs of instructions that are understood are simulated "
    "(docs/edgetpu-chip.md); run this one on a stick"
)


def check_package(data: bytes, package: Package, where: str) -> None:
    """Check that all instructions of a package are understood.

    Args:
        data: the whole file
        package: of one operator
        where: the file's path, for messages

    Raises:
        InputError: one is not; the message names it
    """
    for executable in package.executables:
        for instruction in instructions_of(data, executable):
            try:
                check(instruction)
            except NotUnderstoodError as e:
                raise _refusal(executable, e, where) from None


class Simulator:
    """A chip with the parameters of one operator of a compiled file.

    Attributes:
        chip: the chip, whose memories have what the last program left there
    """

    def __init__(self, file: CompiledFile, package: Package, where: str) -> None:
        """Run the program that caches the parameters, where there is one.

        Raises:
            InputError: an instruction is not understood
        """
        check_package(file.data, package, where)
        self._data = file.data
        self._where = where
        runs = package.of_type(ExecutableType.EXECUTION_ONLY)
        runs = runs or package.of_type(ExecutableType.STAND_ALONE)
        if runs is None:
            raise InputError(
                "the file has no program that computes",
                at=where,
                hint="compile the network again",
            )
        self._executable = runs
        self.chip = Chip()
        caching = package.of_type(ExecutableType.PARAMETER_CACHING)
        if caching is not None:
            self._run(caching, {})

    def run(self, inputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Run one inference.

        Args:
            inputs: the bytes of each input layer by name, as the driver sends them:
                executions one after the other, each with its padding

        Returns: the bytes of each output layer by name, in the layout of the layer

        Raises:
            InputError: a value in an instruction is not understood
        """
        return self._run(self._executable, inputs)

    def _run(
        self, executable: Executable, inputs: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        numbers = buffers_of(executable)
        contents = {
            (AddressOf.PARAMETER, ""): executable.parameters.of(self._data),
            (AddressOf.SCRATCH, ""): bytes(executable.scratch),
        }
        contents |= {(AddressOf.INPUT, name): data for name, data in inputs.items()}
        outputs = {
            (AddressOf.OUTPUT, layer.name): bytes(layer.size * layer.executions)
            for layer in executable.outputs
        }
        contents |= outputs
        unknown = [
            of.name.lower() for of, name in numbers if (of, name) not in contents
        ]
        if unknown or not outputs.keys() <= numbers.keys():
            raise InputError(
                f"the program has no buffer for {', '.join(unknown) or 'an output'}",
                at=self._where,
                hint="the file is damaged: copy or compile it again",
            )
        host = Host({n: bytearray(contents[key]) for key, n in numbers.items()})
        core = ScalarCore(self.chip, host)
        try:
            core.run(self._instructions(executable, numbers))
        except (NotUnderstoodError, StuckError) as e:
            raise _refusal(executable, e, self._where) from None
        return {key[1]: bytes(host.buffers[numbers[key]]) for key in outputs}

    def _instructions(
        self, executable: Executable, numbers: Mapping[tuple[AddressOf, str], int]
    ) -> list[Instruction]:
        """Return the instructions with the addresses of the buffers, as of a driver."""
        found = list[Instruction]()
        for chunk in executable.instructions:
            bits = int.from_bytes(chunk.span.of(self._data), "little")
            for field in chunk.fields:
                bits &= ~(((1 << 32) - 1) << field.bit)
                if field.address.upper:
                    bits |= numbers[key_of(field.address)] << field.bit
            found += split(bits.to_bytes(chunk.span.size, "little"))
        return found


def _refusal(executable: Executable, error: Exception, where: str) -> InputError:
    kind = executable.type.name.lower().replace("_", " ")
    return InputError(f"the {kind} program: {error}", at=where, hint=_HINT)
