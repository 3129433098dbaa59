"""Answers of the stick of other lengths, kinds and times than its program has: every
inference equals the source's, by the stick or, of the driver in C, by the twin.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_runtime import DeviceError

from tests.stick import driving
from tests.stick.plugged import Plugged, plugged
from tests.stick.schedules import INTERRUPTS
from tests.stick.test_c_driver import opened, right
from tests.stick.test_driver import EDGETPU, entry, random_inputs, same, source
from tests.stick.test_faults import OPTIONS

pytestmark = [pytest.mark.cc, pytest.mark.shared]
FILE = entry("dense_256")
WHOLE = entry("dense_1024")
"""Its output ends with a full packet."""
LIMIT_S = 20.0

ODD = [
    *(
        Fault(what, phase)
        for what in (What.LONG, What.EMPTY, What.STRAY, What.SHORT)
        for phase in (Phase.OUTPUT, Phase.EVENT)
    ),
    Fault(What.ENDLESS, Phase.OUTPUT),
    # Late, in time; late, when the driver has given up waiting, or is about to.
    *(
        Fault(What.LATE, phase, absence_s=late)
        for phase in (Phase.OUTPUT, Phase.EVENT)
        for late in (0.1, 0.99, 1.0, 1.01, 1.3)
    ),
    *(
        Fault(What.INTERRUPT, phase, data=data)
        for phase in (Phase.INPUT, Phase.EVENT)
        for data in INTERRUPTS
    ),
    *(
        Fault(what, Phase.REGISTER, number)
        for what in (What.SHORT, What.REFUSE)
        for number in (1, 40)
    ),
]


def name(fault: Fault) -> str:
    late = f"-{fault.absence_s}" if fault.what is What.LATE else ""
    return f"{fault.what.value}-{fault.phase.value}{late}-{fault.data.hex()}".strip("-")


def in_python(process: Plugged, seed: int) -> None:
    """An inference that the stick runs, or the next one after an error."""
    for file in (FILE, WHOLE):
        graph = source(file)
        inputs = random_inputs(graph, seed)
        path = EDGETPU / file.compiled
        found = None
        with contextlib.suppress(DeviceError):
            found = process.call(driving.run_or_open, OPTIONS, path, inputs)
        if found is None:
            found = process.call(driving.run_or_open, OPTIONS, path, inputs)
        same(found, graph, inputs)


def in_c(process: Plugged, seed: int) -> None:
    """An inference that the stick runs, or that is left to the twin once."""
    for i, file in enumerate((FILE, WHOLE)):
        assert right(process, file, seed, segment=i) or right(
            process, file, seed, segment=i
        )


def open_in_python(process: Plugged) -> None:
    process.call(driving.open_driver, OPTIONS)


def open_in_c(process: Plugged) -> None:
    assert opened(process, FILE, WHOLE, least=1.0, first=6.0) == ""


DRIVERS = [(open_in_python, in_python), (open_in_c, in_c)]


@pytest.mark.sweep(6)
@pytest.mark.parametrize("fault", ODD, ids=name)
@pytest.mark.parametrize("super_speed", [True, False])
@pytest.mark.parametrize(("start", "infer"), DRIVERS, ids=["python", "c"])
def test_an_odd_answer(
    start: Callable[[Plugged], None],
    infer: Callable[[Plugged, int], None],
    super_speed: bool,
    fault: Fault,
    tmp_path: Path,
) -> None:
    """In the first inference, when nothing is known, and in a later one."""
    options = StickOptions(super_speed=super_speed, firmware=True)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        start(process)
        before = process.call(driving.descriptors)
        for seed in range(6):
            if seed in (0, 3):
                stick.plan([fault])
                if fault.phase is Phase.REGISTER:
                    # They are read and written when the chip is reset.
                    stick.plan([Fault(What.LOSE, Phase.EVENT)])
            begin = time.monotonic()
            infer(process, seed)
            assert time.monotonic() - begin < LIMIT_S
        assert process.call(driving.descriptors) == before
        assert sum(line.startswith("fault: ") for line in stick.lines) >= 1
