"""Runs edgetpu_compiler on this machine; `ssh` and `handoff` are other runners."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgec_devices.temporary import temporary_folder

from edgec.errors import ToolError
from edgec.toolchain.edgetpu import PROGRAM

TIMEOUT_S = 900.0
"""Limit of one call, s.

Version 16 gives up on a model after 180 s by itself, older ones may run for hours.
"""
SKIP = f"to do without it: --edgetpu-compiler none (the program is called {PROGRAM})"


@dataclass(frozen=True)
class Answer:
    """The result of one call.

    Attributes:
        text: the printed text, and the .log files
        files: the compiled file of each model
    """

    text: str
    files: Mapping[str, bytes]


class Runner(Protocol):
    """Compiles models; `name` is the place of the program, for people."""

    name: str

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Compile .tflite files together, in order, by name.

        A name is a C identifier, and so a safe file name. A model that the program does
        not compile is not in the answer. Raises ToolError if the program cannot be run.
        """
        ...


class LocalRunner:
    """Runs the program on this machine, which must be x86-64 Linux."""

    def __init__(self, program: str, timeout: float = TIMEOUT_S) -> None:
        self.name = program
        self._program = program
        self._timeout = timeout

    @staticmethod
    def on_path() -> LocalRunner | None:
        """Return a runner of the program on the PATH, or None."""
        path = shutil.which(PROGRAM)
        return None if path is None else LocalRunner(path)

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Compile the models in a temporary folder, see Runner."""
        with temporary_folder("edgetpu") as folder:
            for name, data in models.items():
                (folder / f"{name}.tflite").write_bytes(data)
            command = [self._program, *arguments(models)]
            # The program writes beside its input, with names of its own.
            text = run_group(command, folder, self._timeout)
            files = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
            return answer(text, models, files)


def arguments(models: Iterable[str]) -> list[str]:
    """Return the arguments of a call in the folder of the models.

    -s prints the operator table. Files that are given together share the on-chip memory
    for parameters.
    """
    return ["-s", "-o", ".", *(f"{name}.tflite" for name in models)]


def answer(text: str, models: Iterable[str], files: Mapping[str, bytes]) -> Answer:
    """Return the answer of a call from its output and its files, by file name."""
    compiled = {}
    for name in models:
        # Versions differ in what they print and what they write only to the .log file.
        log = files.get(f"{name}_edgetpu.log", b"")
        text += "\n" + log.decode("utf-8", "replace")
        file = f"{name}_edgetpu.tflite"
        if file in files:
            compiled[name] = files[file]
    return Answer(text, compiled)


def run_group(command: Sequence[str], cwd: Path, timeout: float) -> str:
    """Return everything that a command prints.

    The command forks, so that its whole process group is killed at the timeout (s).
    Raises ToolError if it cannot be run.
    """
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as e:
        message = f"cannot run {command[0]}: {e.strerror or e}"
        raise ToolError(
            message, hint=f"give the path of the x86-64 Linux program; {SKIP}"
        ) from e
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        return f"no result after {timeout:g} s\n"
    # Ctrl-C too: the group would go on.
    except BaseException:
        kill_group(process)
        raise
    if process.returncode and not text.strip():
        return f"it ended with exit code {process.returncode}\n"
    return text


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, with all processes of the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
