"""What is written for the driver in C, beside what the driver in Python does."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from edgec_runtime.edgetpu_file.executable import Layer, Slice
from edgec_runtime.stick.layouts import OutputLayout, dense_bytes, write_input
from numpy.typing import NDArray

from edgec.emit.edgetpu_programs import COPY, input_copies, output_copies
from tests.stick.test_layouts import INT8, INT16, TILES, UINT8

Bytes = NDArray[np.uint8]
SHAPE = (2, 3, 2, 4, 3)
STRIDES = (211, 67, 31, 7, 2)
"""Of elements in five dimensions, none of which is dense."""


def layer(data_type: int, **more: object) -> Layer:
    fields: dict[str, object] = {
        "name": "out",
        "size": 192,
        "y": 3,
        "x": 4,
        "z": 3,
        "data_type": data_type,
        "zero_point": 0,
        "scale": 1.0,
        "executions": 1,
        "ranges": (),
        "layout": None,
        "slices": (),
        **more,
    }
    return Layer(**fields)  # type: ignore[arg-type]


def blocks(data_type: int) -> Layer:
    """Two halves in the second dimension, the second half first."""
    whole = tuple((0, n - 1) for n in SHAPE)
    parts = [
        Slice((whole[0], half, *whole[2:]), STRIDES, offset)
        for half, offset in (((0, 0), 300), ((1, 2), 4))
    ]
    return layer(
        data_type,
        size=2000,
        y=math.prod(SHAPE),
        x=1,
        z=1,
        ranges=whole,
        slices=tuple(parts),
    )


LAYERS = {
    "tiles": layer(UINT8, layout=TILES),
    "tiles of int8": layer(INT8, layout=TILES),
    "tiles of int16": layer(INT16, layout=TILES),
    "dense": layer(INT8),
    "executions": layer(INT8, size=16, y=1, x=1, z=13, executions=3),
    "blocks": blocks(UINT8),
    "blocks of int16": blocks(INT16),
}


def copied(copies: list[bytes], source: Bytes, target: Bytes, to_chip: bool) -> None:
    """As stick_copy of csrc/program_stick.h."""
    for one in copies:
        port, flip, tensor, chip, size, *loops = COPY.unpack(one)
        assert port == 2
        counts, tensor_strides, chip_strides = loops[:3], loops[3:6], loops[6:]
        for index in product(*map(range, counts)):
            a = tensor + sum(i * s for i, s in zip(index, tensor_strides, strict=True))
            b = chip + sum(i * s for i, s in zip(index, chip_strides, strict=True))
            start, end = (a, b) if to_chip else (b, a)
            piece = source[start : start + size].copy()
            if flip:
                piece[flip - 1 :: flip] ^= 0x80
            target[end : end + size] = piece


@pytest.mark.parametrize("name", LAYERS)
def test_outputs(name: str) -> None:
    one = LAYERS[name]
    rng = np.random.default_rng(1)
    memory = rng.integers(0, 256, 8 + one.size * one.executions, np.uint8)
    layout = OutputLayout(one)
    found, expected = (np.full(dense_bytes(one), 0xA5, np.uint8) for _ in range(2))
    layout.read(memory[8:], expected)
    copied(output_copies(layout, 2, 8), memory, found, to_chip=False)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["dense", "executions"])
def test_inputs(name: str) -> None:
    one = LAYERS[name]
    values = np.random.default_rng(2).integers(0, 256, dense_bytes(one), np.uint8)
    found, expected = (np.zeros(one.size * one.executions, np.uint8) for _ in range(2))
    write_input(one, values, expected)
    copied(input_copies(one, 2, 0), values, found, to_chip=True)
    np.testing.assert_array_equal(found, expected)
