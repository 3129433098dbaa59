"""Inputs and outputs in the chip's layout, beside the formula of each element."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import (
    DATA_TYPE_BYTES,
    Layer,
    Slice,
    TileLayout,
)
from edgec_runtime.edgetpu_file.flatbuffer import DamagedError
from edgec_runtime.stick.layouts import (
    OutputLayout,
    dense_shape,
    padded_bytes,
    write_input,
)

from tests.conftest import SHARED

UINT8, INT8, INT16 = 0, 8, 9
TILES = TileLayout(
    y_tile=(0, 0, 2),
    x_tile=(0, 0, 0, 1),
    tile_offset=(0, 32, 64, 80),
    x_offset=(0, 4, 8, 0),
    y_in_tile=(0, 1, 0),
    row_size=(12, 12, 12, 4),
)


def layer(data_type: int = UINT8, **more: object) -> Layer:
    found = Layer(
        name="out",
        size=96,
        y=3,
        x=4,
        z=3,
        data_type=data_type,
        zero_point=0,
        scale=1.0,
        executions=1,
        ranges=(),
        layout=TILES,
        slices=(),
    )
    return replace(found, **more)  # type: ignore[arg-type]


def by_formula(output: Layer, memory: np.ndarray) -> np.ndarray:
    """Each byte at the place that libedgetpu's GetBufferIndex gives."""
    size = DATA_TYPE_BYTES[output.data_type]
    found = np.empty((output.y, output.x, output.z, size), np.uint8)
    layout = output.layout
    assert layout is not None
    for y in range(output.y):
        for x in range(output.x):
            index = (
                layout.tile_offset[layout.y_tile[y] + layout.x_tile[x]]
                + layout.y_in_tile[y] * layout.row_size[x]
                + layout.x_offset[x]
            )
            for z in range(output.z):
                found[y, x, z] = memory[(index + z) * size :][:size]
    return found.reshape(-1)


def read(output: Layer, memory: np.ndarray) -> np.ndarray:
    found = np.empty(
        np.prod(dense_shape(output))
        * DATA_TYPE_BYTES[output.data_type]
        * output.executions,
        np.uint8,
    )
    OutputLayout(output).read(memory, found)
    return found


def test_tiles() -> None:
    memory = np.arange(96, dtype=np.uint8)
    np.testing.assert_array_equal(read(layer(), memory), by_formula(layer(), memory))
    np.testing.assert_array_equal(
        read(layer(INT8), memory), by_formula(layer(), memory) ^ 0x80
    )


def test_tiles_of_two_bytes() -> None:
    memory = np.random.default_rng(1).integers(0, 256, 192).astype(np.uint8)
    output = layer(INT16, size=192)
    expected = by_formula(output, memory)
    expected[1::2] ^= 0x80
    np.testing.assert_array_equal(read(output, memory), expected)


@pytest.mark.shared
def test_every_output_of_compiled_files() -> None:
    """All layouts that Google's compiler wrote, with random bytes."""
    rng = np.random.default_rng(2)
    index = json.loads((SHARED / "edgetpu/compiled/index.json").read_text())
    count = 0
    for entry in index:
        data = (SHARED / "edgetpu" / entry["compiled"]).read_bytes()
        for package in read_compiled(data, entry["name"]).packages:
            for executable in package.executables:
                for output in executable.outputs:
                    memory = rng.integers(0, 256, padded_bytes(output), np.uint8)
                    unsigned = replace(output, data_type=UINT8)
                    if DATA_TYPE_BYTES[output.data_type] > 1:
                        continue
                    if output.y * output.x * output.z > 100_000:
                        continue
                    if output.y == output.x == 1:
                        expected = memory[: output.z]
                    else:
                        expected = by_formula(unsigned, memory)
                    np.testing.assert_array_equal(read(unsigned, memory), expected)
                    count += 1
    assert count > 50


def test_blocks() -> None:
    """The rows of a 4 x 2 output come in the opposite halves, with padding."""
    output = layer(
        size=64,
        y=4,
        x=2,
        z=1,
        layout=None,
        ranges=((0, 0), (0, 3), (0, 1)),
        slices=(
            Slice(((0, 0), (0, 1), (0, 1)), (8, 4, 2), 32),
            Slice(((0, 0), (2, 3), (0, 1)), (8, 4, 2), 0),
        ),
    )
    memory = np.arange(64, dtype=np.uint8)
    assert read(output, memory).tolist() == [32, 34, 36, 38, 0, 2, 4, 6]


def test_executions() -> None:
    """Each execution of a network that is run in steps is padded for itself."""
    steps = layer(INT8, size=8, y=1, x=1, z=3, executions=2, layout=None)
    memory = np.zeros(16, np.uint8)
    write_input(steps, np.arange(6, dtype=np.int8), memory)
    assert memory.tolist() == [128, 129, 130, *[0] * 5, 131, 132, 133, *[0] * 5]
    assert read(steps, memory).tolist() == [*range(6)]


def test_damaged_layouts() -> None:
    for damaged in (
        layer(size=8),
        layer(layout=replace(TILES, tile_offset=(0, 32, 64, 8000))),
        layer(layout=replace(TILES, tile_offset=(0, 32))),
        layer(layout=replace(TILES, x_offset=(8, 4, 0, 0))),
        layer(executions=2),
    ):
        with pytest.raises(DamagedError):
            OutputLayout(damaged)
