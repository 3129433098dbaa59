"""Reads the facts about a file that edgetpu_compiler has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgec_partitioner.cost import LINKS, TpuWork
from edgec_runtime.device_end.disk import given
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, read_compiled
from edgec_runtime.edgetpu_file.executable import (
    DATA_TYPES,
    BufferTransfer,
    Executable,
    ExecutableType,
    InstructionTransfer,
    Interrupt,
    Layer,
    Package,
    Transfer,
)
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError

from edgec.edgetpu_file.assembly import assemble
from edgec.edgetpu_file.listing import disassemble
from edgec.edgetpu_file.programs import Piece, pieces_of, program_of
from edgec.errors import InputError
from edgec.inspecting.compiled_facts import (
    CompiledFacts,
    InspectedLayer,
    InspectedPackage,
    InspectedProgram,
    InspectedTransfer,
)
from edgec.toolchain.edgetpu.compiled_file import read as read_outline

LARGEST = 1 << 30
"""Bytes of the largest file that is read."""
SCHEMA = 1
"""The version of the JSON of `edgec inspect --json` for such a file."""
DAMAGED = "the file is damaged or cut short: copy or compile it again"


@dataclass(frozen=True)
class CompiledInspection:
    """A file of edgetpu_compiler.

    Attributes:
        facts: what it has.
        file: the file as it was read.
    """

    facts: CompiledFacts
    file: CompiledFile

    def listing(self) -> Iterator[str]:
        """Yield the lines of the file as text, from which `assembled` makes it again."""
        return disassemble(self.file, self.facts.path)

    def to_json(self) -> dict[str, Any]:
        """Return the facts in JSON's types (docs/inspect.md)."""
        return {"compiled_schema": SCHEMA, **asdict(self.facts)}


def inspect_compiled(path: Path) -> CompiledInspection:
    """Return the facts about a compiled file on disk.

    Raises InputError: it cannot be read, was not compiled, or is damaged.
    """
    file = read_compiled(content_of(path), str(path))
    return CompiledInspection(facts_of(file, str(path)), file)


def facts_of(file: CompiledFile, where: str) -> CompiledFacts:
    """Return the facts about a compiled file; `where` is its place, for messages.

    Raises InputError: it is damaged.
    """
    data = file.data
    try:
        packages = tuple(_package(data, package) for package in file.packages)
        left = read_outline(data).left
    except (DamagedError, ValueError) as e:
        raise InputError(f"the file cannot be read: {e}", where, DAMAGED) from e
    cpu = tuple(operator.opcode for operator in left)
    return CompiledFacts(where, len(data), packages, cpu)


def assembled(path: Path) -> bytes:
    """Return the file that a text of `CompiledInspection.listing` describes.

    Raises InputError: the text cannot be read, or a line is not understood.
    """
    data = content_of(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        raise InputError(
            f"byte {e.start} is not of a text",
            str(path),
            "give a text that edgec inspect --disassemble has written",
        ) from e
    return assemble(text.splitlines(), str(path))


def content_of(path: Path) -> bytes:
    """Return the bytes of a file that is inspected."""
    try:
        return given(path, LARGEST)
    except OSError as e:
        raise InputError(
            f"{path} cannot be read: {e.strerror}",
            str(path),
            "give a file that can be read",
        ) from e


def _package(data: bytes, package: Package) -> InspectedPackage:
    caching = package.of_type(ExecutableType.PARAMETER_CACHING)
    runs = package.of_type(ExecutableType.EXECUTION_ONLY)
    runs = runs or package.of_type(ExecutableType.STAND_ALONE)
    if runs is None:
        raise DamagedError("a package has no program for an inference")
    programs = tuple(_program(data, executable) for executable in package.executables)
    cached = 0 if caching is None else caching.parameters.size
    run = programs[package.executables.index(runs)]
    work = TpuWork(
        bytes_in=sum(layer.size * layer.executions for layer in runs.inputs),
        bytes_out=sum(layer.size * layer.executions for layer in runs.outputs),
        code=run.bytes,
        parameters=cached + runs.parameters.size,
        mcycles=run.steps / 1e6,
    )
    return InspectedPackage(
        compiler=package.compiler,
        runtime_version=package.runtime_version,
        token=f"{runs.token:016x}",
        programs=programs,
        cached=cached,
        pieces=() if caching is None else _pieces(data, caching),
        streamed=runs.parameters.size,
        est_ms={
            link.name: work.parts(link, runs.parameters.size).parts()
            for link in LINKS.values()
        },
    )


def _pieces(data: bytes, caching: Executable) -> tuple[Piece, ...]:
    """Return where parameters are cached; nothing for a program in another form."""
    try:
        return pieces_of(data, caching)
    except DamagedError:
        return ()


def _program(data: bytes, executable: Executable) -> InspectedProgram:
    program = program_of(data, executable)
    layers = [
        *(_layer(layer, "input") for layer in executable.inputs),
        *(_layer(layer, "output") for layer in executable.outputs),
    ]
    return InspectedProgram(
        type=executable.type.name.lower().replace("_", "-"),
        chip=executable.chip,
        batch=executable.batch,
        bytes=program.bytes,
        words=program.words,
        chunks=program.chunks,
        kinds=program.kinds,
        parameters=executable.parameters.size,
        narrow=executable.narrow_bytes,
        scratch=executable.scratch,
        tiles=program.tiles.bit_count(),
        steps=max(program.steps),
        compiler_cycles=executable.cycles,
        buffers=program.buffers,
        driver_fields=len(program.driver_fields),
        transfers=tuple(_transfers(executable)),
        layers=tuple(layers),
    )


def _layer(layer: Layer, direction: str) -> InspectedLayer:
    layout = layer.layout
    tiles = None
    if layout is not None:
        tiles = (len(set(layout.y_tile)), len(set(layout.x_tile)))
    return InspectedLayer(
        name=layer.name,
        direction=direction,
        dtype=DATA_TYPES[layer.data_type],
        shape=(layer.y, layer.x, layer.z),
        bytes=layer.size,
        scale=layer.scale,
        zero_point=layer.zero_point,
        tiles=tiles,
        slices=len(layer.slices),
        executions=layer.executions,
    )


def _transfers(executable: Executable) -> Iterator[InspectedTransfer]:
    """Yield the DMA hints, neighbours of one kind together."""
    rows = [_transfer(executable, transfer) for transfer in executable.transfers]
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end][0] != rows[start][0]:
            size = sum(size for _, size in rows[start:end])
            yield InspectedTransfer(rows[start][0], end - start, size)
            start = end


def _transfer(executable: Executable, transfer: Transfer) -> tuple[str, int]:
    what = transfer.what
    if isinstance(what, BufferTransfer):
        kind = what.address.of.name.lower()
        return ("parameters" if kind == "parameter" else kind), what.size
    if isinstance(what, InstructionTransfer):
        if not 0 <= what.chunk < len(executable.instructions):
            raise DamagedError(f"chunk {what.chunk} of the instructions is sent")
        return "instructions", executable.instructions[what.chunk].span.size
    return ("interrupt" if isinstance(what, Interrupt) else "fence"), 0
