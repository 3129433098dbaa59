"""The units of the simulated chip, in programs of a few instructions."""

from __future__ import annotations

import numpy as np
import pytest

from edgec.edgetpu_file.assembly import assemble
from edgec.edgetpu_file.simulator.chip import Chip, NotUnderstoodError, StuckError
from edgec.edgetpu_file.simulator.host import INTERRUPT, OUTPUT, Host
from edgec.edgetpu_file.simulator.scalar_core import ScalarCore
from edgec.edgetpu_file.simulator.understood import check
from edgec.edgetpu_file.stream import Instruction, split

ROW = 256


def program(*lines: str) -> list[Instruction]:
    """Return the instructions of a text, and a halt."""
    return [*split(assemble([*lines, "halt"], "test"))]


def run(chip: Chip, *lines: str, host: Host | None = None) -> Host:
    """Run a program on a chip; return the host's end."""
    host = host or Host({})
    instructions = program(*lines)
    for instruction in instructions:
        check(instruction)
    ScalarCore(chip, host).run(instructions)
    return host


def test_a_constant_goes_from_a_tile_to_its_neighbours_and_the_ring() -> None:
    """Tile 5 fills 64 words; they go north, and by the ring to tiles 8 and 15."""
    chip = Chip()
    words = "step0=1 {0}.more0=63 {0}.step1=-63"
    to = "to=1024 to." + words.format("to")
    run(
        chip,
        f"mesh_west tiles=0x20 {to} fill=1 filling=0x04030201",
        f"mesh_north tiles=0x20 from=1024 from.{words.format('from')}",
        f"mesh_north tiles=0x2 to=2048 to.{words.format('to')}",
        "tile_fence tiles=0xffff units=0x3ff",
        "wide_to_narrow tiles=0x8100 wide=8312 wide.ring_rows=1 wide.ring_level=1 narrow=8"
        " narrow.step0=1 narrow.more0=63 wait0.counter=14 wait0.level=1 wait0.value=1"
        " wait0.on=1",
        "receive_a tiles=0x8100 to=8312 to.ring_rows=1 to.ring_level=1",
        "send tiles=0x20 from=8304 from.ring_rows=1 from.ring_level=1 wait0.counter=13"
        " wait0.value=1 wait0.on=1 to_tiles=0x8100",
        "narrow_to_wide tiles=0x20 counts=1 narrow=256 narrow.step0=1 narrow.more0=63 wide=8304"
        " wide.ring_rows=1 wide.ring_level=1 row_levels=1",
    )
    expected = np.tile(np.arange(1, 5, dtype=np.uint8), 64)
    for tile, at in ((5, 1024), (1, 2048), (8, 32), (15, 32)):
        np.testing.assert_array_equal(chip.narrow[tile, at : at + ROW], expected)
    assert not chip.narrow[0].any()


@pytest.mark.parametrize("seed", range(5))
def test_fully_connected_layer(seed: int) -> None:
    """12 inputs, 8 outputs with biases: multiplied in float32, clamped, half to even."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, 12, np.uint8)
    w = rng.integers(0, 256, (8, 12), np.uint8)
    bias = rng.integers(-1000, 1000, 8).astype(np.int32)
    chip = Chip()
    chip.narrow[3, 64:76] = x
    chip.wide[3, :32] = bias.view(np.uint8)
    for step in range(3):
        row = w[:, 4 * step : 4 * step + 4].reshape(-1)
        chip.wide[3, ROW * (1 + step) :][:32] = row
    run(
        chip,
        "wide_to_narrow tiles=0x8 narrow.step0=1 narrow.more0=31 scaling=1",
        "compute tiles=0x8 loop0=2 in=64 in.step0=4 in.more0=2 out=128 out.step0=4"
        " out.more0=1 parameters=4 parameters.step0=4 parameters.more0=2 ?1563=0x65"
        " ?1843=0x7 wait0.counter=12 wait0.level=1 wait0.value=1 wait0.step=1 wait0.on=1"
        " in_zero=127 weight_zero=128 sum_over=0x1 last_channels=7 channels=7"
        " multiplier=0.0009765625 most=100.0 least=-90.0 out_zero=110 biases=1",
    )
    sums = (w.astype(np.int32) - 128) @ (x.astype(np.int32) - 127) + bias
    real = np.clip(sums.astype(np.float32) / np.float32(1024), -90, 100)
    expected = np.rint(real).astype(np.int64) + 110
    np.testing.assert_array_equal(chip.narrow[3, 128:136], expected)


def test_sum_that_ties() -> None:
    """1/2, 3/2, 5/2 and 7/2 become 0, 2, 2 and 4."""
    chip = Chip()
    chip.narrow[0, :4] = 1, 3, 5, 7
    chip.wide[0, ROW : ROW + 16] = np.eye(4, dtype=np.uint8).reshape(-1)
    run(
        chip,
        "compute tiles=0x1 in.step0=4 out=16 out.step0=4 parameters=4 ?1563=0x65"
        " ?1843=0x7 sum_over=0x1 last_channels=3 channels=3 multiplier=0.5 most=255.0",
    )
    assert chip.narrow[0, 16:20].tolist() == [0, 2, 2, 4]


def test_output_and_interrupt() -> None:
    """Tiles send in their order, though the first is ready last; then an interrupt."""
    chip = Chip()
    chip.wide[0, :ROW], chip.wide[1, :ROW] = 7, 9
    words = [
        f"scalar alu=0x2f alu.to={k} immediate={value}"
        for k, value in enumerate((0, 5, 24, OUTPUT))
    ]
    push = [f"scalar act=0xa act.at={k} act.register={k}" for k in range(4)]
    order = "wait0.counter=17 wait0.level=2 wait0.on=1 to_scalar_core=1"
    host = run(
        chip,
        *words,
        *push,
        "scalar act=0xc",
        "outfeed to=3 units.more0=1",
        "outfeed to=3",
        f"send tiles=0x2 from=0 {order} wait0.value=1",
        f"send tiles=0x1 from=0 {order}",
        f"scalar alu=0x2f alu.to=3 immediate={INTERRUPT}",
        "scalar act=0xa act.at=3 act.register=3",
        "scalar act=0xc",
        host=Host({5: bytearray(24)}),
    )
    assert bytes(host.buffers[5]) == bytes([7] * 16 + [9] * 8)
    assert host.interrupts == 1


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("send tiles=0x1 ?484=0x1", "?484"),
        ("compute tiles=0x1 ?1563=0x33", "?1563"),
        ("infeed if=1", "if"),
        ("scalar load=1", "load"),
        ("repeat times=1", "repeat"),
        ("word 0x0b40", "0x2d"),
    ],
)
def test_what_is_not_understood(line: str, field: str) -> None:
    """The message names the instruction, and the field."""
    (instruction, _) = program(line)
    with pytest.raises(NotUnderstoodError, match="instruction ") as e:
        check(instruction)
    assert field in str(e.value)


def test_program_that_waits_for_ever() -> None:
    """A unit that nobody sends to is named."""
    with pytest.raises(StuckError, match="receive_a of tile 2"):
        run(Chip(), "receive_a tiles=0x4 to=0 to.step0=1")
