"""Random faults while our driver works: every inference equals the source's, nothing
takes longer than its time limit, and no descriptor is left open.

    python -m tests.stick.schedules [--cases 5000] [--seed 0]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import PHASES, Fault, Phase, What
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.sources import IndexEntry, read_folder
from edgec_runtime import DeviceError
from edgec_runtime.stick import driver

from edgec.ir import interp
from tests import builds
from tests.stick import driving
from tests.stick.plugged import Kernel, Plugged, environment_of
from tests.stick.test_driver import (
    EDGETPU,
    FIRMWARE_FROM,
    Array,
    entry,
    random_inputs,
    source,
)

NAMES = ("dense_256", "looming_64x64_3x3")
INPUTS = 4
"""Different inputs of each network."""
INFERENCES = 5
LIMIT_S = 12.0
"""Longest time of one call: of an inference, or of opening a stick."""
RETURN_S = 20.0
"""Longest time until a stick that is plugged in works again."""
OPTIONS = driver.StickOptions(firmware=str(FIRMWARE_FROM), patience=1.0)
LAST = {Phase.IMPORT: 3, Phase.FIRMWARE: 44, Phase.RESET: 2, Phase.REGISTER: 150}
"""The last passing of a phase at which a fault is drawn; otherwise INFERENCES."""


@dataclass(frozen=True)
class Network:
    """A compiled file with inputs and their outputs."""

    path: Path
    inputs: list[list[Array]]
    outputs: list[list[Array]]

    @classmethod
    def of(cls, file: IndexEntry) -> Network:
        graph = source(file)
        inputs = [random_inputs(graph, seed) for seed in range(INPUTS)]
        names = [v.name for v in graph.inputs]
        outputs = [
            list(interp(graph, dict(zip(names, given, strict=True))).values())
            for given in inputs
        ]
        return cls(EDGETPU / file.compiled, inputs, outputs)


@dataclass
class Tally:
    """What happened in all schedules."""

    faults: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    recovered: int = 0
    slowest_s: float = 0.0


class Schedules:
    """One process with our driver, which meets a new stick in each schedule."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._book: ProgramBook = read_folder(EDGETPU, NAMES)
        self._networks = [Network.of(entry(name)) for name in NAMES]
        self._process = Plugged(environment_of(folder / "none", folder))
        self.tally = Tally()

    def close(self) -> None:
        self._process.close()

    def run(self, seed: int) -> None:
        """One schedule; AssertionError if something does not hold."""
        r = random.Random(seed)
        faults = tuple(drawn(r) for _ in range(r.randrange(1, 4)))
        options = StickOptions(
            super_speed=r.random() < 0.7, firmware=r.random() < 0.5, faults=faults
        )
        root = self._folder / f"root{seed}"
        with Stick.serve(self._book, options) as stick:
            kernel = Kernel(stick, root)
            try:
                self._process.call(driving.use_stick, str(stick.path), str(root))
                before = self._process.call(driving.descriptors)
                for _ in range(INFERENCES):
                    self._inference(r, stick)
                self._close_driver()
                assert self._process.call(driving.descriptors) == before
            finally:
                kernel.close()
                shutil.rmtree(root)
            self.tally.faults.update(
                line.split()[1] for line in stick.lines if line.startswith("fault: ")
            )

    def _inference(self, r: random.Random, stick: Stick) -> None:
        """Try until it succeeds, as a person would who follows the hints."""
        network = r.choice(self._networks)
        number = r.randrange(INPUTS)
        end = time.monotonic() + RETURN_S + LIMIT_S
        while True:
            begin = time.monotonic()
            try:
                found = self._process.call(
                    driving.run_or_open, OPTIONS, network.path, network.inputs[number]
                )
            except DeviceError as e:
                if not e.hint:
                    raise
                self.tally.errors += 1
                found = None
            took = time.monotonic() - begin
            assert took < LIMIT_S, f"{took:.1f} s"
            self.tally.slowest_s = max(self.tally.slowest_s, took)
            if found is not None:
                break
            assert begin < end, stick.lines[-20:]
            if any(line.startswith("hangs") for line in stick.lines[-3:]):
                stick.replug()
            time.sleep(0.05)
        for one, other in zip(found, network.outputs[number], strict=True):
            np.testing.assert_array_equal(one, other)

    def _close_driver(self) -> None:
        self.tally.recovered += self._process.call(driving.counts)["recovered"]
        self._process.call(driving.close_driver)


def drawn(r: random.Random) -> Fault:
    """Any fault at any time."""
    phase = r.choice(list(Phase))
    what = r.choice([what for what in What if phase in PHASES[what]])
    number = r.randrange(1, LAST.get(phase, INFERENCES) + 1)
    return Fault(what, phase, number, absence_s=r.choice((0.05, 0.2)))


def main() -> int:
    """Run the schedules; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with builds.apart() as folder:
        schedules = Schedules(folder)
        try:
            for seed in range(options.seed, options.seed + options.cases):
                try:
                    schedules.run(seed)
                except BaseException:
                    print(f"seed {seed}", file=sys.stderr)
                    raise
        finally:
            schedules.close()
    print(f"{options.cases} schedules: {schedules.tally}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
