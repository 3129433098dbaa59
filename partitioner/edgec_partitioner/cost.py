"""Estimated time of a segment on the Edge TPU, in milliseconds.

A call costs its overhead, the bytes over the link, and the cycles on the chip. The chip
is 16 tiles; each computes 64 outputs from 4 input channels in a cycle (4096
multiply-accumulates, the 4 TOPS that it is sold with at 500 MHz). An operation takes
the cycles of its computation or those for moving its activations, whichever are more.

Everything here is an estimate, and is called one wherever it is shown. The coefficients
are fits to times that others published and to sizes in compiled files. `make
cost-table` fits all of them anew, predicts each source of times from the others, and
compares the fits with the values here; a test fails when they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from edgec.ir import Op, Value

_MB = 1e6


@dataclass(frozen=True)
class Link:
    """How an Edge TPU is attached.

    Reading results back over USB is slow because the driver asks for 1 KB (USB 3) or
    256 bytes (USB 2) at a time, and each answer waits for the host. So this rate is the
    host's: 34 ms for a MB on a Raspberry Pi 4 and a Jetson Nano, 18 on a MacBook, 12
    on a desktop.

    Attributes:
        name: the name in a board's profile.
        invoke: ms for each inference.
        per_mb_sent: ms for each MB (1e6 bytes) of inputs, and of instructions, which go
            to the chip anew with every inference.
        per_mb_received: ms for each MB of outputs.
        per_mb_streamed: ms for each MB of parameters beyond the on-chip memory, which
            also go to the chip anew. Less than for inputs where the chip computes
            meanwhile.
    """

    name: str
    invoke: float
    per_mb_sent: float
    per_mb_received: float
    per_mb_streamed: float


LINKS = {
    link.name: link
    for link in (
        Link("usb3", 0.2231, 3.189, 33.71, 2.044),
        # The controller of a Raspberry Pi 2, 3 and Zero 2, whose transfers take 1.64
        # times as long as those of a Jetson Nano over USB 2.
        Link("usb2", 0.2323, 43.84, 142.1, 43.84),
        # The Coral Dev Board. A desktop with PCIe reads at 8 ms for a MB.
        Link("pcie", 0.3823, 2.522, 31.02, 2.522),
    )
}
"""The links of the boards, by their names in a board's profile."""

CLOCK_MHZ = 500
"""The chip's clock with libedgetpu1-max, and in most published times.

With libedgetpu1-std it is 250, and the part `compute` takes twice as long.
"""

PER_MCYCLE = 1e3 / CLOCK_MHZ
"""ms for 1e6 cycles; not fitted."""

PARAMETER_CACHE = 7_000_000
"""Bytes of parameters that stay on the chip, for all segments together.

Logs show 5.0 to 8.05 MiB, less with large activations; a sweep of dense layers has all
of 7.43 MiB there and streams a layer of 7.91. No rule fits both the size of the
activations and the compilers' versions; this is their middle.
"""


@dataclass(frozen=True)
class OpWork:
    """The work of one operation in a segment.

    Attributes:
        compute: cycles of a convolution's multiply-accumulates.
        touched: bytes of activations read and written.
        parameters: bytes of parameters in the compiled file.
        dense: of these, bytes of a fully connected layer.
    """

    compute: float
    touched: int
    parameters: int
    dense: int = 0

    @property
    def cycles(self) -> float:
        """The cycles on the chip: computing and moving go on at the same time."""
        moving = CYCLES["moved_byte"] * self.touched
        return max(self.compute, moving) + CYCLES["dense_byte"] * self.dense

    @property
    def code(self) -> float:
        """Bytes of instructions: more if the activations are large and are tiled."""
        return CODE["operation"] + CODE["large_byte"] * max(0, self.touched - LARGE)


CYCLES = {"moved_byte": 0.06259, "dense_byte": 2.497e-3}
"""Cycles for each byte of activations that an operation reads or writes, and for each
byte of parameters of a fully connected layer, which lie in all tiles.
"""

TILES = 16
LANES = 64
DEPTH = 4
"""The array: tiles, which share the positions of an image; the outputs of a tile, and
the input channels of an output, in a cycle. Parameters are padded to whole cycles.
"""


def convolution(
    positions: int, taps: int, inputs: int, outputs: int, touched: int, groups: int = 1
) -> OpWork:
    """Return the work of a convolution.

    Args:
        positions: of the image where the kernel is applied
        taps: height times width of the kernel
        inputs: channels that an output reads
        outputs: channels of a group
        touched: bytes of activations read and written
        groups: of channels
    """
    lanes = _up(outputs, LANES)
    depth = _up(inputs, DEPTH)
    cycles = _up(positions, TILES) * taps * depth * lanes / (TILES * LANES * DEPTH)
    return OpWork(groups * cycles, touched, groups * lanes * (taps * depth + 4))


def depthwise(taps: int, channels: int, touched: int) -> OpWork:
    """Return the work of a depthwise convolution, whose time is moving alone.

    Its weights are padded as if each channel read DEPTH.
    """
    return OpWork(0.0, touched, _up(channels, LANES) * (taps * DEPTH + 4))


def fully_connected(inputs: int, outputs: int, touched: int) -> OpWork:
    """Return the work of a fully connected layer, whose time is reading its weights."""
    # Few outputs take fewer lanes.
    lanes = _up(outputs, LANES if outputs >= LANES else LANES // DEPTH)
    parameters = lanes * (_up(inputs, DEPTH) + 4)
    return OpWork(0.0, touched, parameters, parameters)


FREE = ("pad", "reshape")
"""Operations that move nothing: the compiler makes them a part of their neighbours."""


def _up(n: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-n // step) * step


LARGE = 1_200_000
"""Bytes of activations of one operation beyond which its instructions grow."""

CODE = {"segment": 3038.0, "operation": 1933.0, "large_byte": 5.350e-3}
"""Coefficients of the instruction bytes, fitted to the logarithms of 80 compiled files.

Compilers differ by up to a factor of 3.7 for one model, so this is coarse: half are
within a factor of 1.3, nine in ten within 2.9.
"""


@dataclass(frozen=True)
class TpuTime:
    """The parts of a segment's estimated time on the Edge TPU, in ms.

    Attributes:
        invoke: the overhead of an inference.
        input, output, code: transfers over the link.
        compute: the computation on the chip.
        streamed: the transfer of parameters beyond the on-chip memory.
    """

    invoke: float
    input: float
    output: float
    code: float
    compute: float
    streamed: float

    @property
    def ms(self) -> float:
        """The sum of all parts."""
        return (
            self.invoke
            + self.input
            + self.output
            + self.code
            + self.compute
            + self.streamed
        )

    def parts(self) -> dict[str, float]:
        """Return the parts by name, in a fixed order."""
        return asdict(self)


@dataclass(frozen=True)
class TpuWork:
    """The transfers and computation of one inference of an Edge TPU segment.

    Attributes:
        bytes_in: bytes of the inputs.
        bytes_out: bytes of the outputs, padded.
        code: bytes of the instructions.
        parameters: bytes of the parameters.
        mcycles: 1e6 cycles on the chip.
    """

    bytes_in: int
    bytes_out: int
    code: int
    parameters: int
    mcycles: float

    def parts(self, link: Link, streamed: int = 0) -> TpuTime:
        """Return the estimated time over a link.

        `streamed` bytes of the parameters do not fit the on-chip memory.
        """
        return TpuTime(
            invoke=link.invoke,
            input=link.per_mb_sent * self.bytes_in / _MB,
            output=link.per_mb_received * self.bytes_out / _MB,
            code=link.per_mb_sent * self.code / _MB,
            compute=PER_MCYCLE * self.mcycles,
            streamed=link.per_mb_streamed * streamed / _MB,
        )

    def ms(self, link: Link, streamed: int = 0) -> float:
        """Return the sum of the parts of its time."""
        return self.parts(link, streamed).ms

    def upload_ms(self, link: Link, streamed: int = 0) -> float:
        """Return the additional time of the first inference.

        It sends the parameters to the chip that stay there.
        """
        return link.per_mb_sent * (self.parameters - streamed) / _MB


def op_work(op: Op) -> OpWork:
    """Return the work of one operation.

    Constants count for each operation that reads them.
    """
    touched = sum(v.type.nbytes for v in op.outputs)
    constants = 0
    for v in op.inputs:
        if v.const is None:
            touched += v.type.nbytes
        else:
            constants += v.type.nbytes

    # The weights are [O, KH, KW, C / groups], or [O, C] of a fully connected layer.
    if op.kind == "fully_connected":
        outputs, inputs = op.inputs[1].type.shape
        return fully_connected(inputs, outputs, touched)
    if op.kind == "depthwise_conv2d":
        _, high, wide, channels = op.inputs[1].type.shape
        return depthwise(high * wide, channels, touched)
    if op.kind in ("conv2d", "transpose_conv2d"):
        outputs, high, wide, depth = op.inputs[1].type.shape
        image = op.inputs[0] if op.kind == "transpose_conv2d" else op.output
        positions = image.type.size // max(image.type.shape[-1], 1)
        groups = max(1, op.inputs[0].type.shape[-1] // max(depth, 1))
        taps = high * wide
        return convolution(positions, taps, depth, outputs // groups, touched, groups)
    return OpWork(0.0, 0 if op.kind in FREE else touched, constants)


def tpu_work(
    works: Sequence[OpWork], inputs: Iterable[Value], outputs: Iterable[Value]
) -> TpuWork:
    """Return the work of operations as one segment with these crossing values."""
    # Every segment has code of its own, whatever its operations.
    code = CODE["segment"] + sum(work.code for work in works)
    return TpuWork(
        bytes_in=sum(v.type.nbytes for v in inputs),
        bytes_out=sum(padded_bytes(v) for v in outputs),
        code=round(code),
        parameters=sum(work.parameters for work in works),
        mcycles=sum(work.cycles for work in works) / 1e6,
    )


def padded_bytes(v: Value) -> int:
    """Return the bytes of an Edge TPU output.

    Channels are padded to a multiple of 4, the whole to a multiple of 8.
    """
    t = v.type
    channels = t.shape[-1] if t.rank else 1
    # An empty tensor has no pixels.
    pixels = t.size // max(channels, 1)
    padded_channels = -(-channels // 4) * 4
    return -(-pixels * padded_channels // 8) * 8


def streamed_bytes(works: Iterable[TpuWork]) -> list[int]:
    """Return how many bytes of each segment's parameters do not fit on the chip.

    The segments share the on-chip memory in their order.
    """
    # The first segments fill the memory.
    free = PARAMETER_CACHE
    streamed: list[int] = []
    for work in works:
        cached = min(free, work.parameters)
        free -= cached
        streamed.append(work.parameters - cached)
    return streamed
