"""local: runs bundles on this machine."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import edgec_runtime
from edgec_runtime import Bundle, DeviceError, InputError, Session
from edgec_runtime.bundle.extraction import program_command
from edgec_runtime.device_end.facts import identity
from edgec_runtime.device_end.vitals import VitalsWatch
from edgec_runtime.errors import did_you_mean
from edgec_runtime.model.inputs import Array
from edgec_runtime.session.session import TPU_MODES, machine_target

from edgec_devices.device import Device, Progress
from edgec_devices.measurement import (
    Identity,
    Measurement,
    MeasuringPlan,
    measured,
    program_report,
    streamed,
)
from edgec_devices.stream import ByteStream, Page, PipeStream, bootstrap
from edgec_devices.temporary import temporary_folder

USAGE = "local:"
LIMIT_S = 600.0
"""Limit of one launch, s."""


def open_device(rest: str) -> Device:
    """Open this machine.

    `rest` is "" or the way to run Edge TPU segments: "auto", "delegate", "interpreter"
    or "c".
    """
    tpu = rest or "auto"
    if tpu not in TPU_MODES:
        message = f'"local:{rest}" is not a way to run{did_you_mean(rest, TPU_MODES)}'
        raise InputError(
            message, hint=f"use local: or local: and one of {', '.join(TPU_MODES)}"
        )
    return Local(tpu)


class Local(Device):
    """This machine, which runs bundles here and measures them in other processes."""

    def __init__(self, tpu: str = "auto") -> None:
        self.url = "local:" if tpu == "auto" else f"local:{tpu}"
        self._tpu = tpu

    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], threads: int = 1
    ) -> dict[str, Array]:
        """Run one inference by a Session."""
        with Session(bundle, tpu=self._tpu, threads=threads) as session:
            return session.run(inputs)

    def measure(
        self, bundle: Bundle, plan: MeasuringPlan, say: Progress = lambda text: None
    ) -> Measurement:
        """Measure by a Session if segments may run on an Edge TPU or an interpreter.

        Otherwise the program is measured.
        """
        # Without a compiled segment a Session would run the same C, only through Python.
        compiled = any(s.edgetpu for s in bundle.manifest.segments)
        session = self._tpu in ("delegate", "interpreter") or (
            self._tpu == "auto" and compiled
        )
        program = self._program(bundle)
        timed = [
            sys.executable,
            "-m",
            "edgec_runtime",
            str(bundle.path.resolve()),
            "--tpu",
            self._tpu,
        ]

        def launch(
            by_session: bool, options: tuple[str, ...]
        ) -> tuple[dict[str, Any], Any]:
            command = timed if by_session else program
            return self._launch([*command, "--json", *options])

        launches = measured(plan, bundle, self.url, session, launch, say)
        about = Identity(url=self.url, target=machine_target(), **identity())
        stream = streamed(plan, bundle, self.url, launch, say)
        return Measurement(
            about,
            "session" if session else "program",
            launches[0].backends,
            launches,
            stream=stream,
        )

    def _program(self, bundle: Bundle) -> list[str]:
        """Return the command of the bundle's program for this machine."""
        if machine_target() not in bundle.manifest.programs:
            programs = ", ".join(bundle.manifest.programs) or "none"
            raise DeviceError(
                f"the bundle has no program for this machine, {machine_target()}; "
                f"it has {programs}",
                at=str(bundle.path),
                hint="compile with --target host, "
                f"or bench it on emulated:{bundle.manifest.board}",
            )
        return program_command(bundle, machine_target())

    def _launch(self, command: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Launch the program, and return its report and the vitals of the machine."""
        paths = [
            str(Path(edgec_runtime.__file__).parents[1]),
            os.environ.get("PYTHONPATH", ""),
        ]
        # The launched Python must import this very runtime.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with temporary_folder("device") as folder, VitalsWatch() as watch:
            try:
                # The monotonic clock is one for all processes: the program subtracts this
                # from its own and has the time of its start.
                result = subprocess.run(
                    [*command, "--launched", str(time.monotonic_ns())],
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=LIMIT_S,
                )
            except subprocess.TimeoutExpired:
                message = f"the program did not end within {LIMIT_S:.0f} s"
                raise DeviceError(
                    message, at=self.url, hint="try fewer runs or a smaller model"
                ) from None
        report = program_report(
            result.returncode, result.stdout, result.stderr, self.url
        )
        return report, watch.as_dict()


def open_stream(rest: str, ask: bool = False) -> ByteStream:
    """Open a stream to the device end as a process of this machine.

    Its folder is ~/.edgec or EDGEC_ROOT. `rest` and `ask` have no effect.
    """
    return LocalStream("local:", [sys.executable, "-S", "-u", "-c", bootstrap()[0]])


class LocalStream(PipeStream):
    """A process of this machine, with the same loopback address."""

    def carry_page(self, port: int) -> Page:
        """Return a page that the process serves at the port itself."""
        return Page(secrets.token_hex(16), port)
