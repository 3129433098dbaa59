"""segments/edgetpu.bin of a bundle: what its program sends to a stick.

The program's driver in C (csrc/program_stick.h) follows this file and reads neither
flatbuffers nor registers' names: instructions are linked, transfers are a list, layouts
are copies of bytes, and the chip is switched on by a list of accesses. All of it comes
from the driver in Python (edgec_runtime/stick), so that the two drivers cannot differ
in it. The structures are those of csrc/stick_file.h, little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgec_partitioner.segments import Segment
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import (
    DATA_TYPE_BYTES,
    DATA_TYPES,
    AddressOf,
    Fence,
    Layer,
    Package,
)
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError
from edgec_runtime.model.interpreters import match_ports
from edgec_runtime.stick.chip import (
    CLOCKS,
    Access,
    Accesses,
    Register,
    What,
    clearing_warning,
    switching_off,
    switching_on,
)
from edgec_runtime.stick.firmware import (
    CACHED_FIRMWARE,
    FIRMWARE_BYTES,
    FIRMWARE_CRC32,
    FIRMWARE_START,
    LIBRARY_PATTERNS,
)
from edgec_runtime.stick.layouts import (
    Block,
    OutputLayout,
    dense_bytes,
    dense_shape,
    padded_bytes,
)
from edgec_runtime.stick.program import (
    Buffer,
    Event,
    Model,
    Packet,
    PlannedStep,
    Program,
    link_model,
)

MAGIC = b"EDGECTPU"
VERSION = 1
_ALIGN = 8
_MEMORY_ALIGN = 64
_LOOPS = 3
"""Loops of a copy in the C."""

_HEADER = struct.Struct("<8s4I")  # magic, version, bytes, CRC-32 of the rest, memory
_LIST = struct.Struct("<2I")  # position, number of elements
_ACCESS = struct.Struct("<2BHI2Q")  # what, size, skipped, address, mask, value
_STEP = struct.Struct("<2B2x2I")  # what, tag, position, bytes
COPY = struct.Struct("<2H3I9I")  # port, flip, tensor, chip, bytes, three loops
_MODEL = struct.Struct("<Q4I")  # token, segment, bytes of inputs, outputs, memory
_FIXED = struct.Struct("<2I12sI64s")
"""The firmware's bytes, CRC-32 and start; the constants' CRC-32, the graph."""

SEND_FILE, SEND_MEMORY, RECEIVE, EVENT, FENCE = range(5)
"""What a step does: bytes of this file or of the memory are sent, and so on."""


@dataclass(frozen=True)
class SegmentProgram:
    """The package of a segment.

    Attributes:
        segment: the segment's number in the model's table
        package: its programs
        data: the file that they are in
        inputs, outputs: names of the program's layers, in the order of the segment's
            tensors
    """

    segment: int
    package: Package
    data: bytes
    inputs: Sequence[str]
    outputs: Sequence[str]


def segment_programs(
    segments: Sequence[Segment], compiled: Mapping[str, bytes]
) -> list[SegmentProgram]:
    """Return the packages that a program can run.

    A file of several operators, or one with operators for the CPU, is left out: its
    segment runs as C.

    Args:
        segments: the model's segments
        compiled: compiled files by the segments' names
    """
    found: list[SegmentProgram] = []
    for number, segment in enumerate(segments):
        data = compiled.get(segment.name)
        if data is None:
            continue
        file = read_compiled(data, segment.name)
        (operator, *others) = file.operators
        if others or operator.package is None:
            continue
        ports: list[list[str]] = []
        for indexes, values in (
            (file.inputs, segment.graph.inputs),
            (file.outputs, segment.graph.outputs),
        ):
            details: list[Mapping[str, Any]] = [
                {"name": file.tensors[i].name} for i in indexes
            ]
            matched = match_ports(details, tuple(v.name for v in values)) or []
            ports.append([str(detail["name"]) for detail in matched])
        found.append(SegmentProgram(number, operator.package, data, *ports))
    return found


def edgetpu_programs(
    programs: Iterable[SegmentProgram], graph: str, constants: int
) -> bytes:
    """Return the file; b"" if the driver can run none of the programs.

    Args:
        programs: the programs
        graph: sha256 of the graph, by which the program knows its own file
        constants: CRC-32 of the constants of its segments for the Edge TPU, likewise
    """
    writer = _Writer()
    for one in programs:
        try:
            # The drivers cut long transfers as the kernel allows.
            model = link_model(one.package, one.data, 1 << 30)
            writer.add(one, model)
        except (DamagedError, ValueError):
            # Its transfers depend on the data, or it is not as its tensors: C runs it.
            continue
    return writer.file(graph, constants) if writer.models else b""


@dataclass
class _Writer:
    """The file while it grows.

    Attributes:
        body: what stands behind the header
        models: the entries of the models
        memory: bytes that the programs need at run time
    """

    body: bytearray = field(default_factory=bytearray)
    models: list[bytes] = field(default_factory=list)
    memory: int = 0

    def add(self, one: SegmentProgram, model: Model) -> None:
        """Write a model; raise ValueError if its layers are not the segment's ports."""
        main = model.main
        if set(one.inputs) != set(main.inputs) or set(one.outputs) != set(main.outputs):
            raise ValueError("its layers are others than the segment's tensors")
        inputs = _offsets(main.inputs[name] for name in one.inputs)
        outputs = _offsets(main.outputs[name] for name in one.outputs)
        input_bytes = _aligned(sum(map(padded_bytes, main.inputs.values())))
        output_bytes = _aligned(sum(map(padded_bytes, main.outputs.values())))
        places: dict[Buffer, int] = {}
        for name, at in inputs.items():
            places[AddressOf.INPUT, name] = self.memory + at
        for name, at in outputs.items():
            places[AddressOf.OUTPUT, name] = self.memory + input_bytes + at
        # Behind them are both of a known inference, inputs that are kept meanwhile, and
        # each program's scratch.
        others = 2 * input_bytes + output_bytes
        lists: list[bytes] = []
        for program in (main, model.caching):
            steps = b""
            if program is not None:
                scratch = self.memory + input_bytes + output_bytes + others
                places[AddressOf.SCRATCH, ""] = scratch
                others += _aligned(program.executable.scratch)
                steps = self._steps(program, places)
            lists.append(self._list(steps, _STEP.size))
        copies_in = [
            copy
            for port, name in enumerate(one.inputs)
            for copy in input_copies(main.inputs[name], port, inputs[name])
        ]
        copies_out = [
            copy
            for port, name in enumerate(one.outputs)
            for copy in output_copies(main.layouts[name], port, outputs[name])
        ]
        for copies in (copies_in, copies_out):
            lists.append(self._list(b"".join(copies), COPY.size))
        sizes = input_bytes, output_bytes, self.memory
        entry = _MODEL.pack(model.token, one.segment, *sizes)
        self.models.append(entry + b"".join(lists))
        self.memory += input_bytes + output_bytes + others

    def file(self, graph: str, constants: int) -> bytes:
        """Return the whole file."""
        lists = [self._list(b"".join(self.models), len(self.models[0]))]
        for clock in CLOCKS.values():
            for high_speed in (False, True):
                lists.append(self._accesses(switching_on(clock, high_speed)))
        lists.append(self._accesses(switching_off()))
        lists.append(self._accesses(clearing_warning()))
        lists.append(self._accesses(_FAULT))
        places = (*(f"/{pattern}" for pattern in LIBRARY_PATTERNS), CACHED_FIRMWARE)
        text = "".join(f"{place}\0" for place in places).encode()
        lists.append(self._list(text, 1))
        clocks = "".join(f"{name}\0" for name in CLOCKS).encode()
        lists.append(self._list(clocks, 1))
        fixed = b"".join(lists) + _FIXED.pack(
            FIRMWARE_BYTES, FIRMWARE_CRC32, FIRMWARE_START, constants, graph.encode()
        )
        assert _HEADER.size + len(fixed) == _BODY_AT
        rest = fixed + bytes(self.body)
        size = _HEADER.size + len(rest)
        head = (MAGIC, VERSION, size, zlib.crc32(rest), self.memory)
        return _HEADER.pack(*head) + rest

    def _steps(self, program: Program, places: Mapping[Buffer, int]) -> bytes:
        """Write the bytes that a program sends, and return its steps."""
        sent = {step.buffer for step in program.steps if isinstance(step, Packet)}
        in_file = {
            key: self._put(data)
            for key, data in program.contents.items()
            if key in sent
        }
        return b"".join(_step(step, places, in_file) for step in program.steps)

    def _accesses(self, accesses: Accesses) -> bytes:
        rows = [
            _ACCESS.pack(a.what, a.size, a.skipped, a.register, a.mask, a.value)
            for a in accesses
        ]
        return self._list(b"".join(rows), _ACCESS.size)

    def _list(self, data: bytes, size: int) -> bytes:
        """Write a list of elements of a size, and return what refers to it."""
        return _LIST.pack(self._put(data), len(data) // size)

    def _put(self, data: bytes | bytearray) -> int:
        """Write bytes, and return their position in the file."""
        self.body += bytes(-len(self.body) % _ALIGN)
        at = _BODY_AT + len(self.body)
        self.body += data
        return at


_LISTS = 1 + 2 * len(CLOCKS) + 3 + 2
_BODY_AT = _HEADER.size + _LISTS * _LIST.size + _FIXED.size
_FAULT = (
    Access(What.READ, Register.HIB_ERROR_STATUS),
    Access(What.READ, Register.HIB_FIRST_ERROR_STATUS),
)
"""What the driver reads after a fault's interrupt."""


def _step(
    step: PlannedStep, places: Mapping[Buffer, int], in_file: Mapping[Buffer, int]
) -> bytes:
    """Return a step; its buffer is in the memory or in the file."""
    if isinstance(step, Event):
        return _STEP.pack(EVENT, step.tag, 0, 0)
    if isinstance(step, Fence):
        return _STEP.pack(FENCE, 0, 0, 0)
    if not isinstance(step, Packet):
        return _STEP.pack(RECEIVE, 0, places[step.buffer] + step.offset, step.size)
    if step.buffer in in_file:
        at = in_file[step.buffer] + step.offset
        return _STEP.pack(SEND_FILE, step.tag, at, step.size)
    return _STEP.pack(
        SEND_MEMORY, step.tag, places[step.buffer] + step.offset, step.size
    )


def _offsets(layers: Iterable[Layer]) -> dict[str, int]:
    """Return where each layer begins in the memory of all, by name."""
    offsets: dict[str, int] = {}
    end = 0
    for layer in layers:
        offsets[layer.name] = end
        end += padded_bytes(layer)
    return offsets


def _aligned(size: int) -> int:
    return -(-size // _MEMORY_ALIGN) * _MEMORY_ALIGN


# ---- copies between a tensor and the chip's layout
# --------------------------------------------------------------------------------------


def input_copies(layer: Layer, port: int, at: int) -> list[bytes]:
    """Return the copies of an input: one row for each execution."""
    return [_rows(layer, port, at)]


def output_copies(layout: OutputLayout, port: int, at: int) -> list[bytes]:
    """Return the copies of an output: its blocks, or one row for each execution."""
    if not layout.blocks:
        return [_rows(layout.layer, port, at)]
    return [
        copy
        for block in layout.blocks
        for copy in _block(layout.layer, block, port, at)
    ]


def _rows(layer: Layer, port: int, at: int) -> bytes:
    row = dense_bytes(layer) // layer.executions
    loops = [(layer.executions, row, layer.size)]
    return _copy(layer, port, (0, at, row), loops)


def _block(layer: Layer, block: Block, port: int, at: int) -> list[bytes]:
    """Return the copies of a block, whose dense dimensions are joined."""
    size = DATA_TYPE_BYTES[layer.data_type]
    tensor_at = 0
    loops: list[tuple[int, int, int]] = []
    stride = size
    for count, (begin, end), chip_stride in zip(
        reversed(dense_shape(layer)),
        reversed(block.ranges),
        reversed(block.strides),
        strict=True,
    ):
        tensor_at += begin * stride
        loops.append((end - begin, stride, chip_stride))
        stride *= count
    length, joined = size, list[tuple[int, int, int]]()
    for count, tensor_stride, chip_stride in loops:
        if count == 1:
            continue
        if not joined and tensor_stride == chip_stride == length:
            length *= count
            continue
        if joined:
            inner, t, c = joined[-1]
            if (tensor_stride, chip_stride) == (inner * t, inner * c):
                joined[-1] = inner * count, t, c
                continue
        joined.append((count, tensor_stride, chip_stride))
    starts = [(tensor_at, at + block.offset)]
    for count, t, c in joined[_LOOPS:]:
        starts = [(a + i * t, b + i * c) for a, b in starts for i in range(count)]
    return [_copy(layer, port, (a, b, length), joined[:_LOOPS]) for a, b in starts]


def _copy(
    layer: Layer,
    port: int,
    piece: tuple[int, int, int],
    loops: Sequence[tuple[int, int, int]],
) -> bytes:
    """Return a copy: a piece (in the tensor, in the chip's bytes, length) and its loops."""
    # The highest bit of signed elements is inverted.
    signed = DATA_TYPES[layer.data_type] in ("int8", "int16")
    flip = DATA_TYPE_BYTES[layer.data_type] if signed else 0
    padded = [*loops, *[(1, 0, 0)] * (_LOOPS - len(loops))]
    return COPY.pack(
        port, flip, *piece, *(n for column in zip(*padded, strict=True) for n in column)
    )
