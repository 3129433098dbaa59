"""Two sticks at one machine: one that is in use or gone leaves the other, whichever driver
looks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_devices.stick.sources import read_folder
from edgec_runtime import DeviceError
from edgec_runtime.stick import firmware

from tests.stick import driving, driving_c
from tests.stick.plugged import Kernel, Plugged, environment_of
from tests.stick.test_c_driver import DENSE, opened, right
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    random_inputs,
    same,
    source,
)

pytestmark = [pytest.mark.cc, pytest.mark.shared]


@pytest.fixture
def sticks(tmp_path: Path) -> Iterator[tuple[Stick, Stick]]:
    """Both were just plugged in, and have no firmware."""
    book = read_folder(EDGETPU, ("dense_256",))
    # They are away for longer than the pause between two looks, as real ones are.
    options = StickOptions(enumeration_s=0.5)
    with Stick.serve(book, options) as one, Stick.serve(book, options) as other:
        kernels = Kernel(one, tmp_path, 1), Kernel(other, tmp_path, 2)
        try:
            yield one, other
        finally:
            for kernel in kernels:
                kernel.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[Plugged, Plugged, Plugged]]:
    """Three, of which each has both sticks."""
    variables = {**environment_of(tmp_path), firmware.VARIABLE: str(FIRMWARE_FROM)}
    three = Plugged(variables), Plugged(variables), Plugged(variables)
    try:
        yield three
    finally:
        for process in three:
            process.close()


def inference(process: Plugged, seed: int) -> None:
    graph = source(DENSE)
    inputs = random_inputs(graph, seed)
    same(process.call(driving.run, EDGETPU / DENSE.compiled, inputs), graph, inputs)


def test_each_program_has_its_own(
    sticks: tuple[Stick, Stick], processes: tuple[Plugged, Plugged, Plugged]
) -> None:
    """The first stick gets its firmware although the second has none either."""
    in_c, in_python, third = processes
    assert opened(in_c, DENSE) == ""
    in_python.call(driving.open_driver)
    for seed in range(3):
        assert right(in_c, DENSE, seed)
        inference(in_python, seed)
    for stick in sticks:
        assert sum("packet input" in line for line in stick.lines) == 3
    with pytest.raises(DeviceError) as e:
        third.call(driving.open_driver)
    assert "in use by another program" in e.value.what
    assert "in use by another program" in opened(third, DENSE)


def test_one_is_gone(
    sticks: tuple[Stick, Stick], processes: tuple[Plugged, Plugged, Plugged]
) -> None:
    """The next opening takes the other one."""
    in_c, in_python, _ = processes
    assert opened(in_c, DENSE) == ""
    assert right(in_c, DENSE, 0)
    sticks[0].plan([Fault(What.UNPLUG, Phase.INPUT, absence_s=None)])
    assert not right(in_c, DENSE, 1)
    assert in_c.call(driving_c.connect) == ""
    assert right(in_c, DENSE, 2)
    in_c.call(driving_c.stop)
    in_python.call(driving.open_driver)
    inference(in_python, 3)
    assert sum("packet input" in line for line in sticks[1].lines) == 2
