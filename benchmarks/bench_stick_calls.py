"""The time of a call through edgec's own drivers of a stick, in Python and in C, beside
Google's libedgetpu with LiteRT, on a stick that answers at once and computes nothing
(instant_stick.c).

What remains of a call is the driver, the library in place of usbfs or libusb
(tests/stick/usbfs_plug.c, libusb_plug.c) and the stick's loop in C: for each transfer the
same messages cross the same kind of socket. The CPU time is that of the driver's process
alone, with all its threads.

Each way has a process and a stick of its own. They take turns, so that a slow phase of the
machine hits all. The figure of a way is the median of its rounds' medians, its ratio that
of the rounds' ratios, with the 95 % confidence interval of that median by order statistics
(bench_peers.py). The exit code is 1 if outputs differ, or if the
interval of a driver of edgec is above 1.

    python -m benchmarks.bench_stick_calls [--rounds 15] [--calls 200] [--files a,b]
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from edgec_devices.stick import Stick, StickOptions, descriptors
from edgec_devices.stick.programs import ProgramBook
from edgec_devices.stick.wire import devlist_reply, import_reply
from edgec_runtime.edgetpu_file.compiled_file import CompiledFile, read_compiled
from edgec_runtime.edgetpu_file.executable import (
    BufferTransfer,
    Executable,
    ExecutableType,
    InstructionTransfer,
    Interrupt,
    Package,
)

from benchmarks import stick_sides
from benchmarks.bench_peers import median_interval
from benchmarks.stick_sides import Times
from benchmarks.tables import markdown, names
from tests import builds
from tests.stick.c_programs import built_driver, written_programs
from tests.stick.driving import DTYPES
from tests.stick.plugged import Kernel, Plugged, environment_of
from tests.stick.real_stack import EDGETPU, LIBRARY
from tests.stick.real_stack import plug as libusb

COMPILED = EDGETPU / "compiled"
FILES = (
    "ricardodeazambuja+LibrEdgeTPU/dense_256",
    "ricardodeazambuja+LibrEdgeTPU/color_red_128x128",
    "google-coral+edgetpu/mobilenet_v2_1.0_224_quant",
)
_HEADER_BYTES = 8
PEER, PYTHON, C = "libedgetpu", "edgec, Python", "edgec, C"
HEADS = ("file", "driver", "µs", "CPU µs", "× libedgetpu", "95 %")


@dataclass
class Side:
    """One way to a stick.

    Attributes:
        process: it has the file open
        rounds: what was measured
    """

    process: Plugged
    rounds: list[Times] = field(default_factory=list)

    def medians(self) -> list[float]:
        """Return the median of each round in seconds."""
        return [median(times.wall_s) for times in self.rounds]


def route(executables: Iterable[Executable]) -> list[str]:
    """Return what crosses the USB in a run of these programs, as instant_stick.c takes it."""
    words = []
    for executable in executables:
        for transfer in executable.transfers:
            what = transfer.what
            if isinstance(what, Interrupt):
                words.append("e")
            elif isinstance(what, InstructionTransfer):
                size = executable.instructions[what.chunk].span.size
                words.append(f"o{_HEADER_BYTES + size}")
            elif isinstance(what, BufferTransfer):
                inwards = transfer.outfeed
                words.append(
                    f"i{what.size}" if inwards else f"o{_HEADER_BYTES + what.size}"
                )
    return words


@contextlib.contextmanager
def instant_stick(package: Package, folder: Path) -> Iterator[dict[str, str]]:
    """Serve a stick for the programs of a package; yield variables for its drivers.

    folder: for its socket and its files
    """
    caching = package.of_type(ExecutableType.PARAMETER_CACHING)
    runs = [e for e in package.executables if e is not caching]
    words = [*route([caching] if caching else []), "again", *route(runs)]
    socket = folder / "usb"
    with Stick.serve(ProgramBook(), StickOptions(firmware=True)) as plugged:
        here = plugged.description()
        assert here is not None
        Kernel(plugged, folder / "usbfs").close()
    (node,) = (folder / "usbfs/dev/bus/usb/001").iterdir()
    node.write_text(str(socket))
    answers = {
        "devices": devlist_reply([here]),
        "import": import_reply(here, 0),
        "descriptor": descriptors.device(
            descriptors.Port(super_speed=True), descriptors.FIRMWARE
        ),
    }
    for name, answer in answers.items():
        (folder / name).write_bytes(answer)
    program = folder / "stick"
    source = Path(__file__).with_name("instant_stick.c")
    # plug_messages.h has a function for the other end
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    builds.program([*builds.ZIG, "-O2", *warnings], [source], program)
    process = subprocess.Popen(
        [program, socket, *(folder / name for name in answers), *words]
    )
    try:
        while not socket.exists():
            time.sleep(0.01)
        yield environment_of(folder / "usbfs")
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def opened(path: Path, file: CompiledFile, folder: Path) -> Iterator[dict[str, Side]]:
    """Open a file in every way.

    folder: for the devices of each stick
    """
    rng = np.random.default_rng(2)
    tensors = [file.tensors[i] for i in file.inputs]
    shapes = [(t.shape, np.dtype(DTYPES[t.type])) for t in tensors]
    inputs = [
        rng.integers(0, 256, (*s, d.itemsize), np.uint8).view(d)[..., 0]
        for s, d in shapes
    ]
    ways: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
        PEER: (stick_sides.open_libedgetpu, (path, inputs, LIBRARY)),
        PYTHON: (stick_sides.open_python, (path, inputs)),
        C: (
            stick_sides.open_c,
            (path, inputs, built_driver(), written_programs([(path, 0)])),
        ),
    }
    sides = {}
    (package,) = file.packages
    with contextlib.ExitStack() as stack:
        for name, (function, arguments) in ways.items():
            own = folder / f"{path.stem} {name}"
            own.mkdir()
            variables = stack.enter_context(instant_stick(package, own))
            if name == PEER:
                variables |= {"LD_PRELOAD": "", "LD_LIBRARY_PATH": str(libusb())}
            process = Plugged(variables)
            stack.callback(process.close)
            process.call(function, *arguments)
            sides[name] = Side(process)
        yield sides


def measure(path: Path, folder: Path, rounds: int, calls: int) -> dict[str, Side]:
    """Measure the calls of a file in every way.

    Raises:
        SystemExit: the outputs differ
    """
    file = read_compiled(path.read_bytes(), str(path))
    with opened(path, file, folder) as sides:
        results = {
            name: s.process.call(stick_sides.outputs) for name, s in sides.items()
        }
        for name, arrays in results.items():
            for mine, theirs in zip(arrays, results[PEER], strict=True):
                if not np.array_equal(mine, theirs):
                    sys.exit(f"{path.name}: outputs of {name} differ from {PEER}'s")
        for side in sides.values():
            side.process.call(stick_sides.timed, calls // 10 + 1)  # warm
        for number in range(rounds):
            order = list(sides.values())
            for side in order[number % 3 :] + order[: number % 3]:
                side.rounds.append(side.process.call(stick_sides.timed, calls))
        return sides


def ratios(side: Side, peer: Side) -> list[float]:
    """Return the median of each round as a multiple of the peer's."""
    return [a / b for a, b in zip(side.medians(), peer.medians(), strict=True)]


def rows(name: str, sides: dict[str, Side]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a file."""
    for way, side in sides.items():
        times = ratios(side, sides[PEER])
        low, high = median_interval(times)
        yield (
            name,
            way,
            f"{1e6 * median(side.medians()):.0f}",
            f"{1e6 * median(t.cpu_s for t in side.rounds):.0f}",
            f"{median(times):.2f}",
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
    slower = False
    with builds.apart() as folder:
        for name in options.files:
            path = COMPILED / f"{name}_edgetpu.tflite"
            sides = measure(path, folder, options.rounds, options.calls)
            table += rows(Path(name).name, sides)
            for way in (PYTHON, C):
                low, _ = median_interval(ratios(sides[way], sides[PEER]))
                slower |= low > 1
    for text in markdown(HEADS, table, 2):
        print(text)
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
