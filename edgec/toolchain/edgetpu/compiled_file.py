"""Reads the operators of a .tflite file, and those left for the CPU after compilation.

edgetpu_compiler replaces operators by operators of one custom kind, and keeps every
other operator with the names of its tensors; the inputs and outputs of the file keep
name, type and shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime.bundle.tflite_file import EDGETPU_OPERATOR

from edgec.errors import InputError
from edgec.frontends.tflite_file import FileOperator, TfliteFile, damage_told


@dataclass(frozen=True)
class Operator:
    """An operator of a file.

    Attributes:
        opcode: its opcode, CUSTOM:<name> for a custom operator
        inputs: names of its inputs without constants
        outputs: names of its outputs
    """

    opcode: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Border:
    """An input or output of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outline:
    """The operators, inputs and outputs of a .tflite file."""

    operators: tuple[Operator, ...]
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]

    @property
    def left(self) -> tuple[Operator, ...]:
        """Return the operators for the CPU."""

        on_tpu = f"CUSTOM:{EDGETPU_OPERATOR}"
        return tuple(op for op in self.operators if op.opcode != on_tpu)

    @property
    def pieces(self) -> int:
        """Return the number of operators for the Edge TPU."""
        return len(self.operators) - len(self.left)

    def ready(self, left: Iterable[Operator]) -> tuple[Operator, ...]:
        """Return the operators of `left` whose inputs come from no operator of `left`.

        The compiler maps the first set of operators that it can, with everything that
        is ready by then: an operator that is ready and not mapped was refused for its
        own sake.
        """
        operators = tuple(left)
        pending = {name for op in operators for name in op.outputs}
        return tuple(op for op in operators if not pending.intersection(op.inputs))


def read(data: bytes) -> Outline:
    """Return the outline of a .tflite file.

    Raises ValueError for other or damaged data.
    """
    # Only a name for messages: the data come from an archive or another folder.
    path = Path("compiled.tflite")
    try:
        with damage_told(path):
            # Any element type, since only names, types and shapes are read: nothing is
            # computed.
            file = TfliteFile.parse(data, path, any_type=True)
            operators = tuple(_operator(file, op) for op in file.operators())
            inputs = tuple(_border(file, i) for i in file.inputs)
            outputs = tuple(_border(file, i) for i in file.outputs)
            return Outline(operators, inputs, outputs)
    except InputError as e:
        raise ValueError(e.what) from e


def _operator(file: TfliteFile, op: FileOperator) -> Operator:
    inputs = []
    for i in op.inputs:
        # A negative number is an optional input that is not there.
        if i >= 0 and not file.has_data(i):
            inputs.append(file.name(i))
    outputs = tuple(file.name(i) for i in op.outputs)
    return Operator(op.opcode, tuple(inputs), outputs)


def _border(file: TfliteFile, i: int) -> Border:
    t = file.type(i)
    return Border(file.name(i), t.dtype, t.shape)
