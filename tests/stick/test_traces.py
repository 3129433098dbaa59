"""What our driver and libedgetpu send for the same file, line by line of the stick's log.

docs/stick.md explains each difference.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from pathlib import Path

import pytest
from edgec_devices.stick import Stick, StickOptions

from tests.stick import driving, real_stack
from tests.stick.plugged import plugged
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    PATIENT,
    entry,
    random_inputs,
    source,
)

pytestmark = [pytest.mark.cc, pytest.mark.shared]
DIFFERENCES = [
    "- reset of the port",
    # the heat's interrupts and shutdown, the memories' test, the bus's errors: off
    "- read32 0x1a0d4 = 0x80000000",
    "- write32 0x1a0d4 = 0x0",
    "- read32 0x1a704 = 0x0",
    "- write32 0x1a704 = 0x700000",
    "- read32 0x1a33c = 0x0",
    "- write32 0x1a33c = 0xc0000",
    "- write32 0x1a500 = 0x0",
    "- write32 0x1a600 = 0x0",
    "- write32 0x1a558 = 0x0",
    "- write32 0x1a658 = 0x0",
    "- read32 0x1a0d8 = 0x80000000",
    "- write32 0x1a0d8 = 0x0",
]
"""Lines of libedgetpu's trace that ours lacks, in order; ours has no further ones."""


def without_addresses(lines: list[str]) -> list[str]:
    """Instructions without their hashes, since each driver links addresses of its own."""
    return [
        line.rpartition(" ")[0] if line.startswith("packet instructions") else line
        for line in lines
    ]


@pytest.mark.parametrize(
    "name", ["dense_256", "bright_128x128", "split_concat", "dense_1024"]
)
@pytest.mark.parametrize("super_speed", [True, False])
def test_both_send_the_same(name: str, super_speed: bool, tmp_path: Path) -> None:
    """Registers with their values, packets with their bytes, events; three calls."""
    file = entry(name)
    graph = source(file)
    path = EDGETPU / file.compiled
    calls = [random_inputs(graph, seed) for seed in range(3)]
    options = StickOptions(super_speed=super_speed, firmware=True)
    with Stick.serve(EDGETPU, options) as stick:
        answer = real_stack.run(
            stick, [real_stack.Call(path, inputs) for inputs in calls], tmp_path
        )
        assert answer.code == 0, answer.text
        theirs = stick.lines
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        how = replace(PATIENT, clock="max", firmware=str(FIRMWARE_FROM))
        process.call(driving.open_driver, how)
        for inputs in calls:
            process.call(driving.run, path, inputs)
        process.call(driving.close_driver)
        ours = stick.lines
    differences = [
        line
        for line in difflib.ndiff(without_addresses(theirs), without_addresses(ours))
        if line[0] in "+-"
    ]
    assert differences == DIFFERENCES
