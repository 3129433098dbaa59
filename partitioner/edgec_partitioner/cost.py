"""Estimated time of a segment on the Edge TPU, in milliseconds.

The coefficients are fits to published times and to sizes in compiled files.

Everything here is an estimate, and is called one wherever it is shown. `make
cost-table` fits all coefficients anew, cross-validates them, and compares them with
these; a test fails when they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from edgec.ir import ChannelFlow, Op, Value

_MB = 1e6


@dataclass(frozen=True)
class Link:
    """How an Edge TPU is attached.

    Reading results back over USB is slow because the driver asks for 1 KB (USB 3) or
    256 bytes (USB 2) at a time.

    Attributes:
        name: the name in a board's profile.
        invoke: ms for each inference.
        per_mb_in: ms for each MB (1e6 bytes) of inputs.
        per_mb_out: ms for each MB of outputs.
        per_mb_sent: ms for each MB of instructions, and of parameters beyond the
            on-chip memory; both go to the chip anew with every inference.
    """

    name: str
    invoke: float
    per_mb_in: float
    per_mb_out: float
    per_mb_sent: float


LINKS = {
    link.name: link
    for link in (
        Link("usb3", 0.2778, 3.035, 32.24, 2.532),
        Link("usb2", 0.2382, 27.38, 85.7, 26.54),
        # No times by size are published for PCIe. Assumed: USB 3's overhead, 400 MB/s
        # (one Gen2 lane) both ways.
        Link("pcie", 0.28, 2.5, 2.5, 2.5),
    )
}
"""The links, by their names in a board's profile.

USB: fitted to 57 times of a Coral USB Accelerator. With each model left out in turn, 30
of 31 (USB 3) and 25 of 26 (USB 2) are predicted within 10 %.
"""

PER_MCYCLE = 0.9793
"""ms for 1e6 cycles of the compiler's own estimate; from the same fit, one figure for
both links.
"""

PER_MB_PARAMETERS = 0.2381
"""ms for the chip to read 1 MB of the parameters that it holds; from the same fit.

The compiler's cycles leave this out; a fully connected layer costs nothing else.
"""

PARAMETER_CACHE = 6_500_000
"""Bytes of parameters that stay on the chip, for all segments together.

Logs show 5.0 to 8.05 MiB, less with large activations, but no rule fits both the size
of the activations and the compilers' versions; this is their lower half.
"""


@dataclass(frozen=True)
class OpWork:
    """The work of one operation in a segment.

    Cycles and instruction bytes are estimated from these numbers.

    Attributes:
        dense_macs: multiply-accumulates of convolutions over all channels.
        depthwise_macs: multiply-accumulates of depthwise convolutions.
        elements: the number of computed elements.
        touched: bytes of activations read and written.
        constants: bytes of constants read.
    """

    dense_macs: int
    depthwise_macs: int
    elements: int
    touched: int
    constants: int

    @property
    def parameters(self) -> int:
        """Bytes of parameters in the compiled file."""
        # Depthwise weights are padded, hence a factor of their own.
        key = "depthwise_constant" if self.depthwise_macs else "constant"
        return round(LAYOUT[key] * self.constants)

    @property
    def cycles(self) -> float:
        """The compiler's own estimate, without fully connected layers, as it does."""
        c = CYCLES
        return (
            c["dense_mac"] * self.dense_macs
            + c["depthwise_mac"] * self.depthwise_macs
            + c["element"] * self.elements
        )

    @property
    def code(self) -> float:
        """Bytes of instructions: more if the activations are large and are tiled."""
        return CODE["operation"] + CODE["large_byte"] * max(0, self.touched - LARGE)


CYCLES = {
    "segment": 690.4,
    "dense_mac": 9.806e-4,
    "depthwise_mac": 7.539e-3,
    "element": 9.093e-4,
}
"""Coefficients of the compiler's cycle estimate, fitted to 33 compiled files that hold
one. Cross-validated, half of the estimates are within 5 %, nine in ten within 10 %.
"""

LARGE = 1_200_000
"""Bytes of activations of one operation beyond which its instructions grow."""

CODE = {"segment": 3021.0, "operation": 1943.0, "large_byte": 4.317e-3}
"""Coefficients of the instruction bytes, fitted to the logarithms of 80 compiled files.

Compilers differ by up to a factor of 3.7 for one model, so this is coarse: half are
within a factor of 1.4, nine in ten within 2.9.
"""

LAYOUT = {"constant": 1.071, "depthwise_constant": 3.448}
"""Bytes of parameters in a compiled file for each byte of constants, more for depthwise
convolutions, whose weights are padded. Half are within 5 %, three in four within 8 %.
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
        mcycles: 1e6 cycles of the compiler's estimate.
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
        # The chip reads its cached parameters faster than the link sends others.
        cached = self.parameters - streamed
        cycles_ms = PER_MCYCLE * self.mcycles
        return TpuTime(
            invoke=link.invoke,
            input=link.per_mb_in * self.bytes_in / _MB,
            output=link.per_mb_out * self.bytes_out / _MB,
            code=link.per_mb_sent * self.code / _MB,
            compute=cycles_ms + PER_MB_PARAMETERS * cached / _MB,
            streamed=link.per_mb_sent * streamed / _MB,
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
    # The compiler counts no cycles for fully connected layers.
    macs = 0 if op.kind == "fully_connected" else op.spec.macs(op)
    depthwise = macs if op.spec.channel_flow is ChannelFlow.DEPTHWISE else 0

    touched = sum(v.type.nbytes for v in op.outputs)
    constants = 0
    for v in op.inputs:
        if v.const is None:
            touched += v.type.nbytes
        else:
            constants += v.type.nbytes
    return OpWork(
        dense_macs=macs - depthwise,
        depthwise_macs=depthwise,
        elements=sum(v.type.size for v in op.outputs),
        touched=touched,
        constants=constants,
    )


def tpu_work(
    works: Sequence[OpWork], inputs: Iterable[Value], outputs: Iterable[Value]
) -> TpuWork:
    """Return the work of operations as one segment with these crossing values."""
    # Every segment has cycles and code of its own, whatever its operations.
    cycles = CYCLES["segment"] + sum(work.cycles for work in works)
    code = CODE["segment"] + sum(work.code for work in works)
    return TpuWork(
        bytes_in=sum(v.type.nbytes for v in inputs),
        bytes_out=sum(padded_bytes(v) for v in outputs),
        code=round(code),
        parameters=sum(work.parameters for work in works),
        mcycles=cycles / 1e6,
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
