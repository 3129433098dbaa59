"""A look into a .tflite file: the operators, and what is left for the CPU in a file
that edgetpu_compiler wrote.

The compiler replaces what it maps by operators of one custom kind, and keeps every
other operator with the names of its tensors; the inputs and outputs of the file keep
name, type and shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgec.errors import InputError
from edgec.frontends.tflite_file import FileOperator, TfliteFile, damage_told

CUSTOM_OP = "edgetpu-custom-op"


@dataclass(frozen=True)
class Operator:
    """One operator of a file: its opcode (CUSTOM:<name> for a custom one), and the
    names of what it reads and writes.

    inputs: those that are computed or fed, without constants.
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
    """What matters here of a .tflite file."""

    operators: tuple[Operator, ...]
    inputs: tuple[Border, ...]
    outputs: tuple[Border, ...]

    @property
    def left(self) -> tuple[Operator, ...]:
        """The operators that are for the CPU."""
        return tuple(op for op in self.operators if op.opcode != f"CUSTOM:{CUSTOM_OP}")

    @property
    def pieces(self) -> int:
        """How many operators are for the Edge TPU."""
        return len(self.operators) - len(self.left)

    def ready(self, left: Iterable[Operator]) -> tuple[Operator, ...]:
        """Those of `left` that wait for none of `left`.

        The compiler maps the first set of operators that it can, with everything that
        is ready by then; so what is ready and not mapped was refused for its own sake.
        """
        left = tuple(left)
        late = {name for op in left for name in op.outputs}
        return tuple(op for op in left if not late.intersection(op.inputs))


def read(data: bytes) -> Outline:
    """Raises ValueError for what is no .tflite file, or a damaged one."""
    path = Path("compiled.tflite")
    try:
        with damage_told(path):
            file = TfliteFile.parse(data, path, any_type=True)
            operators = tuple(_operator(file, op) for op in file.operators())
            inputs, outputs = (
                tuple(_border(file, i) for i in ends)
                for ends in (file.inputs, file.outputs)
            )
            return Outline(operators, inputs, outputs)
    except InputError as e:
        raise ValueError(e.what) from e


def _operator(file: TfliteFile, op: FileOperator) -> Operator:
    inputs = tuple(file.name(i) for i in op.inputs if i >= 0 and not file.has_data(i))
    return Operator(op.opcode, inputs, tuple(file.name(i) for i in op.outputs))


def _border(file: TfliteFile, i: int) -> Border:
    t = file.type(i)
    return Border(file.name(i), t.dtype, t.shape)
