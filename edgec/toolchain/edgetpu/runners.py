"""Where edgetpu_compiler runs: a program of this machine.

(Others: `ssh`, `handoff`.)
"""

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
"""For one call; version 16 gives up on a model after 180 s by itself, older ones may
run for hours.
"""
SKIP = f"to do without it: --edgetpu-compiler none (the program is called {PROGRAM})"


@dataclass(frozen=True)
class Answer:
    """What came of one call. text: all that was printed, and the .log files. files: the
    compiled file of each model.
    """

    text: str
    files: Mapping[str, bytes]


class Runner(Protocol):
    """Compiles models. `name` says where, for people."""

    name: str

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """Compile .tflite files together, by name (a C identifier, so a safe file
        name), in the given order.

        A model that the program does not compile is simply not in the answer. Raises
        ToolError when it cannot be run.
        """
        ...


class LocalRunner:
    """A program of this machine; it exists for x86-64 Linux only."""

    def __init__(self, program: str, timeout: float = TIMEOUT_S) -> None:
        self.name = program
        self._program = program
        self._timeout = timeout

    @staticmethod
    def on_path() -> LocalRunner | None:
        """The one on the PATH, if there is one."""
        found = shutil.which(PROGRAM)
        return None if found is None else LocalRunner(found)

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        """See Runner."""
        with temporary_folder("edgetpu") as folder:
            for name, data in models.items():
                (folder / f"{name}.tflite").write_bytes(data)
            text = run_group([self._program, *arguments(models)], folder, self._timeout)
            return answer(
                text,
                models,
                {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()},
            )


def arguments(models: Iterable[str]) -> list[str]:
    """After the program's name, in the folder of the models.

    -s prints the operator table. Files that are given together share the on-chip memory
    for parameters.
    """
    return ["-s", "-o", ".", *(f"{name}.tflite" for name in models)]


def answer(text: str, models: Iterable[str], files: Mapping[str, bytes]) -> Answer:
    """An answer from what was printed and the files that were written, by file name."""
    names = list(models)
    for log in (files.get(f"{name}_edgetpu.log") for name in names):
        text += "\n" + (log or b"").decode("utf-8", "replace")
    return Answer(
        text,
        {
            n: files[f"{n}_edgetpu.tflite"]
            for n in names
            if f"{n}_edgetpu.tflite" in files
        },
    )


def run_group(command: Sequence[str], cwd: Path, timeout: float) -> str:
    """Everything a command prints.

    It forks, so on a timeout its whole process group is killed. Raises ToolError.
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
        what = f"cannot run {command[0]}: {e.strerror or e}"
        raise ToolError(
            what, hint=f"give the path of the x86-64 Linux program; {SKIP}"
        ) from e
    try:
        text, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_group(process)
        return f"no result after {timeout:g} s\n"
    except BaseException:  # ctrl-C too
        kill_group(process)
        raise
    if process.returncode and not text.strip():
        return f"it ended with exit code {process.returncode}\n"
    return text


def kill_group(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """End a running process that leads its own group, and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
