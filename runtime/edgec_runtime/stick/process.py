"""The Edge TPU's process: opens the delegate, and runs segments on tensors in memory
that it shares with a Session.

It is a process so that a driver that hangs or crashes can be ended (stick.py does).
Tensors are not sent: each frame of the session has a file in memory, mapped by both.
Messages, on a socket that keeps their borders:

    to it    ATTACH slot, model (with the file), DETACH slot, RUN slot, segment, number
    from it  STARTED (all modules are imported), LOADING text (each time that it cannot
             open the Edge TPU), READY with the ns of the slowest inference;
             for each RUN its number, whether it failed, ns, text
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import pickle
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from ..bundle.manifest import SegmentInfo
from ..model.interpreters import InterpreterFactory, interpreter_factory
from ..model.segments import InterpreterSegment
from ..model.threads import ALIGN
from ..tensors import TensorInfo

Array = NDArray[Any]
ATTACH = 1
DETACH = 2
RUN = 3
LOADING = 1
READY = 2
STARTED = 3
REQUEST = struct.Struct("<iiiq")  # what, slot, segment or model, number
STATE = struct.Struct("<iq")  # one of the three, ns (of READY); then text (of LOADING)
ANSWER = struct.Struct("<qiq")  # number, whether it failed, ns; then text
TEXT_BYTES = 2000
AGAIN_S = 0.25  # between two attempts to open it
# What the interpreter is started with: where modules are is as in the session's
# process, then this is one of them.
START = (
    "import pickle, sys\n"
    "f = open('/proc/self/fd/' + sys.argv[3], "
    "'rb')\n"  # one place to read at for each process
    "sys.path[:] = pickle.load(f)\n"
    "from edgec_runtime.stick.process import main\n"
    "main(int(sys.argv[1]), int(sys.argv[2]), f, sys.argv[4] == 'again')\n"
)

Delegate = Callable[[Optional[str]], Any]


@dataclass(frozen=True)
class StickModel:
    """A model with segments on the Edge TPU.

    Attributes:
        segments: the segments
        tensors: the tensors that they read and write, by name
        compiled: a compiled .tflite for each segment
    """

    segments: Tuple[SegmentInfo, ...]
    tensors: Mapping[str, TensorInfo]
    compiled: Tuple[bytes, ...]


@dataclass(frozen=True)
class StickTask:
    """The work of the process, which is pickled: functions are those of modules.

    Attributes:
        models: the models, which share the Edge TPU
        interpreter: the interpreters to use
        delegate: opens the Edge TPU, given the interpreter's name
    """

    models: Tuple[StickModel, ...]
    interpreter: Union[str, InterpreterFactory, None]
    delegate: Delegate


def layout(tensors: Mapping[str, TensorInfo]) -> Tuple[Dict[str, int], int]:
    """Where each tensor is in a frame's file, and the size of the file."""
    found = {}
    end = 0
    for info in tensors.values():
        found[info.name] = end
        end += -(-info.nbytes // ALIGN) * ALIGN
    return found, max(end, ALIGN)


def mapped(handle: int, tensors: Mapping[str, TensorInfo]) -> Dict[str, Array]:
    """Return the tensors in a frame's file, which may be closed then."""
    places, size = layout(tensors)
    memory = np.frombuffer(mmap.mmap(handle, size), np.uint8)
    return {
        i.name: memory[places[i.name] : places[i.name] + i.nbytes]
        .view(i.numpy_dtype)
        .reshape(i.shape)
        for i in tensors.values()
    }


def main(wire: int, life: int, given: IO[bytes], again: bool) -> None:
    """Serves until the socket is closed.  again: tries to open the Edge TPU until it is
    there, not once.
    """
    # The session's process has the other end of this pipe: when it ends, the kernel
    # ends this one too, even one that hangs in the driver (SIGIO, which nobody
    # handles).
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    # nobody is there any more
    with socket.socket(fileno=wire) as connection, contextlib.suppress(OSError):
        loaded = _load(connection, given, again)
        if loaded is not None:
            _serve(connection, *loaded)


def _load(
    connection: socket.socket, given: IO[bytes], again: bool
) -> Optional[Tuple[List[InterpreterSegment], Tuple[StickModel, ...]]]:
    while True:
        try:
            given.seek(0)
            sys.path[:] = pickle.load(given)
            work: StickTask = pickle.load(given)
            make = _interpreters(work)
            connection.send(STATE.pack(STARTED, 0))
            segments: List[InterpreterSegment] = []
            ns = 0
            for model in work.models:
                for i in range(len(model.segments)):
                    segment = _open(work, make, model, i)
                    ns = max(ns, _timed(segment, model.tensors))
                    segments.append(segment)
        except Exception as e:
            connection.send(STATE.pack(LOADING, 0) + _text(e))
            if not again:
                return None
            time.sleep(AGAIN_S)
        else:
            connection.send(STATE.pack(READY, ns))
            return segments, work.models


def _interpreters(work: StickTask) -> InterpreterFactory:
    """Return what makes interpreters, with its module imported."""
    if callable(work.interpreter):
        return work.interpreter
    return interpreter_factory(work.interpreter)


def _open(
    work: StickTask, make: InterpreterFactory, model: StickModel, i: int
) -> InterpreterSegment:
    name = work.interpreter if isinstance(work.interpreter, str) else None
    made = make(model.compiled[i], work.delegate(name))
    return InterpreterSegment(model.segments[i], model.tensors, made)


def _timed(segment: InterpreterSegment, tensors: Mapping[str, TensorInfo]) -> int:
    """Return the ns of an inference, so that a slow model does not count as hanging."""
    zeros = {
        info.name: np.zeros(info.shape, info.numpy_dtype) for info in tensors.values()
    }
    start = time.perf_counter_ns()
    segment.run(zeros)
    return time.perf_counter_ns() - start


def _serve(
    connection: socket.socket,
    segments: List[InterpreterSegment],
    models: Tuple[StickModel, ...],
) -> None:
    frames: Dict[int, Dict[str, Array]] = {}
    while True:
        message, handles, _, _ = socket.recv_fds(connection, REQUEST.size, 1)
        if not message:
            return
        what, slot, segment, number = REQUEST.unpack(message)
        if what == ATTACH:
            frames[slot] = mapped(handles[0], models[segment].tensors)
            os.close(handles[0])
        elif what == DETACH:
            frames.pop(slot, None)
        else:
            start = time.perf_counter_ns()
            failed = 0
            text = b""
            try:
                segments[segment].run(frames[slot])
            except Exception as e:
                failed = 1
                text = _text(e)
            connection.send(
                ANSWER.pack(number, failed, time.perf_counter_ns() - start) + text
            )


def _text(error: Exception) -> bytes:
    what = getattr(error, "what", None) or str(error) or type(error).__name__
    return str(what).encode("utf-8", "replace")[:TEXT_BYTES]
