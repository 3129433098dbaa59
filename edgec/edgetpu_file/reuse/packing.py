"""Packs the weights and biases of a layer as the chip reads them.

The layout is that of docs/isa/codegen_conv.md in FrederikRogalski/tinycoral: for each
group of up to 64 outputs a row of int32 biases, then for each step of the sum a row with
four weights for each output. Depthwise layers, found here: for each four channels their
biases, then for each place of the kernel a 4 x 4 matrix with the weights on its diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgec.edgetpu_file.reuse.window import Tap

GROUP = 64
"""Outputs that are computed together."""
DEPTH = 4
"""Input channels in a step."""
_LANE = 16
"""Outputs of 64 bytes of a row; smaller groups are whole lanes."""


def up(number: int, step: int) -> int:
    """Return the next multiple of a step."""
    return -(-number // step) * step


def groups(outputs: int) -> int:
    """Return the number of groups of outputs."""
    return -(-outputs // GROUP)


def lanes(outputs: int) -> int:
    """Return the outputs that a row has, with the padding."""
    return min(GROUP, up(outputs, _LANE))


def dense_size(outputs: int, steps: int, heads: int) -> int:
    """Return the bytes of a convolution or fully connected layer.

    heads: the numbers that each output has before its weights.
    """
    return groups(outputs) * lanes(outputs) * DEPTH * (steps + heads)


def dense(
    weights: NDArray[np.uint8],
    heads: Sequence[NDArray[Any]],
    zero_point: int,
    order: Sequence[Tap],
) -> bytes:
    """Return the packed parameters of a convolution or fully connected layer.

    Args:
        weights: [outputs, height, width, inputs]
        heads: [outputs] of 4 bytes each, such as the biases
        zero_point: of the weights, which pads them
        order: the steps of the sum
    """
    outputs, _, _, inputs = weights.shape
    padded = np.full((*weights.shape[:3], up(inputs, DEPTH)), zero_point, np.uint8)
    padded[..., :inputs] = weights
    steps = np.stack(
        [padded[:, t.y, t.x, DEPTH * t.word : DEPTH * (t.word + 1)] for t in order], 1
    )
    width = lanes(outputs)
    parts = list[bytes]()
    for first in range(0, outputs, GROUP):
        count = min(GROUP, outputs - first)
        # Outputs are computed by fours; what follows these is not read.
        rows = np.zeros((len(order), width, DEPTH), np.uint8)
        rows[:, : up(count, DEPTH)] = zero_point
        rows[:, :count] = steps[first : first + count].transpose(1, 0, 2)
        for head in heads:
            row = np.zeros(width, head.dtype)
            row[:count] = head[first : first + count]
            parts.append(row.tobytes())
        parts.append(rows.tobytes())
    return b"".join(parts)


def depthwise_size(channels: int, places: int, heads: int) -> int:
    """Return the bytes of a depthwise layer; heads: as of `dense_size`."""
    return up(channels, DEPTH) * (DEPTH * places + DEPTH * heads)


def depthwise(
    weights: NDArray[np.uint8],
    heads: Sequence[NDArray[Any]],
    zero_point: int,
    order: Sequence[Tap],
) -> bytes:
    """Return the packed parameters of a depthwise layer.

    Args:
        weights: [height, width, channels]
        heads: [channels] of 4 bytes each, such as the biases
        zero_point: of the weights, which fills the matrices
        order: the places of the kernel
    """
    channels = weights.shape[2]
    padded = np.full((*weights.shape[:2], up(channels, DEPTH)), zero_point, np.uint8)
    padded[..., :channels] = weights
    padding = (0, padded.shape[2] - channels)
    whole = [np.pad(head, padding) for head in heads]
    diagonal = np.arange(DEPTH)
    parts = list[bytes]()
    for first in range(0, channels, DEPTH):
        block = slice(first, first + DEPTH)
        parts += [head[block].tobytes() for head in whole]
        matrices = np.full((len(order), DEPTH, DEPTH), zero_point, np.uint8)
        for k, tap in enumerate(order):
            matrices[k, diagonal, diagonal] = padded[tap.y, tap.x, block]
        parts.append(matrices.tobytes())
    return b"".join(parts)
