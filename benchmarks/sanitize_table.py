"""Real models under sanitizers: the C of each core with fast kernels.

    addresses  plain C, AVX2, and AVX-512 VNNI where this processor has it, under gcc's
               sanitizers of addresses, undefined behaviour and float casts: for noise, and
               for inputs of NaN, infinities, denormals, extremes and any bits, where the
               integers must be interp's
    threads    the same cores on 1 to 4 threads under gcc's thread sanitizer: the outputs
               must have the same bits
    undefined  the boards' cores under QEMU with clang's sanitizer of undefined behaviour,
               which ends the program

Markdown on the screen, build/sanitize-table.json; the exit code is 1 if anything is wrong.

    python -m benchmarks.sanitize_table [--models a,b,FILE] [--checks addresses,threads]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from edgec_devices.boards import Board

from benchmarks.arm_programs import lowered_for
from benchmarks.data_folder import BUILD
from benchmarks.networks import NETWORKS, files
from benchmarks.tables import line, markdown, names, write_json
from edgec.emit.c import CSRC
from edgec.emit.sources import TargetSources, target_sources
from edgec.errors import EdgecError
from edgec.ir import Graph, interp
from edgec.schedule.cores import PLAIN, Core, cores_of
from tests.conformance.sanitizing import hostile
from tests.harness import has

BOARDS = ("pi3", "pi4", "pi5")
FLAGS = (
    "-std=c11",
    "-O1",
    "-g",
    "-ffp-contract=off",
    "-DEK_PROGRAM",
    "-DEK_ARENAS_APART",
    f"-I{CSRC}",
)
GCC = ("gcc", "-march=x86-64-v3")
ADDRESSES = (
    *GCC,
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
)
THREADS = (*GCC, "-fsanitize=thread")
UNDEFINED = ("-static", "-fsanitize=undefined", "-fsanitize-trap=undefined")
LIMIT_S = 3600
ONCE = ("--runs", "1")
EXTREMES = ("nan", "infinite", "some nan", "extreme", "denormal", "bits")
"""The kinds of inputs of sanitizing.py."""


@dataclass(frozen=True)
class Row:
    """One model on one core.

    Attributes:
        model: the model
        check: the check
        core: the core; "" if the model cannot be compiled
        fault: what is wrong; "" if nothing
    """

    model: str
    check: str
    core: str
    fault: str


def run(*command: str | Path) -> None:
    """Run a command; raise RuntimeError if it fails or prints an error."""
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, errors="replace"
    )
    if process.returncode or process.stderr:
        errors = process.stderr[-3000:]
        raise RuntimeError(f"exit status {process.returncode}: {errors}")


class Program:
    """A model's program for one core under a sanitizer.

    Args:
        file: the model
        board: the board that it is compiled for
        core: the core
        compiler: the command of the compiler
        folder: where the program is written
        emulator: the command that runs the program

    Raises RuntimeError if it does not compile.
    """

    def __init__(
        self,
        file: Path,
        board: str,
        core: Core,
        compiler: Sequence[str],
        folder: Path,
        emulator: Sequence[str] = (),
    ) -> None:
        lowered = lowered_for(file, board)
        segments = lowered.partition.segments
        self.graph: Graph = lowered.graph
        self._folder = folder
        self._command: tuple[str | Path, ...] = (*emulator, folder / "main")
        sources = target_sources(lowered.graph, segments, (core,))
        self._build(sources, core, (*compiler, *FLAGS))

    def _build(
        self, sources: TargetSources, core: Core, command: Sequence[str]
    ) -> None:
        (self._folder / "weights.bin").write_bytes(sources.weights)
        objects = []
        for name, text in sources.texts.items():
            source = self._folder / name
            source.write_text(text)
            objects.append(self._folder / f"{name}.o")
            # The sources of a single core have no flags of their own.
            flags = (*sources.flags.get(name, ()), *core.flags)
            run(*command, *flags, "-c", source, "-o", objects[-1])
        libraries = ("-lm", "-pthread", "-o", self._folder / "main")
        run(*command, CSRC / "main.c", *objects, *libraries)

    def outputs(self, name: str, *options: str | Path) -> list[bytes]:
        """Run the program, and return the bytes of its outputs; `name` is a folder's."""
        folder = self._folder / name
        run(*self._command, *options, "--output", folder)
        return [path.read_bytes() for path in sorted(folder.iterdir())]

    def extreme_faults(self) -> Iterator[str]:
        """Yield the integer outputs that are not interp's for extreme inputs."""
        for kind in EXTREMES:
            rng = np.random.default_rng(0)
            inputs = {v.name: hostile(v.type, kind, rng) for v in self.graph.given()}
            paths = []
            for i, array in enumerate(inputs.values()):
                paths.append(self._folder / f"{kind}{i}.npy")
                np.save(paths[-1], array)
            self.outputs(kind, *ONCE, "--input", *paths)
            expected = interp(self.graph, inputs)
            for i, v in enumerate(self.graph.returned()):
                output = np.load(self._folder / kind / f"output{i}.npy")
                is_float = v.type.np_dtype.kind == "f"
                if not is_float and not np.array_equal(output, expected[v.name]):
                    yield f"{kind}: other integers in {v.name}"


def x86_cores() -> Iterator[Core]:
    """Yield the cores whose code this machine runs."""
    board = Board.load("host")
    for core in cores_of(board, board.targets[0], 4):
        if "vnni" not in core.name or has("avx512_vnni"):
            yield core


def check_addresses(file: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each core with its faults."""
    for core in (PLAIN, *x86_cores()):
        try:
            program = Program(file, "host", core, ADDRESSES, _new(folder, core.name))
            program.outputs("noise", *ONCE)
            yield core.name, "; ".join(program.extreme_faults())
        except RuntimeError as e:
            yield core.name, str(e)


def check_threads(file: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each core with its faults."""
    for core in x86_cores():
        try:
            program = Program(file, "host", core, THREADS, _new(folder, core.name))
            outputs = [
                program.outputs(f"threads{n}", "--runs", "2", "--threads", n)
                for n in "1234"
            ]
        except RuntimeError as e:
            yield core.name, str(e)
        else:
            is_same = all(o == outputs[0] for o in outputs)
            yield core.name, "" if is_same else "threads give other bits"


def check_undefined(file: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the core of each board with its faults."""
    for name in BOARDS:
        board = Board.load(name)
        target = board.targets[0]
        zig = (sys.executable, "-m", "ziglang", "cc", "-target", target.program)
        compiler = (*zig, f"-mcpu={target.mcpu}", *UNDEFINED)
        emulator = (target.qemu, "-cpu", target.qemu_cpu)
        core = cores_of(board, target)[0]
        try:
            new = _new(folder, name)
            Program(file, name, core, compiler, new, emulator).outputs("noise", *ONCE)
            yield target.mcpu, ""
        except RuntimeError as e:
            yield target.mcpu, str(e)


def _new(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path


CHECKS = {
    "addresses": check_addresses,
    "threads": check_threads,
    "undefined": check_undefined,
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", type=names, default=list(NETWORKS), help="networks or files"
    )
    parser.add_argument("--checks", type=names, default=list(CHECKS))
    parser.add_argument("--json", type=Path, default=BUILD / "sanitize-table.json")
    args = parser.parse_args()
    os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
    print("\n".join(markdown(("model", "check", "core", "fault"), [], texts=4)))
    rows: list[Row] = []
    for model, file in files(args.models):
        for check in args.checks:
            with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
                try:
                    faults = list(CHECKS[check](file, Path(folder)))
                except EdgecError as e:
                    faults = [("", str(e))]
            for core, fault in faults:
                rows.append(Row(model, check, core, " ".join(fault.split())))
                *cells, text = astuple(rows[-1])
                print(line([*cells, text[:200] or "none"]), flush=True)
    write_json(args.json, rows)
    return int(any(row.fault for row in rows))


if __name__ == "__main__":
    sys.exit(main())
