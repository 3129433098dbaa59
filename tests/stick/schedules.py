"""Random faults while our driver works: every inference equals the source's, nothing
takes longer than its time limit, and no descriptor is left open.

    python -m tests.stick.schedules [--cases 5000] [--seed 0] [--language c]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import numpy as np
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.faults import PHASES, Fault, Phase, What
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.sources import IndexEntry, read_folder
from edgec_runtime import DeviceError
from edgec_runtime.stick import driver, firmware

from edgec.ir import interp
from tests import builds
from tests.stick import driving, driving_c
from tests.stick.c_programs import built_driver, written_programs
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
LIMIT_S = 30.0
"""Longest time of one call, of an inference or of opening a stick, where other work
takes most of the processor: the driver's own time limits add up to 6 seconds or so."""
RETURN_S = 20.0
"""Longest time until a stick that is plugged in works again."""
FIRMWARE = {firmware.VARIABLE: str(FIRMWARE_FROM)}
OPTIONS = driver.StickOptions(firmware=str(FIRMWARE_FROM), patience=1.0)
LAST = {Phase.IMPORT: 3, Phase.FIRMWARE: 44, Phase.RESET: 2, Phase.REGISTER: 150}
"""The last passing of a phase at which a fault is drawn; otherwise INFERENCES."""

INTERRUPTS = b"", b"\x10", b"\xe0\xff\xff\xff", b"\x01\0\0\0", bytes(8)
"""Empty, short, of bits that nobody knows, a fault, and too long."""


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
    inferences: int = 0
    errors: int = 0
    recovered: int = 0
    slowest_s: float = 0.0


class InPython:
    """The driver in Python, in a process."""

    def __init__(self, process: Plugged, networks: list[Network]) -> None:
        self._process = process
        self._networks = networks

    def infer(self, network: int, number: int) -> list[Array] | None:
        """The outputs of one inference; None after an error that has a hint."""
        one = self._networks[network]
        try:
            found = self._process.call(
                driving.run_or_open, OPTIONS, one.path, one.inputs[number]
            )
        except DeviceError as e:
            if not e.hint:
                raise
            return None
        assert found is not None
        return list(found)

    def close(self) -> int:
        """How often a stalled program was recovered."""
        recovered = self._process.call(driving.counts)["recovered"]
        self._process.call(driving.close_driver)
        return int(recovered)


class InC:
    """The driver of programs, in a process that looks for a stick at each inference."""

    def __init__(self, process: Plugged, networks: list[Network]) -> None:
        self._process = process
        self._networks = networks
        files = [(network.path, 0) for network in networks]
        programs = written_programs(files)
        assert process.call(
            driving_c.prepare, built_driver(), programs, OPTIONS.patience
        )

    def infer(self, network: int, number: int) -> list[Array] | None:
        """The outputs of one inference; None if the twin has to run."""
        one = self._networks[network]
        found = self._process.call(
            driving_c.run, network, (one.path, 0), one.inputs[number], True
        )
        return None if found is None else list(found)

    def close(self) -> int:
        """How often a stalled program was recovered."""
        recovered = self._process.call(driving_c.counts)["recovered"]
        self._process.call(driving_c.stop)
        return int(recovered)


DRIVERS: dict[str, type[InPython] | type[InC]] = {"python": InPython, "c": InC}


class Schedules:
    """One process with our driver, which meets a new stick in each schedule."""

    def __init__(self, folder: Path, language: str = "python") -> None:
        self._folder = folder
        self._book: ProgramBook = read_folder(EDGETPU, NAMES)
        self._networks = [Network.of(entry(name)) for name in NAMES]
        environment = environment_of(folder)
        self._process = Plugged({**environment, **FIRMWARE})
        self._driver = DRIVERS[language](self._process, self._networks)
        self.tally = Tally()

    def close(self) -> None:
        self._process.close()

    def run(self, seed: int) -> None:
        """One schedule; AssertionError if something does not hold."""
        r = random.Random(seed)
        faults = noticeable([drawn(r) for _ in range(r.randrange(1, 4))])
        options = StickOptions(
            super_speed=r.random() < 0.7, firmware=r.random() < 0.5, faults=faults
        )
        root = self._folder / f"root{seed}"
        with Stick.serve(self._book, options) as stick:
            kernel = Kernel(stick, root)
            try:
                self._process.call(driving.use_stick, str(root))
                before = self._process.call(driving.descriptors)
                for _ in range(INFERENCES):
                    self._inference(r, stick)
                self.tally.recovered += self._driver.close()
                assert self._process.call(driving.descriptors) == before
            finally:
                kernel.close()
                shutil.rmtree(root)
            self.tally.faults.update(
                line.split()[1] for line in stick.lines if line.startswith("fault: ")
            )

    def _inference(self, r: random.Random, stick: Stick) -> None:
        """Try until it succeeds, as a person would who follows the hints."""
        network = r.randrange(len(self._networks))
        number = r.randrange(INPUTS)
        end = time.monotonic() + RETURN_S + LIMIT_S
        while True:
            begin = time.monotonic()
            found = self._driver.infer(network, number)
            took = time.monotonic() - begin
            assert took < LIMIT_S, f"{took:.1f} s"
            self.tally.slowest_s = max(self.tally.slowest_s, took)
            if found is not None:
                break
            self.tally.errors += 1
            assert begin < end, stick.lines[-20:]
            since = takewhile(lambda line: "appears" not in line, stick.lines[::-1])
            if any(line.startswith("hangs") for line in since):
                stick.replug()
            time.sleep(0.05)
        self.tally.inferences += 1
        wanted = self._networks[network].outputs[number]
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(
                one.view(np.uint8).ravel(), other.view(np.uint8).ravel()
            )


def drawn(r: random.Random) -> Fault:
    """Any fault at any time."""
    phase = r.choice(list(Phase))
    what = r.choice([what for what in What if phase in PHASES[what]])
    number = r.randrange(1, LAST.get(phase, INFERENCES) + 1)
    absence_s, data = r.choice((0.05, 0.2)), r.choice(INTERRUPTS)
    return Fault(what, phase, number, absence_s, data)


def noticeable(faults: list[Fault]) -> tuple[Fault, ...]:
    """Without bytes of an output that are missing where others are too many: the sum, by
    which a driver notices either, would be right.
    """
    more = {What.LONG, What.STRAY}
    if not any(f.phase is Phase.OUTPUT and f.what in more for f in faults):
        return tuple(faults)
    return tuple(f for f in faults if (f.what, f.phase) != (What.SHORT, Phase.OUTPUT))


def main() -> int:
    """Run the schedules; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--language", choices=DRIVERS, default="python")
    options = parser.parse_args()
    with builds.apart() as folder:
        schedules = Schedules(folder, options.language)
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
