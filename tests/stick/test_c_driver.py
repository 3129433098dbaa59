"""The driver of programs, in C, on our stick: its outputs are those of `interp`."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.sources import IndexEntry, SourceNetwork
from edgec_runtime.stick import firmware

from tests.stick import driving, driving_c
from tests.stick.driving_c import built_driver, written_programs
from tests.stick.plugged import Plugged, plugged
from tests.stick.test_driver import EDGETPU, FIRMWARE_FROM, WITH_SOURCES, entry

pytestmark = [pytest.mark.cc, pytest.mark.shared]
FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}
RUNNING = StickOptions(firmware=True)
DENSE = EDGETPU / entry("dense_256").compiled, 0


def right(process: Plugged, name: str, seed: int, segment: int = 0) -> bool:
    """One inference of a file's first operator; whether the stick ran it."""
    file = entry(name)
    assert file.source is not None
    path = EDGETPU / file.compiled
    compiled = driving.read(path)
    operator = compiled.operators[0]
    rng = np.random.default_rng(seed)
    inputs = {
        compiled.tensors[i].name: rng.integers(
            0, 256, driving.shape(compiled.tensors[i]), np.uint8
        )
        for i in operator.inputs
    }
    found = process.call(driving_c.run, segment, (path, 0), list(inputs.values()), True)
    if found is None:
        return False
    network = SourceNetwork(EDGETPU / file.source)
    expected = network.part(compiled, operator)(inputs)
    for i, values in zip(operator.outputs, found, strict=True):
        name = compiled.tensors[i].name
        np.testing.assert_array_equal(values, expected[name].reshape(-1))
    return True


def opened(process: Plugged, operators: list[tuple[Path, int]], name: str) -> str:
    """Connect with a stick; what is wrong, or ""."""
    programs = written_programs(operators, name)
    assert process.call(driving_c.prepare, built_driver(), programs)
    answer = process.call(driving_c.connect)
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize("super_speed", [True, False])
def test_one_model(super_speed: bool, tmp_path: Path) -> None:
    options = StickOptions(super_speed=super_speed, firmware=True)
    with Stick.serve(EDGETPU, options) as stick, plugged(stick, tmp_path) as process:
        assert opened(process, [DENSE], "dense") == ""
        assert all(right(process, "dense_256", seed) for seed in range(3))
        counts = process.call(driving_c.counts)
        assert counts == {"opened": 1, "lost": 0, "recovered": 0}
        process.call(driving_c.stop)
