"""emulated:<board> runs the bundle's program under QEMU's user-mode emulation.

QEMU emulates a CPU like the board's. Outputs are exactly the board's: the same program,
the same instructions. Latencies are estimates and say so:

    C segments         cycles of a model of the core (pipeline/, with its error) for what one
                       inference executes
    Edge TPU segments  the cost model's figure in the manifest

Wall time under an emulator says nothing about a board and is never shown.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from edgec_runtime import Bundle, DeviceError, InputError, TensorInfo, ToolError
from edgec_runtime.bundle.arrays import read_array
from edgec_runtime.bundle.extraction import program_command
from edgec_runtime.model.inputs import Array, check_inputs

from edgec_devices import device_names
from edgec_devices.boards import ArchTarget, Board
from edgec_devices.device import Device, Progress
from edgec_devices.estimates import InferenceEstimate, backend, estimated
from edgec_devices.intervals import estimate_text, two_digits
from edgec_devices.links.ssh import SshStream
from edgec_devices.measurement import (
    Identity,
    Measurement,
    MeasuringPlan,
    on_threads,
)
from edgec_devices.multicore import BARRIER_US
from edgec_devices.pipeline import Counts, plugin_option
from edgec_devices.plugin import block_count_plugin
from edgec_devices.stream import ByteStream
from edgec_devices.temporary import temporary_folder

USAGE = "emulated:<board>"
TIMEOUT_S = 600.0
"""Limit of a run of the program, s."""


def open_device(rest: str) -> Device:
    """Open a board, or board/target for its second kind of code ("pi4/linux-armv7")."""
    board, _, target = rest.partition("/")
    if not board:
        raise InputError("emulated: names no board", hint="for example emulated:pi4")
    return Emulated(Board.load(board), target or None)


def open_stream(rest: str, ask: bool = False) -> ByteStream:
    """Open a stream to the whole machine of a board, if one is on.

    A bundle cannot be put on an emulated program. Raises InputError with the command
    that boots a machine.
    """
    board = Board.load(rest.partition("/")[0]).name
    running = [m for m in device_names.machines() if m.settings.board == board]
    # A machine with the name of the board is the one without a name of its own.
    running = [m for m in running if m.folder.name == board] or running
    if not running:
        message = (
            f"nothing can be put on emulated:{board}: programs alone are emulated, "
            "until its whole machine is on"
        )
        raise InputError(
            message, at=f"emulated:{rest}", hint=device_names.boot_command(board, board)
        )
    if len(running) > 1:
        urls = " or ".join(machine.ssh_url for machine in running)
        raise InputError(
            f"{len(running)} machines of {board} are on",
            at=f"emulated:{rest}",
            hint=f"say which: {urls}",
        )
    return SshStream(f"emulated:{rest}", running[0].alias, None, None, ask)


class Emulated(Device):
    """The emulated CPU of a board."""

    def __init__(self, board: Board, target: str | None = None) -> None:
        self.board = board
        self.url = f"emulated:{board.name}" + (f"/{target}" if target else "")
        self._target = board.target(target) if target else None

    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], threads: int = 1
    ) -> dict[str, Array]:
        """Run one inference of the board's code in the emulator."""
        bundle.manifest.check_threads(threads, str(bundle.path))
        with temporary_folder("device") as folder:
            self._execute(
                bundle, inputs, folder, options=("--runs", "1", *on_threads(threads))
            )
            return _outputs(bundle, folder / "out")

    def segments(self, bundle: Bundle, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run one inference and return the outputs of every segment, by name."""
        with temporary_folder("device") as folder:
            self._execute(
                bundle, inputs, folder, options=("--runs", "0", "--json", "--segments")
            )
            arrays = {}
            for segment in bundle.manifest.segments:
                for i, name in enumerate(segment.outputs):
                    info = bundle.manifest.tensors[name]
                    file = f"{segment.name}_{i}"
                    arrays[info.name] = _written(bundle, folder / "out", file, info)
            return arrays

    def lacks(self, bundle: Bundle) -> str:
        """Return what must be installed to run the bundle's program, or ""."""
        target = self._program(bundle)
        try:
            emulator = _emulator(target)
        except ToolError as e:
            return f"{e.what} ({e.hint})"
        # Old versions of QEMU lack newer cores, and would only say so in the run.
        done = subprocess.run(
            [emulator, "-cpu", "help"], capture_output=True, text=True, check=False
        ).stdout
        if target.qemu_cpu in done.split():
            return ""
        return f"{target.qemu} has no {target.qemu_cpu}: it is too old"

    def measure(
        self, bundle: Bundle, plan: MeasuringPlan, say: Progress = lambda text: None
    ) -> Measurement:
        """Estimate the latencies.

        One inference is counted, whatever the plan: instruction counts do not vary.
        With threads the parts of each op are counted one after the other, and the
        slowest of them counts.
        """
        bundle.manifest.check_threads(plan.threads, str(bundle.path))
        target = self._program(bundle)
        notes = [
            f"est.: {self.board.model} is not there; counted instructions and models "
            "of its parts, not measured."
        ]
        say(f"{bundle.manifest.name} on {self.url}: counting one inference")
        # Without a compiler for the plugin, segments on the Edge TPU have estimates still.
        counts: Counts | None = None
        try:
            plugin = block_count_plugin()
        except ToolError as e:
            notes.append(f"no estimate for C segments: {e.what}.")
        else:
            counts = self.counts(bundle, plugin, plan.threads)
        estimate = estimated(bundle, self.board, counts, plan.threads)
        # The gain by threads is worth a note only against one thread.
        if counts is not None and plan.threads > 1:
            say(
                f"{bundle.manifest.name} on {self.url}: counting one inference on one core"
            )
            alone = estimated(bundle, self.board, self.counts(bundle, plugin))
            notes.append(_cores(plan.threads, estimate, alone))
        core = self.board.core or target.qemu_cpu
        about = Identity(self.url, self.board.model, core, "", "", target.name, True)
        by = tuple(map(backend, bundle.manifest.segments))
        return Measurement(
            about,
            "program",
            by,
            estimates=estimate.segments,
            between_ms=estimate.between_ms,
            error=estimate.error,
            notes=tuple(notes),
        )

    def counts(self, bundle: Bundle, plugin: Path, threads: int = 1) -> Counts:
        """Count the instructions of a profiled inference, by segment and op.

        With threads, they are counted by part of an op too.
        """
        with temporary_folder("device") as folder:
            # One inference is enough: the same instructions run every time.
            out = folder / "counts"
            option = plugin_option(plugin, out, self.board.caches)
            options = (
                "--runs",
                "0",
                "--profile",
                "1",
                "--json",
                *on_threads(threads),
                "--in-turn",
            )
            self._execute(bundle, None, folder, ("-plugin", option), options)
            return Counts.read(out)

    def _execute(
        self,
        bundle: Bundle,
        inputs: Mapping[str, Array] | None,
        folder: Path,
        emulator: tuple[str, ...] = (),
        options: tuple[str, ...] = ("--runs", "1"),
    ) -> None:
        """Run the program in `folder`, where its outputs go to out/.

        Raises DeviceError if it fails.

        Args:
            bundle: the bundle
            inputs: the inputs; None for none
            folder: working folder
            emulator: further options of the emulator
            options: further options of the program
        """
        target = self._program(bundle)
        arrays: Iterable[Array] = ()
        if inputs is not None:
            arrays = check_inputs(bundle.manifest, inputs).values()
        program = program_command(bundle, target.name)
        files = []
        for i, array in enumerate(arrays):
            file = f"input{i}.npy"
            np.save(folder / file, np.ascontiguousarray(array).reshape(array.shape))
            files.append(file)
        command = [
            _emulator(target),
            "-cpu",
            target.qemu_cpu,
            *emulator,
            *program,
            *options,
            "--output",
            "out",
        ]
        if files:
            command += ["--input", *files]
        try:
            # A fixed environment: the size of the guest's stack depends on it.
            result = subprocess.run(
                command,
                cwd=folder,
                env={"PATH": os.environ.get("PATH", ""), "LANG": "C"},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"the program did not end within {TIMEOUT_S:.0f} s",
                at=self.url,
                hint="try a smaller model",
            ) from None
        self._check(result)

    def _check(self, result: subprocess.CompletedProcess[str]) -> None:
        """Raise DeviceError if the program failed."""
        if result.returncode == 0:
            return
        message = (result.stderr or result.stdout).strip().replace("\n", "; ")[-400:]
        if result.returncode in (-signal.SIGILL, 128 + signal.SIGILL):
            raise DeviceError(
                f"the program uses an instruction that the CPU of {self.board.name} lacks",
                at=self.url,
                hint=f"compile it again with --target {self.board.name}",
            )
        raise DeviceError(
            f"the program ended with status {result.returncode}: "
            f"{message or 'no message'}",
            at=self.url,
            hint="run it on local: as well; if only the emulated board fails, report it",
        )

    def _program(self, bundle: Bundle) -> ArchTarget:
        """Return the first of the board's targets that the bundle has a program for."""
        targets = (self._target,) if self._target else self.board.targets
        for target in targets:
            if target.name in bundle.manifest.programs:
                return target
        names = " or ".join(target.name for target in targets)
        programs = ", ".join(bundle.manifest.programs) or "none"
        raise InputError(
            f"the bundle has no program for {names}; it has {programs}",
            at=str(bundle.path),
            hint=f"compile it with --target {self.board.name}",
        )


def _cores(threads: int, together: InferenceEstimate, alone: InferenceEstimate) -> str:
    """Return the estimate for several cores beside the one for one core, in words."""
    return (
        f"{threads}-core estimate: {estimate_text(together.ms, together.error)} ms, "
        f"{two_digits(alone.ms / together.ms)} times as fast as one "
        f"core ({estimate_text(alone.ms, alone.error)} ms). Each op "
        "takes as long as its slowest part, or as the shared cache or the memory for "
        f"all parts, and {BARRIER_US:g} µs where it is shared."
    )


def _emulator(target: ArchTarget) -> str:
    """Return the path of a target's emulator; raises ToolError without it."""
    for name in (target.qemu, f"{target.qemu}-static"):
        path = shutil.which(name)
        if path:
            return path
    raise ToolError(
        f"{target.qemu} is not installed", hint="sudo apt-get install qemu-user"
    )


def _outputs(bundle: Bundle, folder: Path) -> dict[str, Array]:
    """Return the outputs that the program wrote, by name."""
    arrays = {}
    for i, info in enumerate(bundle.manifest.output_infos()):
        arrays[info.name] = _written(bundle, folder, f"output{i}", info)
    return arrays


def _written(bundle: Bundle, folder: Path, file: str, info: TensorInfo) -> Array:
    """Return a tensor that the program wrote as <file>.npy.

    Raises DeviceError if its type or shape is not the manifest's.
    """
    hint = "compile the model again"
    try:
        with (folder / f"{file}.npy").open("rb") as written:
            array = read_array(written)
    except (OSError, ValueError) as e:
        raise DeviceError(
            f'the program wrote no tensor "{info.name}": {e}',
            at=str(bundle.path),
            hint=hint,
        ) from e
    if array.dtype != info.numpy_dtype or array.shape != info.shape:
        message = (
            f'tensor "{info.name}" is {array.dtype.str} {array.shape}, '
            f"the manifest says {info}"
        )
        raise DeviceError(message, at=str(bundle.path), hint=hint)
    return array
