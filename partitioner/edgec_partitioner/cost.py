"""What a placement costs in milliseconds: fits to published Edge TPU times, and rough rates of plain C on a CPU.

Everything here is an estimate, and is called one wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgec.ir import Op, Value
from edgec.ops.conv import DepthwiseConv2D

_MB = 1e6


@dataclass(frozen=True)
class Link:
    """How an Edge TPU is attached, as the coefficients of one inference.

    t[ms] = invoke + per_mb_in * inputs + per_mb_out * padded outputs + per_mb_code * instructions
          + per_mb_streamed * parameters beyond the on-chip memory + per_mcycle * estimated Mcycles

    sizes in MB = 1e6 bytes. USB: fitted to times of a Coral USB Accelerator (27 of 31 points within 9 %, 25 of 26
    within 7 %); reading results back is slow there because the driver asks for 1 KB (USB 3) or 256 bytes at a time.
    """

    name: str
    invoke: float
    per_mb_in: float
    per_mb_out: float
    per_mb_code: float
    per_mb_streamed: float
    per_mcycle: float


LINKS = {
    link.name: link
    for link in (
        Link("usb3", 0.256, 3.25, 32.4, 6.4, 1.9, 1.02),
        Link("usb2", 0.179, 27.2, 85.7, 38.0, 23.8, 0.96),
        # No times by size are published for PCIe. Assumed: USB 3's overhead, 400 MB/s (one Gen2 lane) both ways.
        Link("pcie", 0.25, 2.5, 2.5, 2.5, 2.5, 1.02),
    )
}
"""By the name that a board's profile gives."""

PARAMETER_CACHE = 6_500_000
"""Bytes of parameters that stay on the chip, for all segments together; logs show 5.0 to 8.05 MiB."""


@dataclass(frozen=True)
class CpuCost:
    """Rates of plain C kernels on one core, in 1e9 per second: multiply-accumulates, and elements of other ops.

    The defaults are a Cortex-A72 at 1.5 GHz with about one multiply-accumulate per cycle.
    """

    gmacs_int8: float = 1.5
    gmacs_float: float = 1.5
    gelements: float = 0.3

    @classmethod
    def scaled(cls, clock_ghz: float, ipc: float) -> CpuCost:
        """For a core of this clock and these instructions per cycle (the default has 1.5 GHz and 1.4)."""
        k = clock_ghz / 1.5 * ipc / 1.4
        return cls(cls.gmacs_int8 * k, cls.gmacs_float * k, cls.gelements * k)

    def op_ms(self, op: Op) -> float:
        """One op. A view costs nothing."""
        if op.spec.view:
            return 0.0
        y = op.outputs[0].type
        macs = op.spec.macs(op)
        rate = self.gmacs_float if y.dtype == "float32" else self.gmacs_int8
        return 1e-6 * (macs / rate + sum(v.type.size for v in op.outputs) / self.gelements)


@dataclass(frozen=True)
class TpuWork:
    """What one inference of an Edge TPU segment moves and computes. Sizes in bytes."""

    bytes_in: int
    bytes_out: int
    code: int
    parameters: int
    mcycles: float

    def ms(self, link: Link, streamed: int = 0) -> float:
        """Its time over a link, when `streamed` bytes of its parameters do not fit the on-chip memory."""
        return (
            link.invoke
            + link.per_mb_in * self.bytes_in / _MB
            + link.per_mb_out * self.bytes_out / _MB
            + link.per_mb_code * self.code / _MB
            + link.per_mb_streamed * streamed / _MB
            + link.per_mcycle * self.mcycles
        )


def tpu_work(ops: Sequence[Op], inputs: Iterable[Value], outputs: Iterable[Value]) -> TpuWork:
    """The work of ops as one segment with these crossing values.

    Cycles and code size are fits to the compiler's own figures in compiled files (cycles: 90 % of them within 8 %;
    code: half of them within a factor of 1.6).
    """
    dense = deep = elements = parameters = 0
    seen: set[Value] = set()
    for op in ops:
        macs = op.spec.macs(op)
        if isinstance(op.spec, DepthwiseConv2D):
            deep += macs
        else:
            dense += macs
        elements += sum(v.type.size for v in op.outputs)
        fresh = {v for v in op.inputs if v.const is not None} - seen
        parameters += sum(v.type.nbytes for v in fresh)
        seen |= fresh
    cycles = 700 + dense / 1020 + deep / 133 + elements / 1100
    code = 2600 + 1860 * len(ops) + elements // 1400
    return TpuWork(sum(v.type.nbytes for v in inputs), sum(map(padded_bytes, outputs)), code, parameters, cycles / 1e6)


def padded_bytes(v: Value) -> int:
    """Bytes of an Edge TPU output: channels padded to a multiple of 4, the whole to 8."""
    t = v.type
    channels = t.shape[-1] if t.rank else 1
    padded = t.size // max(channels, 1) * (-(-channels // 4) * 4)
    return -(-padded // 8) * 8


def streamed_bytes(works: Iterable[TpuWork]) -> list[int]:
    """How many bytes of each segment's parameters do not fit the on-chip memory that the segments share, in order."""
    left, result = PARAMETER_CACHE, list[int]()
    for work in works:
        kept = min(left, work.parameters)
        left -= kept
        result.append(work.parameters - kept)
    return result
