"""The Edge TPU's process: it opens the delegate, and runs segments on tensors in memory
that it shares with a Session.

Since it is a process of its own, a driver that hangs or crashes can be ended (stick.py).
Tensors are not sent: both processes map a file in memory for each frame.  The messages
on a socket of packets are:

    to it    ATTACH slot, model (with the file), DETACH slot, RUN slot, segment, number
    from it  STARTED (all modules are imported), LOADING text, hint (in two lines, each
             time that it cannot open the Edge TPU), READY with the ns of the slowest
             inference;
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
REQUEST = struct.Struct("<iiiq")  # kind, slot, segment or model, number
STATE = struct.Struct("<iq")  # state, ns (of READY); followed by two lines (of LOADING)
ANSWER = struct.Struct("<qiq")  # number, whether it failed, ns; followed by the text
TEXT_BYTES = 2000
_REFUSED_CALL = "EdgeTpuDelegateForCustomOp) failed to invoke"
"""TFLite says so where libedgetpu has other fields in TfLiteRegistration."""
AGAIN_S = 0.25  # pause between two attempts to open the Edge TPU
# The Python program of the process. It takes sys.path of the session's process, by which
# this module can be imported. What ends all processes of a service or a group leaves
# this one to its session, which may have frames to finish.
START = (
    "import pickle, signal, sys\n"
    "for number in signal.SIGHUP, signal.SIGINT, signal.SIGTERM:\n"
    "    signal.signal(number, signal.SIG_IGN)\n"
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
    """The task of the process.

    It is pickled, so that its functions have to be those of modules.

    Attributes:
        models: the models, which share the Edge TPU
        interpreter: the interpreters to use
        delegate: opens the Edge TPU, given the interpreter's name
        driver: whose functions these are: "own" or "libedgetpu", "" for a user's
    """

    models: Tuple[StickModel, ...]
    interpreter: Union[str, InterpreterFactory, None]
    delegate: Delegate
    driver: str = ""


def layout(tensors: Mapping[str, TensorInfo]) -> Tuple[Dict[str, int], int]:
    """Return the offset of each tensor in a frame's file, and the size of the file."""
    offsets = {}
    end = 0
    for info in tensors.values():
        offsets[info.name] = end
        end += -(-info.nbytes // ALIGN) * ALIGN
    return offsets, max(end, ALIGN)


def mapped(handle: int, tensors: Mapping[str, TensorInfo]) -> Dict[str, Array]:
    """Return the tensors in a frame's file, which may be closed after that."""
    offsets, size = layout(tensors)
    memory = np.frombuffer(mmap.mmap(handle, size), np.uint8)
    return {
        i.name: memory[offsets[i.name] : offsets[i.name] + i.nbytes]
        .view(i.numpy_dtype)
        .reshape(i.shape)
        for i in tensors.values()
    }


def main(wire: int, life: int, task_file: IO[bytes], again: bool) -> None:
    """Serve a session until it closes the socket.

    Args:
        wire: descriptor of the socket
        life: descriptor of a pipe whose other end the session's process has
        task_file: the pickled sys.path and StickTask
        again: whether to try to open the Edge TPU until it works, not only once
    """
    # When the session's process ends, the kernel sends SIGIO because of this pipe. That
    # ends this process, even if it hangs in the driver.
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    # An OSError means that the session's process has ended.
    with socket.socket(fileno=wire) as connection, contextlib.suppress(OSError):
        loaded = _load(connection, task_file, again)
        if loaded is not None:
            _serve(connection, *loaded)


def _load(
    connection: socket.socket, task_file: IO[bytes], again: bool
) -> Optional[Tuple[List[InterpreterSegment], Tuple[StickModel, ...]]]:
    """Return the loaded segments of all models, and the models; None after a failure."""
    while True:
        try:
            task_file.seek(0)
            sys.path[:] = pickle.load(task_file)
            task: StickTask = pickle.load(task_file)
            make = _interpreters(task)
            connection.send(STATE.pack(STARTED, 0))
            segments: List[InterpreterSegment] = []
            ns = 0
            for model in task.models:
                for i in range(len(model.segments)):
                    segment = _open(task, make, model, i)
                    ns = max(ns, _timed(segment, model.tensors))
                    segments.append(segment)
        except Exception as e:
            connection.send(STATE.pack(LOADING, 0) + _two_lines(e))
            if not again:
                return None
            time.sleep(AGAIN_S)
        else:
            connection.send(STATE.pack(READY, ns))
            return segments, task.models


def _interpreters(task: StickTask) -> InterpreterFactory:
    """Return the factory of interpreters, after its module is imported."""
    if callable(task.interpreter):
        return task.interpreter
    return interpreter_factory(task.interpreter)


def _open(
    task: StickTask, make: InterpreterFactory, model: StickModel, i: int
) -> InterpreterSegment:
    name = task.interpreter if isinstance(task.interpreter, str) else None
    interpreter = make(model.compiled[i], task.delegate(name))
    return InterpreterSegment(model.segments[i], model.tensors, interpreter)


def _timed(segment: InterpreterSegment, tensors: Mapping[str, TensorInfo]) -> int:
    """Return the ns of an inference, by which the session sets its time limit."""
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
        kind, slot, segment, number = REQUEST.unpack(message)
        if kind == ATTACH:
            frames[slot] = mapped(handles[0], models[segment].tensors)
            os.close(handles[0])
        elif kind == DETACH:
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


def _two_lines(error: Exception) -> bytes:
    """Return the text of an error, and in the second line its hint, if it has one."""
    what = b" ".join(_text(error).splitlines())[: TEXT_BYTES // 2]
    hint = str(getattr(error, "hint", None) or "").encode("utf-8", "replace")
    return what + b"\n" + b" ".join(hint.splitlines())[: TEXT_BYTES // 2 - 1]


def _text(error: Exception) -> bytes:
    what = getattr(error, "what", None) or str(error) or type(error).__name__
    if _REFUSED_CALL in what:
        what = (
            "libedgetpu fails at the first call, as one does that was built for an older "
            "TensorFlow than the interpreter's; `edgec doctor` says where a newer one is"
        )
    return str(what).encode("utf-8", "replace")[:TEXT_BYTES]
