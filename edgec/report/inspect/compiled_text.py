"""Renders the facts about a file of edgetpu_compiler as text."""

from __future__ import annotations

from collections.abc import Iterator

from edgec_devices.intervals import EDGETPU_ERROR, estimate_text

from edgec.edgetpu_file.programs import NARROW_BYTES, WIDE_BYTES, tiles_of
from edgec.inspecting.compiled_facts import (
    CompiledFacts,
    InspectedLayer,
    InspectedPackage,
    InspectedProgram,
)
from edgec.report.inspect.sections import Row, folded, named, section
from edgec.report.tables import table
from edgec.report.wording import count, percent, plain, shortened, size

PROGRAM_HEAD = (
    "program",
    "instructions",
    "words",
    "chunks",
    "parameters",
    "narrow",
    "tiles",
)
TILE_HEAD = ("tile", "parameters", "pieces", "wide memory", "of all")
TIME_HEAD = ("link", "ms", "input", "output", "instructions", "compute", "parameters")
LINK_NAMES = {"usb3": "USB 3", "usb2": "USB 2", "pcie": "PCIe"}
LONGEST_NAME = 60
"""Characters of a tensor's name."""
NAME_WIDTH = 19
"""Columns of the names of programs."""
MAX_KINDS = 12
"""Kinds of instructions that are shown for a program."""


def compiled_text(facts: CompiledFacts) -> str:
    """Return the page of text about a file."""
    return "\n\n".join([headline_of(facts), *blocks_of(facts)]) + "\n"


def blocks_of(facts: CompiledFacts) -> Iterator[str]:
    """Yield the sections about a file."""
    for package in facts.packages:
        yield from _package(package)
    yield section("What stays on the CPU", [cpu_text(facts)])


def headline_of(facts: CompiledFacts) -> str:
    """Return the line with the file, its origin and its size."""
    return f"{plain(facts.path)}: a file of edgetpu_compiler, {size(facts.bytes)}"


def _package(package: InspectedPackage) -> Iterator[str]:
    """Yield the sections about the programs of one operator."""
    yield section("What made it", named(origin(package)))
    programs = [table(PROGRAM_HEAD, program_rows(package), "lrrrrrr"), ""]
    for program in package.programs:
        programs += folded(f"{program.type}: {kinds_text(program)}")
    yield section("What runs on the chip", programs)
    yield section("Inputs and outputs", named(layer_rows(package)))
    tiles = [table(TILE_HEAD, tile_rows(package), "rrrrr")] if package.pieces else []
    yield section("Where the parameters are", [*folded(memory_text(package)), *tiles])
    yield section("What is transferred", named(transfer_rows(package), NAME_WIDTH))
    times = [table(TIME_HEAD, time_rows(package), "lrrrrrr"), ""]
    yield section("How long an inference takes", [*times, *folded(steps_text(package))])


def origin(package: InspectedPackage) -> Iterator[Row]:
    """Yield the versions and the token."""
    # Some versions of the compiler leave the number out.
    version = plain(package.compiler).removeprefix("cl/")
    yield "compiler", f"version {version}" if version else "its version is not said"
    yield "driver", f"libedgetpu of at least version {package.runtime_version}"
    yield (
        "token",
        f"{package.token}: files with the same one share the parameter memory",
    )


def program_rows(package: InspectedPackage) -> list[tuple[str, ...]]:
    """Return the rows of the table of programs."""
    return [
        (
            program.type,
            size(program.bytes),
            str(program.words),
            str(program.chunks),
            size(program.parameters),
            size(program.narrow) if program.narrow else "-",
            str(program.tiles) if program.tiles else "-",
        )
        for program in package.programs
    ]


def kinds_text(program: InspectedProgram) -> str:
    """Return how many instructions of each kind a program has."""
    kinds = [f"{n} x {plain(kind)}" for kind, n in program.kinds.items()]
    more = ", …" if len(kinds) > MAX_KINDS else ""
    return ", ".join(kinds[:MAX_KINDS]) + more


def layer_rows(package: InspectedPackage) -> Iterator[Row]:
    """Yield a row for each input and output."""
    for program in package.programs:
        for layer in program.layers:
            yield layer.direction, layer_text(layer)


def layer_text(layer: InspectedLayer) -> str:
    """Return the name, type, shape and layout of an input or output."""
    name = shortened(plain(layer.name), LONGEST_NAME)
    shape = " x ".join(map(str, layer.shape))
    text = f"{name}: {layer.dtype}, {shape}, {size(layer.bytes)}"
    if layer.scale:
        text += f", real = {layer.scale:.6g} * (q - {layer.zero_point})"
    if layer.tiles is not None:
        text += f"; by {layer.tiles[0]} x {layer.tiles[1]} tiles"
    if layer.slices:
        text += f"; in {layer.slices} blocks with strides"
    if layer.executions > 1:
        text += f"; {layer.executions} times in an inference"
    return text


def memory_text(package: InspectedPackage) -> str:
    """Return in a few sentences where the parameters go."""
    pieces = package.pieces
    text = f"{size(package.cached)} stay on the chip"
    if pieces:
        text += f", in {len(pieces)} pieces that begin at rows of 256 bytes"
    elif package.cached:
        text += ", at places that are not understood"
    text += f"; {size(package.streamed)} go to it in each inference."
    for program in package.programs:
        if program.buffers is not None and program.narrow:
            text += (
                f" The {program.type} program uses {size(program.narrow)} of the "
                f"{size(NARROW_BYTES)} of narrow memory (activations) of a tile, and "
                f"buffers in its wide memory (parameters) from byte {program.buffers} "
                f"of {WIDE_BYTES}."
            )
    return text


def tile_rows(package: InspectedPackage) -> list[tuple[str, ...]]:
    """Return the rows of the table of the tiles that hold parameters."""
    rows = list[tuple[str, ...]]()
    for tile in sorted({t for piece in package.pieces for t in tiles_of(piece.tiles)}):
        held = [piece for piece in package.pieces if piece.tiles >> tile & 1]
        memory = sum(piece.memory for piece in held)
        rows.append(
            (
                str(tile),
                size(sum(piece.size for piece in held)),
                str(len(held)),
                size(memory),
                percent(memory / WIDE_BYTES),
            )
        )
    return rows


def transfer_rows(package: InspectedPackage) -> Iterator[Row]:
    """Yield the DMA hints of each program in order."""
    for program in package.programs:
        parts = list[str]()
        for transfer in program.transfers:
            text = transfer.what
            if transfer.count > 1:
                text = f"{transfer.count} x {text}"
            parts.append(f"{text} {size(transfer.bytes)}" if transfer.bytes else text)
        yield program.type, ", ".join(parts)


def time_rows(package: InspectedPackage) -> list[tuple[str, ...]]:
    """Return the rows of the table of estimated times."""
    rows = list[tuple[str, ...]]()
    for link, parts in package.est_ms.items():
        columns = [parts[name] for name in ("input", "output", "code", "compute")]
        columns.append(parts["streamed"])
        whole = estimate_text(sum(parts.values()), EDGETPU_ERROR)
        rows.append((LINK_NAMES[link], whole, *(f"{ms:.3f}" for ms in columns)))
    return rows


def steps_text(package: InspectedPackage) -> str:
    """Return what the time for computing is counted from."""
    program = max(package.programs, key=lambda p: p.steps)
    text = (
        f"The time for computing is that of {count(program.steps)} cycles at 500 MHz, "
        "which the loops of the computing instructions of one tile have at least; where "
        "the chip waits for data it takes longer."
    )
    if program.compiler_cycles:
        text += (
            f" The compiler's own estimate is {count(program.compiler_cycles)} cycles."
        )
    return text


def cpu_text(facts: CompiledFacts) -> str:
    """Return which operators stay on the CPU."""
    if not facts.cpu:
        return "nothing: all operators are on the Edge TPU"
    return f"{len(facts.cpu)} operators: {plain(', '.join(facts.cpu))}"
