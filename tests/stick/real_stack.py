"""Google's libedgetpu on our stick: the plug is built, and a process of its own runs
compiled files through an interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from edgec_devices.stick import Stick
from numpy.typing import NDArray

from tests.conftest import SHARED
from tests.stick.plugs import built_plug

Array = NDArray[Any]
EDGETPU = SHARED / "edgetpu"
LIBRARY = EDGETPU / "usb" / "libedgetpu-x86_64.so.1"
OLD_LIBRARY = EDGETPU / "usb" / "libedgetpu-x86_64-old-abi.so.1"
SCRIPT = Path(__file__).with_name("run_files.py")
TIMEOUT_S = 120


def plug() -> Path:
    """The folder of our libusb-1.0.so.0, whose device is a stick."""

    name = "libusb-1.0.so.0"
    return built_plug("libusb_plug.c", name, "-lpthread", f"-Wl,-soname,{name}").parent


def variables(stick: Stick) -> dict[str, str]:
    """Variables for a process whose libusb has the stick."""
    return {"LD_LIBRARY_PATH": str(plug()), "EDGEC_STICK": str(stick.path)}


@dataclass(frozen=True)
class Call:
    """One call of a compiled file.

    Attributes:
        file: the file
        inputs: in the order of the interpreter
    """

    file: Path
    inputs: Sequence[Array]


@dataclass
class Answer:
    """What the process did.

    Attributes:
        code: its exit code
        text: what it wrote
        outputs: of each call, in the order of the interpreter
    """

    code: int
    text: str
    outputs: list[list[Array]] = field(default_factory=list)


def run(
    stick: Stick,
    calls: Sequence[Call],
    folder: Path,
    library: Path = LIBRARY,
    python: str = sys.executable,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    """Make calls one after the other in one process, each file opened once.

    folder: for arrays on their way. python: an interpreter with LiteRT or tflite_runtime
    """
    for made in folder.glob("outputs*.npz"):
        made.unlink()
    arguments = []
    for i, call in enumerate(calls):
        given = folder / f"inputs{i}.npz"
        np.savez(given, *call.inputs)
        arguments += [str(call.file), str(given), str(folder / f"outputs{i}.npz")]
    done = subprocess.run(
        [python, str(SCRIPT), str(library), *arguments],
        env={**os.environ, **variables(stick), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    answer = Answer(done.returncode, done.stdout + done.stderr)
    for i in range(len(calls)):
        path = folder / f"outputs{i}.npz"
        if path.exists():
            with np.load(path) as arrays:
                count = len(arrays.files)
                answer.outputs.append([arrays[f"arr_{k}"] for k in range(count)])
    return answer
