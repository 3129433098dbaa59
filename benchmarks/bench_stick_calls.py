"""The time of a call through edgec's own drivers of a stick, in Python and in C, beside
Google's libedgetpu with LiteRT: the emulated stick answers at once and computes nothing.

What remains of a call is the driver, the library in place of usbfs or libusb
(tests/stick/usbfs_plug.c, libusb_plug.c) and the emulated stick. The last takes most of it,
and as long for each transfer, so the number of transfers of a call stands beside the
times, as does the CPU time of the driver's process alone, in which the stick is not.

Each way has a process and a stick of its own. They take turns, so that a slow phase of the
machine hits all. The figure of a way is the median of its rounds' medians, its ratio that
of the rounds' ratios, with the 95 % confidence interval of that median by order statistics
(bench_peers.py). The exit code is 1 if the outputs differ.

    python -m benchmarks.bench_stick_calls [--rounds 15] [--calls 200] [--files a,b]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.layouts import Array
from edgec_devices.stick.programs import Compute, ProgramBook
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, read_compiled
from edgec_runtime.edgetpu_file.executable import DATA_TYPE_BYTES, Package

from benchmarks import stick_sides
from benchmarks.bench_peers import median_interval
from benchmarks.stick_sides import Times
from benchmarks.tables import markdown, names
from tests import builds
from tests.stick.c_programs import built_driver, written_programs
from tests.stick.driving import DTYPES
from tests.stick.plugged import Plugged, environment
from tests.stick.real_stack import EDGETPU, LIBRARY
from tests.stick.real_stack import plug as libusb

COMPILED = EDGETPU / "compiled"
FILES = (
    "ricardodeazambuja+LibrEdgeTPU/dense_256",
    "ricardodeazambuja+LibrEdgeTPU/color_red_128x128",
    "google-coral+edgetpu/mobilenet_v2_1.0_224_quant",
)
PEER, PYTHON, C = "libedgetpu", "edgec, Python", "edgec, C"
HEADS = ("file", "driver", "transfers", "µs", "CPU µs", "× libedgetpu", "95 %")


@dataclass
class Side:
    """One way to a stick.

    Attributes:
        process: it has the file open
        stick: of this way alone
        rounds: what was measured
        transfers: of one call
    """

    process: Plugged
    stick: Stick
    rounds: list[Times] = field(default_factory=list)
    transfers: float = 0.0

    def medians(self) -> list[float]:
        """Return the median of each round in seconds."""
        return [median(times.wall_s) for times in self.rounds]


def without_computing(package: Package) -> Compute:
    """Return a function that gives always the same, made beforehand."""
    rng = np.random.default_rng(1)
    made = {}
    for executable in package.executables:
        for layer in executable.outputs:
            count = layer.y * layer.x * layer.z * layer.executions
            width = DATA_TYPE_BYTES[layer.data_type]
            made[layer.name] = rng.integers(0, 256, (count, width), np.uint8)

    def compute(inputs: Mapping[str, Array]) -> dict[str, Array]:
        return made

    return compute


@contextlib.contextmanager
def opened(
    path: Path, file: CompiledFile, folder: Path
) -> Iterator[dict[str, Side]]:
    """Open a file in every way.

    folder: for the devices of each stick
    """
    book = ProgramBook()
    book.add_file(path.name, file, [without_computing(p) for p in file.packages])
    rng = np.random.default_rng(2)
    tensors = [file.tensors[i] for i in file.inputs]
    shapes = [(t.shape, np.dtype(DTYPES[t.type])) for t in tensors]
    inputs = [
        rng.integers(0, 256, (*s, d.itemsize), np.uint8).view(d)[..., 0]
        for s, d in shapes
    ]
    ways = {
        PEER: (stick_sides.open_libedgetpu, (path, inputs, LIBRARY)),
        PYTHON: (stick_sides.open_python, (path, inputs)),
        C: (
            stick_sides.open_c,
            (path, inputs, built_driver(), written_programs([(path, 0)])),
        ),
    }
    sides = {}
    with contextlib.ExitStack() as stack:
        for name, (function, arguments) in ways.items():
            stick = stack.enter_context(
                Stick.serve(book, StickOptions(firmware=True))
            )
            own = folder / f"{path.stem} {name}"
            own.mkdir()
            variables = stack.enter_context(environment(stick, own))
            if name == PEER:
                variables = {
                    **os.environ,
                    "LD_LIBRARY_PATH": str(libusb()),
                    "EDGEC_STICK": str(stick.path),
                }
            process = Plugged(variables)
            stack.callback(process.close)
            process.call(function, *arguments)
            sides[name] = Side(process, stick)
        yield sides


def measure(path: Path, folder: Path, rounds: int, calls: int) -> dict[str, Side]:
    """Measure the calls of a file in every way.

    Raises:
        SystemExit: the outputs differ
    """
    file = read_compiled(path.read_bytes(), str(path))
    with opened(path, file, folder) as sides:
        results = {name: s.process.call(stick_sides.outputs) for name, s in sides.items()}
        for name, arrays in results.items():
            for mine, theirs in zip(arrays, results[PEER], strict=True):
                if not np.array_equal(mine, theirs):
                    sys.exit(f"{path.name}: outputs of {name} differ from {PEER}'s")
        for side in sides.values():
            side.process.call(stick_sides.timed, calls // 10 + 1)  # warm
            before = side.stick.transfers
            side.process.call(stick_sides.timed, calls)
            side.transfers = (side.stick.transfers - before) / calls
        for number in range(rounds):
            order = list(sides.values())
            for side in order[number % 3 :] + order[: number % 3]:
                side.rounds.append(side.process.call(stick_sides.timed, calls))
        return sides


def rows(name: str, sides: dict[str, Side]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a file."""
    peer = sides[PEER].medians()
    for way, side in sides.items():
        mine = side.medians()
        ratios = [a / b for a, b in zip(mine, peer, strict=True)]
        low, high = median_interval(ratios)
        yield (
            name,
            way,
            f"{side.transfers:.1f}",
            f"{1e6 * median(mine):.0f}",
            f"{1e6 * median(t.cpu_s for t in side.rounds):.0f}",
            f"{median(ratios):.2f}",
            "" if way == PEER else f"{low:.2f} to {high:.2f}",
        )


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--files", type=names, default=list(FILES))
    options = parser.parse_args()
    table: list[tuple[str, ...]] = []
    with builds.apart() as folder:
        for name in options.files:
            path = COMPILED / f"{name}_edgetpu.tflite"
            sides = measure(path, folder, options.rounds, options.calls)
            table += rows(Path(name).name, sides)
    for text in markdown(HEADS, table, 2):
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
