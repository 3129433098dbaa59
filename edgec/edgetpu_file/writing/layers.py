"""A chain of fully connected layers, as the numbers that the instructions need."""

from __future__ import annotations

from dataclasses import dataclass

from edgec.edgetpu_file.programs import WIDE_UNIT
from edgec.edgetpu_file.reuse.packing import DEPTH, GROUP, groups, lanes, up
from edgec.ops.edgetpu_law import Clamps

ROW = 256


@dataclass(frozen=True)
class DenseLayer:
    """A fully connected layer.

    Attributes:
        inputs, outputs: how many
        parameters: packed, as `packing.dense` gives them
        heads: rows of multipliers, zero points or biases before the weights of a tile
        in_zero, weight_zero, out_zero: of unsigned integers
        multiplier: of all outputs; 1 where each has its own
        clamps: bounds of the outputs
        biases: whether the first head has biases
    """

    inputs: int
    outputs: int
    parameters: bytes
    heads: int
    in_zero: int
    weight_zero: int
    out_zero: int
    multiplier: float
    clamps: Clamps
    biases: bool

    @property
    def tiles(self) -> int:
        """Return how many tiles compute: one for each 64 outputs."""
        return groups(self.outputs)

    @property
    def steps(self) -> int:
        """Return the steps of a sum: four inputs each."""
        return up(self.inputs, DEPTH) // DEPTH

    @property
    def rows(self) -> int:
        """Return the rows of wide memory that it has in each tile."""
        return self.heads + self.steps

    @property
    def lanes(self) -> int:
        """Return the units of 64 bytes in a row of its parameters."""
        return DEPTH * lanes(self.outputs) // WIDE_UNIT

    def channels(self, tile: int) -> int:
        """Return the outputs of a tile, whole words."""
        return up(min(GROUP, self.outputs - GROUP * tile), DEPTH)
