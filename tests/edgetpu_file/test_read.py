"""Compiled files are read; damaged ones end in one error."""

from __future__ import annotations

import random
import struct

import pytest
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import (
    BufferTransfer,
    ExecutableType,
    InstructionTransfer,
)
from edgec_runtime.edgetpu_file.flatbuffer import Table
from edgec_runtime.errors import InputError

from tests.edgetpu_file.compiled import files, smallest

pytestmark = pytest.mark.shared


def test_every_file() -> None:
    """Each package has a program for the parameters and one for inferences, whose
    transfers are within their buffers."""
    assert len(files()) == 41
    for where, data in files().items():
        (package,) = read_compiled(data, where).packages
        for kind in (ExecutableType.PARAMETER_CACHING, ExecutableType.EXECUTION_ONLY):
            executable = package.of_type(kind)
            assert executable is not None
            sizes = {
                layer.name: layer.size
                for layer in (*executable.inputs, *executable.outputs)
            }
            for transfer in executable.transfers:
                what = transfer.what
                if isinstance(what, InstructionTransfer):
                    assert what.chunk < len(executable.instructions)
                elif isinstance(what, BufferTransfer):
                    size = sizes.get(what.address.name, executable.parameters.size)
                    assert 0 <= what.offset <= what.offset + what.size <= size
        execution = package.of_type(ExecutableType.EXECUTION_ONLY)
        assert execution is not None
        assert execution.inputs
        assert execution.outputs


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (1, -1, "a layer has the sizes"),
        (1, (1 << 31) - 1, "a layer has the sizes"),
        (4, 0, "a layer has the sizes"),
        (None, -64, "-64 bytes of scratch memory"),
        (None, (1 << 31) - 1, "2147483647 bytes of scratch memory"),
    ],
)
def test_impossible_sizes(field: int | None, value: int, message: str) -> None:
    """Neither an input nor the scratch memory is of a size that nobody could give.

    field: of the first input's table; None for the size of the scratch memory
    """
    # A size of 0 may have no place in a file.
    whole = next(d for d in files().values() if places(d, field))
    data = bytearray(whole)
    for at in places(whole, field):
        struct.pack_into("<i", data, at, value)
    with pytest.raises(InputError, match=message):
        read_compiled(bytes(data), "model")


def places(data: bytes, field: int | None) -> list[int]:
    """Return the positions of a field in all programs of a file."""
    found = list[int | None]()
    for executable in read_compiled(data, "model").packages[0].executables:
        table = Table.root(data, executable.span.start)
        if field is None:
            found.append(table.place(4))
        elif inputs := table.tables(8):
            found.append(inputs[0].place(field))
    return [at for at in found if at is not None]


def test_damage() -> None:
    """A file that is cut short or has other bytes is read, or is refused with its name."""
    rng = random.Random(1)
    data = smallest()
    places: list[str | None] = []
    for _ in range(1000):
        damaged = bytearray(data[: rng.choice((len(data), rng.randrange(len(data))))])
        for _ in range(rng.randrange(1, 4)):
            if damaged:
                damaged[rng.randrange(min(len(damaged), 1500))] = rng.randrange(256)
        try:
            read_compiled(bytes(damaged), "damaged.tflite")
        except InputError as e:
            places.append(e.at)
    assert len(places) > 100
    assert set(places) == {"damaged.tflite"}
