"""What a segment costs on the Edge TPU in milliseconds: fits to published times and to
sizes in compiled files.

Everything here is an estimate, and is called one wherever it is shown. `make
cost-table` fits all coefficients anew, cross-validates them, and compares them with
these; a test fails when they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from edgec.ir import Op, Value
from edgec.ops.conv import DepthwiseConv2D
from edgec.ops.matmul import FullyConnected

_MB = 1e6


@dataclass(frozen=True)
class Link:
    """How an Edge TPU is attached: milliseconds for each inference, and for each MB
    (1e6 bytes) that moves.

    sent: instructions, and parameters beyond the on-chip memory, which go to the chip
    anew with every inference. Reading results back over USB is slow because the driver
    asks for 1 KB (USB 3) or 256 bytes (USB 2) at a time.
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
"""By the name that a board's profile gives.

USB: fitted to 57 times of a Coral USB Accelerator. With each model left out in turn, 30
of 31 (USB 3) and 25 of 26 (USB 2) are predicted within 10 %.
"""

PER_MCYCLE = 0.9793
"""ms for 1e6 cycles of the compiler's own estimate; from the same fit, one figure for
both links.
"""

PER_MB_PARAMETERS = 0.2381
"""ms for the chip to read 1 MB of the parameters that it holds; from the same fit.

The compiler's cycles leave this out, and it is all that a fully connected layer costs.
"""

PARAMETER_CACHE = 6_500_000
"""Bytes of parameters that stay on the chip, for all segments together.

Logs show 5.0 to 8.05 MiB, less with large activations, but no rule fits both the size
of the activations and the compilers' versions; this is their lower half.
"""


@dataclass(frozen=True)
class OpWork:
    """What one operation adds to a segment, in the units that cycles and instruction
    bytes are estimated from.

    dense_macs: of convolutions over all channels. depthwise_macs: of depthwise ones.
    elements: computed. touched: bytes of activations read and written. constants: bytes
    of what it reads besides.
    """

    dense_macs: int
    depthwise_macs: int
    elements: int
    touched: int
    constants: int

    @property
    def parameters(self) -> int:
        """Bytes of parameters in the compiled file."""
        return round(
            LAYOUT["depthwise_constant" if self.depthwise_macs else "constant"]
            * self.constants
        )

    @property
    def cycles(self) -> float:
        """What the compiler would estimate; fully connected layers count nothing there."""
        c = CYCLES
        return (
            c["dense_mac"] * self.dense_macs
            + c["depthwise_mac"] * self.depthwise_macs
            + c["element"] * self.elements
        )

    @property
    def code(self) -> float:
        """Bytes of instructions: so many for an operation, more where its activations
        are large and are tiled.
        """
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

    input, output, code: bytes over the link. streamed: parameters over the link.
    compute: on the chip.
    """

    invoke: float
    input: float
    output: float
    code: float
    compute: float
    streamed: float

    @property
    def ms(self) -> float:
        """The whole."""
        return (
            self.invoke
            + self.input
            + self.output
            + self.code
            + self.compute
            + self.streamed
        )

    def parts(self) -> dict[str, float]:
        """By name, in a fixed order."""
        return asdict(self)


@dataclass(frozen=True)
class TpuWork:
    """What one inference of an Edge TPU segment moves and computes. Sizes in bytes."""

    bytes_in: int
    bytes_out: int
    code: int
    parameters: int
    mcycles: float

    def parts(self, link: Link, streamed: int = 0) -> TpuTime:
        """Its time over a link, when `streamed` bytes of its parameters do not fit the
        on-chip memory.
        """
        return TpuTime(
            invoke=link.invoke,
            input=link.per_mb_in * self.bytes_in / _MB,
            output=link.per_mb_out * self.bytes_out / _MB,
            code=link.per_mb_sent * self.code / _MB,
            compute=PER_MCYCLE * self.mcycles
            + PER_MB_PARAMETERS * (self.parameters - streamed) / _MB,
            streamed=link.per_mb_sent * streamed / _MB,
        )

    def ms(self, link: Link, streamed: int = 0) -> float:
        """The sum of its parts."""
        return self.parts(link, streamed).ms

    def upload_ms(self, link: Link, streamed: int = 0) -> float:
        """What the first inference takes longer: the parameters that stay on the chip
        are sent to it.
        """
        return link.per_mb_sent * (self.parameters - streamed) / _MB


def op_work(op: Op) -> OpWork:
    """The work of one operation. Constants count for each operation that reads them."""
    macs = 0 if isinstance(op.spec, FullyConnected) else op.spec.macs(op)
    deep = macs if isinstance(op.spec, DepthwiseConv2D) else 0
    activations = [*(v for v in op.inputs if v.const is None), *op.outputs]
    return OpWork(
        dense_macs=macs - deep,
        depthwise_macs=deep,
        elements=sum(v.type.size for v in op.outputs),
        touched=sum(v.type.nbytes for v in activations),
        constants=sum(v.type.nbytes for v in op.inputs if v.const is not None),
    )


def tpu_work(
    works: Sequence[OpWork], inputs: Iterable[Value], outputs: Iterable[Value]
) -> TpuWork:
    """The work of operations as one segment with these crossing values."""
    cycles = CYCLES["segment"] + sum(w.cycles for w in works)
    return TpuWork(
        bytes_in=sum(v.type.nbytes for v in inputs),
        bytes_out=sum(map(padded_bytes, outputs)),
        code=round(CODE["segment"] + sum(w.code for w in works)),
        parameters=sum(w.parameters for w in works),
        mcycles=cycles / 1e6,
    )


def padded_bytes(v: Value) -> int:
    """Bytes of an Edge TPU output: channels padded to a multiple of 4, the whole to 8."""
    t = v.type
    channels = t.shape[-1] if t.rank else 1
    padded = t.size // max(channels, 1) * (-(-channels // 4) * 4)
    return -(-padded // 8) * 8


def streamed_bytes(works: Iterable[TpuWork]) -> list[int]:
    """How many bytes of each segment's parameters do not fit the on-chip memory that
    the segments share, in order.
    """
    left = PARAMETER_CACHE
    result = list[int]()
    for work in works:
        kept = min(left, work.parameters)
        left -= kept
        result.append(work.parameters - kept)
    return result
