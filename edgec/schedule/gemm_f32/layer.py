"""Float layers that kernels with packed weights can compute."""

from __future__ import annotations

from dataclasses import dataclass

from edgec.ir import Array, KernelCall, Table, constant
from edgec.ir.kernel import Operand
from edgec.schedule.gemm_f32.epilogue import Epilogue, epilogue
from edgec.schedule.gemm_f32.windows import pad_channels


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """A convolution or fully connected layer with constant weights.

    Attributes:
        x: the image
        weights: as the plain kernel has them
        bias: [oc]
        epilogue: the steps that follow the sums
    """

    x: Operand
    weights: Array
    bias: Array
    epilogue: Epilogue

    @property
    def added(self) -> Operand:
        """The tensor that is added, as an operand; 0: none."""
        return self.epilogue.added or 0

    def padded_bias(self, groups: int, lanes: int) -> Table:
        """Return the bias in vectors of `lanes` floats, the channels of groups apart."""
        return Table(pad_channels(self.bias, groups, lanes), "b")

    def padded_slope(self, groups: int, lanes: int) -> Table | int:
        """Return the slopes of a PReLU in vectors; 0: none."""
        slope = self.epilogue.slope
        return 0 if slope is None else Table(pad_channels(slope, groups, lanes), "s")


def float_layer(call: KernelCall) -> FloatLayer | None:
    """Return the layer of a call.

    None where weights or bias are computed, so that they cannot be packed at compile
    time, or where a call that follows is no step of the epilogue.
    """
    weights = constant(call.operands[1])
    bias = constant(call.operands[2])
    if weights is None or bias is None:
        return None

    steps = epilogue(call)
    if steps is None:
        return None

    return FloatLayer(call.operands[0], weights, bias, steps)
