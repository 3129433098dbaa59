"""What the tests let our driver do, in a process that has a stick (plugged.py)."""

from __future__ import annotations

import multiprocessing
import os
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
from edgec_runtime import DeviceError, Session
from edgec_runtime.edgetpu_file.compiled_file import (
    CompiledFile,
    CompiledTensor,
    read_compiled,
)
from edgec_runtime.session.session import SegmentTime
from edgec_runtime.stick.driver import StickDriver, StickOptions, open_stick
from edgec_runtime.stick.program import Model
from edgec_runtime.stick.stick import StickFacts
from edgec_runtime.stick.usbfs import StalledError
from numpy.typing import NDArray

Array = NDArray[Any]
DTYPES = {0: "<f4", 2: "<i4", 3: "u1", 7: "<i2", 9: "i1"}
_DRIVERS: list[StickDriver] = []
_FILES: dict[str, CompiledFile] = {}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def use_stick(root: str) -> None:
    """Another stick than that of the environment at the process's start."""
    os.environ["EDGEC_USBFS"] = root


def run_or_open(
    options: StickOptions, path: Path, inputs: list[Array]
) -> list[Array] | None:
    """As `run`, on a stick that is opened if none is; what goes wrong is raised."""
    if _DRIVERS and _DRIVERS[-1].lost:
        _DRIVERS.pop().close()
    if not _DRIVERS:
        open_driver(options)
    return run(path, inputs)


def open_driver(options: StickOptions | None = None) -> str:
    """Open a stick for the calls that follow; return its clock."""
    _DRIVERS.append(open_stick(options or StickOptions()))
    return _DRIVERS[-1].clock


def open_and_run(options: StickOptions, path: Path) -> None:
    """Open a stick, run a file on zeros, and close it."""
    driver = open_stick(options)
    try:
        file = read(path)
        inputs = {
            file.tensors[i].name: np.zeros(file.tensors[i].shape, "u1")
            for i in file.inputs
        }
        model = driver.load(file.packages[0], file.data, str(path))
        driver.run(model, inputs, empty_outputs(path))
    finally:
        driver.close()


def close_driver() -> None:
    _DRIVERS.pop().close()


def counts() -> dict[str, int]:
    return vars(_DRIVERS[-1].counts)


def read(path: Path) -> CompiledFile:
    if str(path) not in _FILES:
        _FILES[str(path)] = read_compiled(path.read_bytes(), str(path))
    return _FILES[str(path)]


def load(path: Path) -> Model:
    file = read(path)
    (package,) = file.packages
    return _DRIVERS[-1].load(package, file.data, str(path))


def empty_outputs(path: Path) -> dict[str, Array]:
    file = read(path)
    return {
        file.tensors[i].name: np.empty(
            file.tensors[i].shape, DTYPES[file.tensors[i].type]
        )
        for i in file.outputs
    }


def shape(tensor: CompiledTensor) -> tuple[int, ...]:
    """A tensor's bytes by element: the type's size is the last dimension."""
    return (*tensor.shape, np.dtype(DTYPES[tensor.type]).itemsize)


def run_operator(path: Path, number: int, inputs: dict[str, Array]) -> dict[str, Array]:
    """The outputs of one operator of a file, as bytes."""
    file = read(path)
    operator = file.operators[number]
    assert operator.package is not None
    driver = _DRIVERS[-1]
    outputs = {
        file.tensors[i].name: np.empty(shape(file.tensors[i]), np.uint8)
        for i in operator.outputs
    }
    driver.run(driver.load(operator.package, file.data, str(path)), inputs, outputs)
    return {name: values.reshape(-1) for name, values in outputs.items()}


def run(path: Path, inputs: list[Array]) -> list[Array]:
    """The outputs of one inference of a file whose only operator is the Edge TPU's."""
    file = read(path)
    names = [file.tensors[i].name for i in file.inputs]
    outputs = empty_outputs(path)
    _DRIVERS[-1].run(load(path), dict(zip(names, inputs, strict=True)), outputs)
    return list(outputs.values())


def submit_to_a_stuck_stick(path: Path, inputs: list[Array]) -> bool:
    """Whether the driver gives up a stick whose transfers cannot begin, nor after a reset."""
    driver = _DRIVERS[-1]
    stuck = StalledError("no memory", hint="try again")
    driver._start = driver._switched_on = Mock(side_effect=stuck)  # type: ignore[method-assign]
    names = [read(path).tensors[i].name for i in read(path).inputs]
    model = load(path)
    try:
        driver.submit(model, dict(zip(names, inputs, strict=True)))
    except DeviceError:
        return driver.lost
    return False


def times(path: Path, count: int) -> list[float]:
    """Seconds of each of some inferences on zeros."""
    file = read(path)
    inputs = {
        file.tensors[i].name: np.zeros(file.tensors[i].shape, "u1") for i in file.inputs
    }
    outputs = empty_outputs(path)
    model = load(path)
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        _DRIVERS[-1].run(model, inputs, outputs)
        found.append(time.perf_counter() - begin)
    return found


def run_together(path: Path, several: list[list[Array]]) -> list[list[Array]]:
    """As `run`, with all inferences submitted before the first is collected."""
    file = read(path)
    names = [file.tensors[i].name for i in file.inputs]
    driver = _DRIVERS[-1]
    tickets = [
        driver.submit(load(path), dict(zip(names, inputs, strict=True)))
        for inputs in several
    ]
    found = []
    for ticket in tickets:
        outputs = empty_outputs(path)
        driver.collect(ticket, outputs)
        found.append(list(outputs.values()))
    return found


# ---- sessions
# --------------------------------------------------------------------------------------

_SESSIONS: list[Session] = []


def open_session(bundle: Path, options: dict[str, Any]) -> StickFacts | None:
    """Open a bundle; return the state of its stick."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _SESSIONS.append(Session(bundle, **options))
    _SAID.extend(str(w.message) for w in said)
    return _SESSIONS[-1].edgetpu


def run_session(inputs: list[Array]) -> tuple[list[Array], str]:
    """The outputs of one run, and "delegate" if the stick took part, else "c"."""
    return _run(_SESSIONS[-1], inputs)


def _run(session: Session, inputs: list[Array]) -> tuple[list[Array], str]:
    names = session.manifest.inputs
    times: list[SegmentTime] = []
    outputs = session.run(dict(zip(names, inputs, strict=True)), timings=times)
    backends = {time.backend for time in times}
    return list(outputs.values()), "delegate" if "delegate" in backends else "c"


def run_after_a_fork(
    bundle: Path, inputs: list[Array]
) -> list[tuple[list[Array], str]]:
    """As `run_session`, in a child that was forked while a session was open: runs of that
    session, before and after the child opens one of its own, and of its own. The parent
    has closed its session by then.
    """
    session = Session(bundle, driver="own", tpu="delegate")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_in_child, args=(theirs, session, bundle, inputs))
    child.start()
    theirs.close()
    session.close()
    ours.send("closed")
    try:
        answer: list[tuple[list[Array], str]] = ours.recv()
    finally:
        child.join()
    return answer


def _in_child(
    parent: Connection, session: Session, bundle: Path, inputs: list[Array]
) -> None:
    assert parent.recv() == "closed"
    before = _run(session, inputs)
    with Session(bundle, driver="own", tpu="delegate") as own:
        parent.send([before, _run(own, inputs), _run(session, inputs)])


def session_facts() -> StickFacts | None:
    return _SESSIONS[-1].edgetpu


def close_session() -> list[str]:
    """What it warned of."""
    _SESSIONS.pop().close()
    said = list(_SAID)
    _SAID.clear()
    return said


_SAID: list[str] = []
