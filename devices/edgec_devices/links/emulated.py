"""emulated:<board> - the bundle's program under QEMU's user-mode emulation, on a CPU like the board's.

Outputs are exactly the board's: the same program, the same instructions.  Latencies are estimates and say so:

    ms = instructions of the segment / (ipc * GHz)          C segments, counted by csrc/insn_count.c
    ms = the cost model's figure in the manifest            Edge TPU segments

Wall time under an emulator says nothing about a board and is never shown.

How good: `ipc` was fitted to a cycle model of the cores (llvm-mca per block, with caches and branch prediction) on six
plain C kernels, int8 and float convolutions, depthwise and add, compiled by zig at -O3 for each core.  Each profile
has their harmonic mean.  One kernel's time is off by this factor, true / estimated:

    A53  0.6 (int8 add) to 1.5 (float dot products, which wait for each sum)
    A72  0.5 (int8 add, pointwise, depthwise) to 2.5 (float dot products)
    A76  0.65 (int8 add, pointwise) to 1.8 (float dot products)

So it tells a network of 5 ms from one of 20 ms, not two kernels of 5 and 6 ms.  The counts themselves are exact.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle, DeviceError, InputError, ToolError
from edgec_runtime.cache import extract
from edgec_runtime.inputs import Array, check_inputs, noise_inputs

from edgec_devices.boards import ArchTarget, Board
from edgec_devices.device import BenchResult, Device, Series
from edgec_devices.plugin import insn_count_plugin

USAGE = "emulated:<board>"
TIMEOUT_S = 600.0


def open_device(rest: str) -> Device:
    """rest: a board, or board/target for its second kind of code: "pi4/linux-armv7"."""
    board, _, target = rest.partition("/")
    if not board:
        raise InputError("emulated: of which board?", hint="for example emulated:pi4")
    return Emulated(Board.load(board), target or None)


class Emulated(Device):
    """A board's CPU, emulated."""

    def __init__(self, board: Board, target: str | None = None) -> None:
        self.board = board
        self.url = f"emulated:{board.name}" + (f"/{target}" if target else "")
        self._target = board.target(target) if target else None

    def run(self, bundle: Bundle, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference, really executed as the board's code."""
        with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
            self._execute(bundle, inputs, Path(folder))
            return _outputs(bundle, Path(folder) / "out")

    def bench(self, bundle: Bundle, runs: int = 50, inputs: Mapping[str, Array] | None = None) -> BenchResult:
        """Estimated.  One inference is counted, whatever `runs`: instruction counts do not vary."""
        given = noise_inputs(bundle.manifest) if inputs is None else inputs
        notes = ["est.: from counted instructions and the cost model; not measured on hardware."]
        counts: list[int] | None = None
        with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
            try:
                plugin = insn_count_plugin()
            except ToolError as e:
                notes.append(f"no estimate for C segments: {e.what}.")
            else:
                counts = self._count(bundle, given, Path(folder), plugin)
        segments = tuple(
            self._series(s.name, s.place, s.est_ms, counts[i] if counts else None)
            for i, s in enumerate(bundle.manifest.segments)
        )
        between = self._ms(counts[-1]) if counts else 0.0
        whole = sum(s.ms[0] for s in segments) + between if all(s.ms for s in segments) else None
        total = Series("total", "", () if whole is None else (whole,), "sum")
        return BenchResult(self.url, bundle.manifest.name, 1, True, segments, total, tuple(notes))

    def instructions(self, bundle: Bundle, inputs: Mapping[str, Array] | None = None) -> dict[str, int]:
        """Guest instructions of one inference by segment; "" is what lies between them.  Raises ToolError."""
        given = noise_inputs(bundle.manifest) if inputs is None else inputs
        with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
            counts = self._count(bundle, given, Path(folder), insn_count_plugin())
        return dict(zip([*(s.name for s in bundle.manifest.segments), ""], counts, strict=True))

    def _ms(self, instructions: int) -> float:
        return instructions / (self.board.ipc * self.board.clock_ghz * 1e6)

    def _series(self, name: str, place: str, est_ms: float | None, count: int | None) -> Series:
        if place == "edgetpu" and est_ms is not None:
            return Series(name, place, (est_ms,), "est. by the cost model")
        if count is None:
            return Series(name, place, (), "not counted")
        how = f"est. from {count} instructions"
        return Series(name, place, (self._ms(count),), how + (" of its C twin" if place == "edgetpu" else ""))

    def _count(self, bundle: Bundle, inputs: Mapping[str, Array], folder: Path, plugin: Path) -> list[int]:
        counts = folder / "counts"
        self._execute(bundle, inputs, folder, ("-plugin", f"{plugin},out={counts}"))
        numbers = [int(n) for n in counts.read_text().split()] if counts.exists() else []
        if len(numbers) != len(bundle.manifest.segments) + 1:
            raise ToolError(
                f"the plugin counted {len(numbers)} parts of {len(bundle.manifest.segments)} segments",
                at=str(plugin),
                hint="QEMU 7.2 is what it is written for: qemu-aarch64 --version",
            )
        return numbers

    def _execute(
        self, bundle: Bundle, inputs: Mapping[str, Array], folder: Path, options: tuple[str, ...] = ()
    ) -> None:
        """Runs the program in `folder`, where its outputs go to out/.  Raises DeviceError when it fails."""
        target, name = self._program(bundle)
        emulator = _emulator(target)
        arrays = check_inputs(bundle.manifest, inputs)
        program = extract(bundle, name)
        files = []
        for i, array in enumerate(arrays):
            np.save(folder / f"input{i}.npy", np.ascontiguousarray(array).reshape(array.shape))
            files.append(f"input{i}.npy")
        command = [emulator, "-cpu", target.qemu_cpu, *options, str(program), "--runs", "1", "--output", "out"]
        try:
            # A fixed environment: the size of the guest's stack depends on it.
            done = subprocess.run(
                [*command, *(("--input", *files) if files else ())],
                cwd=folder,
                env={"PATH": os.environ.get("PATH", ""), "LANG": "C"},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"the program did not end within {TIMEOUT_S:.0f} s", at=self.url, hint="try a smaller model"
            ) from None
        self._judge(done)

    def _judge(self, done: subprocess.CompletedProcess[str]) -> None:
        if done.returncode == 0:
            return
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")[-400:]
        if done.returncode in (-signal.SIGILL, 128 + signal.SIGILL):
            raise DeviceError(
                f"the program uses an instruction that the CPU of {self.board.name} lacks",
                at=self.url,
                hint=f"compile it again with --target {self.board.name}",
            )
        raise DeviceError(
            f"the program ended with status {done.returncode}: {said or 'no message'}",
            at=self.url,
            hint="run it on local: as well; if only the emulated board fails, report it",
        )

    def _program(self, bundle: Bundle) -> tuple[ArchTarget, str]:
        """The first of the board's targets that the bundle has a program for."""
        wanted = (self._target,) if self._target else self.board.targets
        for target in wanted:
            if target.name in bundle.manifest.programs:
                return target, bundle.manifest.programs[target.name]
        there = ", ".join(bundle.manifest.programs) or "none"
        raise InputError(
            f"the bundle has no program for {' or '.join(t.name for t in wanted)}; it has {there}",
            at=str(bundle.path),
            hint=f"compile it with --target {self.board.name}",
        )


def _emulator(target: ArchTarget) -> str:
    for name in (target.qemu, f"{target.qemu}-static"):
        if found := shutil.which(name):
            return found
    raise ToolError(f"{target.qemu} is not installed", hint="sudo apt-get install qemu-user")


def _outputs(bundle: Bundle, folder: Path) -> dict[str, Array]:
    found = {}
    for i, info in enumerate(bundle.manifest.output_infos()):
        try:
            array = np.load(folder / f"output{i}.npy", allow_pickle=False)
        except (OSError, ValueError) as e:
            raise DeviceError(
                f'the program wrote no output "{info.name}": {e}', at=str(bundle.path), hint="compile the model again"
            ) from e
        if array.dtype != info.numpy_dtype or array.shape != info.shape:
            raise DeviceError(
                f'output "{info.name}" is {array.dtype.str} {array.shape}, the manifest says {info}',
                at=str(bundle.path),
                hint="compile the model again",
            )
        found[info.name] = array
    return found
