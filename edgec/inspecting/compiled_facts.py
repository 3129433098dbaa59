"""The facts about a file of edgetpu_compiler that `edgec inspect` shows."""

from __future__ import annotations

from dataclasses import dataclass

from edgec.edgetpu_file.programs import Piece


@dataclass(frozen=True)
class InspectedLayer:
    """An input or output of a program.

    Attributes:
        name: the tensor's name.
        direction: "input" or "output".
        dtype: the type of its elements.
        shape: height, width and channels.
        bytes: of one transfer of the whole, padding included.
        scale, zero_point: real = scale * (q - zero_point).
        tiles: rows and columns of tiles that hold an output; None where it is one block.
        slices: blocks with strides that an output consists of.
        executions: how often it is transferred in an inference.
    """

    name: str
    direction: str
    dtype: str
    shape: tuple[int, int, int]
    bytes: int
    scale: float
    zero_point: int
    tiles: tuple[int, int] | None
    slices: int
    executions: int


@dataclass(frozen=True)
class InspectedTransfer:
    """Consecutive entries of the DMA hints that are alike.

    Attributes:
        what: "instructions", "input", "output", "parameters", "scratch", "interrupt" or
            "fence".
        count: how many there are in a row.
        bytes: of all of them.
    """

    what: str
    count: int
    bytes: int


@dataclass(frozen=True)
class InspectedProgram:
    """An executable.

    Attributes:
        type: "stand-alone", "parameter-caching" or "execution-only".
        chip: the chip's name, where the file says it.
        batch: inputs at a time.
        bytes: of the instructions.
        words: of 16 bytes.
        chunks: parts in which the driver sends the instructions.
        kinds: the number of instructions of each kind.
        parameters: bytes that go with it: streamed in each inference, but for a
            parameter-caching one.
        narrow: bytes of narrow memory that it uses, per tile.
        scratch: bytes of memory of the host.
        tiles: the number of tiles that compute.
        steps: cycles of the computing instructions of the tile with most of them.
        compiler_cycles: the compiler's estimate; 0: none.
        buffers: first byte of the wide memory that it writes while it computes.
        driver_fields: places in the instructions that the driver fills in.
        transfers: the DMA hints in order.
        layers: its inputs and outputs.
    """

    type: str
    chip: str
    batch: int
    bytes: int
    words: int
    chunks: int
    kinds: dict[str, int]
    parameters: int
    narrow: int
    scratch: int
    tiles: int
    steps: int
    compiler_cycles: int
    buffers: int | None
    driver_fields: int
    transfers: tuple[InspectedTransfer, ...]
    layers: tuple[InspectedLayer, ...]


@dataclass(frozen=True)
class InspectedPackage:
    """The programs of one operator of a file.

    Attributes:
        compiler: the compiler's version.
        runtime_version: the least version of the driver.
        token: packages with the same one share the memory for parameters.
        programs: its executables.
        cached: bytes of parameters that are put on the chip before the first inference.
        pieces: where they are; nothing where that is not understood.
        streamed: bytes of parameters that go to the chip in each inference.
        est_ms: the cost model's time of an inference by link, by part, in ms.
    """

    compiler: str
    runtime_version: int
    token: str
    programs: tuple[InspectedProgram, ...]
    cached: int
    pieces: tuple[Piece, ...]
    streamed: int
    est_ms: dict[str, dict[str, float]]


@dataclass(frozen=True)
class CompiledFacts:
    """The facts about a file of edgetpu_compiler.

    Attributes:
        path: the file, in a bundle its name there.
        bytes: its size.
        packages: its programs, one package for each operator of the Edge TPU.
        cpu: opcodes of the operators that stay on the CPU, in order.
    """

    path: str
    bytes: int
    packages: tuple[InspectedPackage, ...]
    cpu: tuple[str, ...]
