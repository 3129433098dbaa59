"""Makes compiled files of an older one instead of running edgetpu_compiler (--reuse)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from edgec_runtime.device_end.disk import given

from edgec.edgetpu_file.reuse.file import reused
from edgec.errors import InputError
from edgec.toolchain.edgetpu.compiled_file import read
from edgec.toolchain.edgetpu.runners import Answer

LARGEST = 1 << 28
"""Bytes of the largest compiled file that is read."""


class ReuseRunner:
    """Writes new weights, scales and zero points into a compiled file."""

    def __init__(self, file: Path) -> None:
        self.name = f"re-use of {file.name}"
        self._file = file
        try:
            self._compiled = given(file, LARGEST)
        except OSError as e:
            raise InputError(
                f"cannot read {file.name}: {e.strerror or e}",
                at="--reuse",
                hint="give a file that edgetpu_compiler has written",
            ) from e

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Return the compiled file of the only model, see Runner.

        Raises InputError: there are several, or it is of another structure.
        """
        if len(models) != 1:
            raise InputError(
                f"{len(models)} segments are for the Edge TPU, and {self._file.name} is "
                "the compiled file of one",
                at="--reuse",
                hint="give --edgetpu all, or compile the network with edgetpu_compiler",
            )
        ((name, data),) = models.items()
        compiled = reused(self._compiled, data, str(self._file), name)
        return answer(models, {name: compiled})


def answer(models: Mapping[str, bytes], files: Mapping[str, bytes]) -> Answer:
    """Return compiled files as an answer of edgetpu_compiler, which the driver checks."""
    lines = list[str]()
    for name, data in models.items():
        kinds = Counter(operator.opcode for operator in read(data).operators)
        lines.append(f"Input model: {name}.tflite")
        lines += [f"{kind} {count} Mapped to Edge TPU" for kind, count in kinds.items()]
    return Answer("\n".join(lines), files)
