"""How long one core takes for an operation in plain C: instructions by kind of operation, and the rate of a core.

The table holds what was counted on an emulated Raspberry Pi 4 (aarch64, zig -O3) for 721 operations of ten real
networks, each compiled as a segment of its own. Half of the convolutions are within 13 % of the count, most of the rest
within a factor of 2; small operations are dominated by what the table leaves out. Instructions become time as
`emulated:` does it, with a board's clock and mean instructions per cycle, and its limits hold here too
(devices/edgec_devices/links/emulated.py). Measurements on a board can replace the table row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edgec.ir import Op


class Instructions(NamedTuple):
    """Instructions for each multiply-accumulate, and for each element of inputs or outputs, whichever are more."""

    mac: float
    element: float


QUANTIZED: dict[str, Instructions] = {
    "conv2d": Instructions(1.22, 2.6),
    "depthwise_conv2d": Instructions(3.1, 0.0),
    "fully_connected": Instructions(1.45, 0.0),
    "add": Instructions(0, 7.7),
    "sub": Instructions(0, 9.0),
    "mul": Instructions(0, 4.0),
    "average_pool2d": Instructions(0, 0.9),
    "max_pool2d": Instructions(0, 1.2),
    "concat": Instructions(0, 1.0),
    "pad": Instructions(0, 0.3),
    "slice": Instructions(0, 4.4),
    "logistic": Instructions(0, 5.5),
    "tanh": Instructions(0, 5.5),
    "softmax": Instructions(0, 58.0),
    "quantize": Instructions(0, 2.4),
    "resize_bilinear": Instructions(0, 6.2),
    "gather_nd": Instructions(0, 1.0),
}
"""By the kind of an operation whose output is int8 or uint8."""

OTHER: dict[str, Instructions] = {
    "conv2d": Instructions(0.84, 4.7),
    "depthwise_conv2d": Instructions(1.32, 0.8),
    "fully_connected": Instructions(9.0, 0.0),
    "add": Instructions(0, 0.7),
    "sub": Instructions(0, 0.7),
    "mul": Instructions(0, 0.7),
    "div": Instructions(0, 0.7),
    "sqrt": Instructions(0, 0.7),
    "average_pool2d": Instructions(0, 0.6),
    "max_pool2d": Instructions(0, 2.0),
    "concat": Instructions(0, 0.5),
    "pad": Instructions(0, 0.8),
    "slice": Instructions(0, 1.1),
    "transpose": Instructions(0, 0.7),
    "cast": Instructions(0, 0.9),
    "arg_max": Instructions(0, 6.8),
    "prelu": Instructions(0, 2.5),
    "logistic": Instructions(0, 105.0),
    "tanh": Instructions(0, 105.0),
    "softmax": Instructions(0, 105.0),
    "dequantize": Instructions(0, 2.7),
    "resize_nearest": Instructions(0, 0.8),
}
"""By the kind of an operation with any other output, nearly always float32."""

UNKNOWN = Instructions(1.3, 8.0)
"""For kinds that were not counted."""


@dataclass(frozen=True)
class CpuCost:
    """The rate of one core: 1e9 instructions of our generated C per second. The default is a Raspberry Pi 4."""

    gips: float = 1.8 * 1.15

    @classmethod
    def scaled(cls, clock_ghz: float, ipc: float) -> CpuCost:
        """For a core of this clock and these instructions per cycle, as a board's profile gives them."""
        return cls(clock_ghz * ipc)

    def op_ms(self, op: Op) -> float:
        """One op. A view costs nothing."""
        if op.spec.view:
            return 0.0
        table = QUANTIZED if op.outputs[0].type.dtype in ("int8", "uint8") else OTHER
        per = table.get(op.kind, UNKNOWN)
        read = sum(v.type.size for v in op.inputs if v.const is None)
        count = per.mac * op.spec.macs(op) + per.element * max(read, sum(v.type.size for v in op.outputs))
        return count / (1e6 * self.gips)
