"""The ways to a stick that bench_stick_calls.py measures, each in a process of its own
(tests/stick/plugged.py): they open a compiled file and time its inferences.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgec_runtime.stick.driver import StickOptions, open_stick

from tests.stick import driving, driving_c
from tests.stick.driving import Array


@dataclass(frozen=True)
class Times:
    """Some inferences in a row.

    Attributes:
        wall_s: seconds of each
        cpu_s: mean CPU time of each in this process, with all its threads
    """

    wall_s: list[float]
    cpu_s: float


_CALLS: list[Callable[[], list[Array]]] = []


def open_libedgetpu(path: Path, inputs: list[Array], library: Path) -> None:
    """LiteRT with libedgetpu as delegate."""
    from ai_edge_litert.interpreter import Interpreter, load_delegate

    delegate = load_delegate(str(library), {"device": "usb"})
    interpreter = Interpreter(str(path), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    for details, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], values)
    numbers = [d["index"] for d in interpreter.get_output_details()]

    def call() -> list[Array]:
        interpreter.invoke()
        return [interpreter.get_tensor(n) for n in numbers]

    _CALLS.append(call)


def open_python(path: Path, inputs: list[Array]) -> None:
    """The driver in Python."""
    driver = open_stick(StickOptions())
    file = driving.read(path)
    (package,) = file.packages
    model = driver.load(package, file.data, str(path))
    names = [file.tensors[i].name for i in file.inputs]
    given = dict(zip(names, inputs, strict=True))
    outputs = driving.empty_outputs(path)

    def call() -> list[Array]:
        driver.run(model, given, outputs)
        return list(outputs.values())

    _CALLS.append(call)


def open_c(path: Path, inputs: list[Array], library: Path, programs: Path) -> None:
    """The driver in C, as a library."""
    assert driving_c.prepare(library, programs, 6.0)
    assert driving_c.connect() == ""
    outputs = driving.empty_outputs(path)
    given, taken = (
        (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        for arrays in (inputs, list(outputs.values()))
    )
    run: Any = driving_c.library().driver_run

    def call() -> list[Array]:
        assert run(0, given, taken, 0)
        return list(outputs.values())

    _CALLS.append(call)


def outputs() -> list[Array]:
    """Run one inference, and return copies of its outputs."""
    return [np.array(one) for one in _CALLS[0]()]


def timed(count: int) -> Times:
    """Run so many inferences in a row, and return their times."""
    call = _CALLS[0]
    wall = []
    begin_cpu = time.process_time()
    for _ in range(count):
        begin = time.perf_counter()
        call()
        wall.append(time.perf_counter() - begin)
    return Times(wall, (time.process_time() - begin_cpu) / count)
