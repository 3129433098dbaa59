"""Runs segments on the Edge TPU in a process that can be ended (process.py), and starts
another one after a fault.

While there is no process, segments run as their C twins, also in the run in which the
fault occurred.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from numpy.typing import NDArray

from ..bundle.manifest import SegmentInfo
from ..errors import DeviceError, InputError
from ..model.inference import Inference
from ..python_command import isolated_python
from ..session.locks import alone, apart, start
from ..tensors import TensorInfo
from .process import (
    ANSWER,
    ATTACH,
    DETACH,
    READY,
    REQUEST,
    RUN,
    START,
    STARTED,
    STATE,
    TEXT_BYTES,
    StickTask,
    layout,
    mapped,
)

Array = NDArray[Any]
# longest time in which a process imports its modules, from a slow card on a busy device
STARTING_S = 60.0
# longest time in which it then opens the Edge TPU or reports a failure; a driver may hang
OPENING_S = 15.0
# least time limit of an inference, as a multiple of the slowest first inference
SLOWER = 10
ENDING_S = 2.0
FIRST_PAUSE_S = 0.25
# longest pause before a process is started after one that failed at its first use
LONGEST_PAUSE_S = 30.0
# longest pause between two processes that cannot open the Edge TPU
NEXT_PAUSE_S = 1.0
_MESSAGE = max(ANSWER.size, STATE.size) + TEXT_BYTES


class Gone(Exception):
    """The process does not answer, or has reported a failure."""


class Channel:
    """A process of the Edge TPU, and the socket to it.

    Its methods may be called from any thread. They raise Gone after a failure.
    """

    def __init__(self, task_file: int, timeout: float, again: bool) -> None:
        """Start a process.

        Args:
            task_file: descriptor of a file with its StickTask, see `_file`
            timeout: time limit of an inference in seconds
            again: whether it tries to open the Edge TPU until it can, not only once

        Raises:
            OSError: the process cannot be started
        """
        self._least_timeout = timeout
        self.served = 0
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._slots = itertools.count()
        self._why: Optional[str] = None  # the reason of its failure
        self.lenders: Tuple[_ModelLender, ...] = ()
        """For each model, the lender of memory that is shared with the process."""
        self._wire, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, self._life = os.pipe()
        try:
            handles = (wire.fileno(), life, task_file)
            command = [
                *isolated_python(),
                "-c",
                START,
                *map(str, handles),
                "again" if again else "once",
            ]
            # It gets its own process group, since a Ctrl-C is for the session, which
            # then ends it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=handles,
                start_new_session=True,
            )
        except BaseException:
            self._wire.close()
            os.close(self._life)
            raise
        finally:
            wire.close()
            os.close(life)

    def wait_until_ready(
        self, task: StickTask, on_failure: Callable[[str], None]
    ) -> None:
        """Wait until the process is ready.

        Args:
            task: its task
            on_failure: is called after each failed attempt to open the Edge TPU, with the
                reason, and a hint or nothing in a second line
        """
        timeout = STARTING_S
        while True:
            self._wire.settimeout(timeout)
            message = self._receive(timeout)
            state, ns = STATE.unpack_from(message)
            if state == READY:
                break
            if state == STARTED:
                timeout = OPENING_S
            else:
                on_failure(message[STATE.size :].decode("utf-8", "replace"))
        models = enumerate(task.models)
        self.lenders = tuple(_ModelLender(self, i, m.tensors) for i, m in models)
        self._timeout = max(self._least_timeout, SLOWER * ns * 1e-9)
        self._wire.settimeout(self._timeout)

    def attach(
        self, model: int, tensors: Mapping[str, TensorInfo]
    ) -> Tuple[int, Dict[str, Array]]:
        """Share memory for a frame of a model; return its number and its tensors."""
        handle = -1
        try:
            handle = os.memfd_create("edgec-frame", os.MFD_CLOEXEC)
            os.ftruncate(handle, layout(tensors)[1])
            arrays = mapped(handle, tensors)
            slot = next(self._slots)
            request = REQUEST.pack(ATTACH, slot, model, 0)
            alone(self._lock, lambda: self._send(request, [handle]))
        except (OSError, ValueError) as e:
            raise Gone(f"it cannot be given memory: {e}") from e
        finally:
            if handle >= 0:
                os.close(handle)
        return slot, arrays

    def detach(self, slot: int) -> None:
        """Free the shared memory of a frame."""
        request = REQUEST.pack(DETACH, slot, 0, 0)
        with contextlib.suppress(Gone):
            alone(self._lock, lambda: self._send(request, []))

    def run(self, slot: int, segment: int) -> int:
        """Run a segment on a frame; return its time in the process in nanoseconds."""
        return alone(self._lock, lambda: self._run(slot, segment))

    def _run(self, slot: int, segment: int) -> int:
        number = next(self._numbers)
        self._send(REQUEST.pack(RUN, slot, segment, number), [])
        while True:
            message = self._receive(self._timeout)
            answered, failed, ns = ANSWER.unpack_from(message)
            # Another number is that of a run that was interrupted in this process.
            if answered == number:
                break
        if failed:
            self._why = message[ANSWER.size :].decode("utf-8", "replace")
            raise Gone(self._why)
        self.served += 1
        return int(ns)

    def _send(self, message: bytes, handles: List[int]) -> None:
        if self._why is not None:
            raise Gone(self._why)
        try:
            if handles:
                socket.send_fds(self._wire, [message], handles)
            else:
                self._wire.send(message)
        except OSError as e:
            raise Gone(self._end_reason(str(e))) from e

    def _receive(self, timeout: float) -> bytes:
        try:
            message = self._wire.recv(_MESSAGE)
        except socket.timeout:
            self._why = f"no answer for {timeout:.3g} s"
            raise Gone(self._why) from None
        except OSError as e:
            raise Gone(self._end_reason(str(e))) from e
        if not message:
            raise Gone(self._end_reason("its process ended"))
        return message

    def _end_reason(self, otherwise: str) -> str:
        """Return the reason of the end: the first fault, the exit status, or another."""
        if self._why is None:
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0.05)
            self._why = otherwise if code is None else f"its process ended with {code}"
        return self._why

    def kill(self) -> None:
        """End the process, even if it hangs, and all waits for it; return at once."""
        self._why = self._why or "it was ended"
        self._process.kill()
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def bury(self) -> None:
        """Wait for the end after `kill`, for ENDING_S at most, and close the socket."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        with self._lock:
            self._wire.close()
            # The number is reset first, since another file may soon have it.
            life = self._life
            self._life = -1
            if life >= 0:
                os.close(life)

    def end(self) -> None:
        """End the process and close the socket."""
        self.kill()
        self.bury()

    def disown(self) -> None:
        """Give up the process in a forked child: it belongs to the parent."""
        self._lock = threading.RLock()
        self._why = "it belongs to the process that was forked"
        self._process.returncode = 0  # so that Popen does not wait for it
        self._wire.close()
        os.close(self._life)
        self._life = -1


class _ModelLender:
    """Lends memory that a process shares to frames of one model (see Lender)."""

    def __init__(
        self, channel: Channel, model: int, tensors: Mapping[str, TensorInfo]
    ) -> None:
        self._channel = channel
        self._model = model
        self._tensors = tensors

    def attach(self) -> Tuple[int, Dict[str, Array]]:
        """Share memory for a frame; return its number and its tensors."""
        return self._channel.attach(self._model, self._tensors)

    def detach(self, slot: int) -> None:
        """Free the memory of the frame with this number."""
        self._channel.detach(slot)


@dataclass(frozen=True)
class StickFacts:
    """The state of the Edge TPU.

    Attributes:
        up: whether it runs segments now
        lost: number of times that it was lost
        back: number of times that it was opened again
        on_cpu: number of segments that ran as their C twins meanwhile
        hop: overhead of the last segment on it in nanoseconds, for the messages to the
            process and back
        why: the reason of the last loss
        driver: "own" or "libedgetpu"; "" for a user's functions
    """

    up: bool
    lost: int = 0
    back: int = 0
    on_cpu: int = 0
    hop: int = 0
    why: str = ""
    driver: str = ""


class Stick:
    """The Edge TPU's process, and the models that share it.

    Args:
        task: the task of the process
        timeout: time limit of an inference in seconds
        warn: is called at the first loss

    Attributes:
        models: the Edge TPU for each model of the task
        channel: the present process; None after a loss

    Raises:
        DeviceError: the Edge TPU cannot be opened, with the message of the process
    """

    def __init__(
        self, task: StickTask, timeout: float, warn: Callable[[str], None]
    ) -> None:
        self._task = task
        self._timeout = timeout
        self._warn = warn
        # Reentrant, since garbage collection may close a session in any thread.
        self._lock = threading.RLock()
        self._facts = StickFacts(False, driver=task.driver)
        self._closing = False
        self._ending: "SimpleQueue[None]" = SimpleQueue()
        """Gets an item to end the pauses of the thread that opens the Edge TPU again."""
        self._ended: Optional[Channel] = None
        self._pause = 0.0
        self._hop = 0
        self._opening: Optional[Channel] = None
        self._lost: "SimpleQueue[Optional[Channel]]" = SimpleQueue()
        self.models: List[StickOfModel] = []
        first = 0
        for i, model in enumerate(task.models):
            self.models.append(StickOfModel(self, i, first, model.segments))
            first += len(model.segments)
        self._task_file = apart(lambda: _file(task), os.close)
        self.channel: Optional[Channel] = None
        self._opener = threading.Thread(
            target=self._open_again, name="edgec-stick", daemon=True
        )
        reasons: List[str] = []
        try:
            self.channel = self._open(False, reasons.append)
            self._facts = replace(self._facts, up=True)
            # It is started now, so that a run with a fault does not wait for it.
            start([self._opener])
        except (Gone, OSError) as e:
            self.close()
            why, _, hint = (reasons[-1] if reasons else str(e)).partition("\n")
            raise DeviceError(
                f"the Edge TPU cannot run its segments: {why}",
                at=task.models[0].segments[0].name,
                hint=hint or "plug it in again; see `edgec doctor`",
            ) from None
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> StickFacts:
        """The state of the Edge TPU at this moment."""
        return replace(self._facts, hop=self._hop)

    def prepare(self, frame: Inference, model: int) -> None:
        """Bind a frame of a model to shared memory before it is run."""
        channel = self.channel
        try:
            frame.use(None if channel is None else channel.lenders[model])
        except Gone as e:
            assert channel is not None
            self._lose(channel, str(e))
            frame.use(None)

    def run(
        self, frame: Inference, model: int, number: int, segment: SegmentInfo
    ) -> bool:
        """Run a segment; return False if its C twin has to run instead.

        Args:
            frame: the frame
            model: the number of the segment's model
            number: the number of the segment, counted over all models
            segment: the segment
        """
        channel = self.channel
        if channel is not None and frame.channel is channel.lenders[model]:
            start = time.perf_counter_ns()
            try:
                ns = channel.run(frame.slot, number)
            except Gone as e:
                self._lose(channel, str(e))
            else:
                self._hop = time.perf_counter_ns() - start - ns
                return True
        if frame.channel is not None:
            frame.salvage(segment.outputs)
        with self._lock:
            self._facts = replace(self._facts, on_cpu=self._facts.on_cpu + 1)
        return False

    def close(self) -> None:
        """End the process, within seconds even if the Edge TPU hangs."""
        self._closing = True
        self._ending.put(None)
        with self._lock:
            # It is stored first, since a close that a Ctrl-C interrupts is called again.
            self._ended = self.channel or self._ended
            self.channel = None
            opening = self._opening
            self._facts = replace(self._facts, up=False)
        for channel in (self._ended, opening):
            if channel is not None:
                channel.kill()
        if self._ended is not None:
            self._ended.bury()
        self._lost.put(None)
        if self._opener.ident and threading.current_thread() is not self._opener:
            self._opener.join(2 * ENDING_S)
        with self._lock:
            task_file = self._task_file
            self._task_file = -1
            if task_file >= 0:
                os.close(task_file)

    def disown(self) -> None:
        """Give up the Edge TPU in a forked child, where segments run as C twins."""
        self._lock = threading.RLock()
        self._closing = True
        for channel in (self.channel, self._opening):
            if channel is not None:
                channel.disown()
        self.channel = self._opening = None
        self._facts = replace(
            self._facts, up=False, why="it belongs to the process that was forked"
        )

    # ---- lost, and back
    # ----------------------------------------------------------------------------------

    def _open(self, again: bool, on_failure: Callable[[str], None]) -> Channel:
        """Return a process that is ready; raise Gone or OSError if there is none."""
        channel = apart(
            lambda: Channel(self._task_file, self._timeout, again), Channel.end
        )
        try:
            with self._lock:
                self._opening = channel
            if self._closing:
                raise Gone("the session is closed")
            channel.wait_until_ready(self._task, on_failure)
        except BaseException:
            channel.end()
            raise
        finally:
            with self._lock:
                self._opening = None
        return channel

    def _lose(self, channel: Channel, why: str) -> None:
        """Give up a process after a fault, and let the other thread start a new one."""
        with self._lock:
            if self.channel is not channel:
                return  # another thread was first, or the session was closed
            self.channel = None
            first = self._facts.lost == 0
            self._facts = replace(
                self._facts, up=False, lost=self._facts.lost + 1, why=why
            )
            if channel.served:
                self._pause = 0.0
            else:
                self._pause = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause))
            channel.kill()
        self._lost.put(channel)
        if first:
            self._warn(
                f"the Edge TPU stopped answering ({why}); its segments run on the CPU "
                "until it is back"
            )

    def _open_again(self) -> None:
        """Open the Edge TPU after each loss, in a thread, until the session is closed."""
        while True:
            lost = self._lost.get()
            if lost is None:
                return
            self._reopen(lost)

    def _closes_within(self, pause: float) -> bool:
        """Wait for a pause in seconds or the closing; return whether it is closed."""
        # An event would acquire its lock in Python code (see session/locks.py).
        with contextlib.suppress(Empty):
            self._ending.get(timeout=pause)
        return self._closing

    def _reopen(self, lost: Channel) -> None:
        """Start a new process, again and again until it works or the session is closed."""
        lost.bury()
        pause = self._pause
        while not self._closes_within(pause):
            try:
                channel = self._open(True, lambda why: None)
            except (Gone, OSError):
                # The process hung, or crashed, as some drivers do without a stick.
                pause = min(NEXT_PAUSE_S, max(FIRST_PAUSE_S, 2 * pause))
                continue
            with self._lock:
                if not self._closing:
                    self.channel = channel
                    self._facts = replace(
                        self._facts, up=True, back=self._facts.back + 1
                    )
                    return
            channel.end()


class StickOfModel:
    """The Edge TPU for the session of one model."""

    def __init__(
        self, stick: Stick, model: int, first: int, segments: Tuple[SegmentInfo, ...]
    ) -> None:
        """Prepare it for a model.

        Args:
            stick: the Edge TPU
            model: the number of the model
            first: the number of its first segment, counted over all models
            segments: its segments
        """
        self._stick = stick
        self._model = model
        self._segments = {s.name: (first + i, s) for i, s in enumerate(segments)}

    def takes(self, name: str) -> bool:
        """Return whether a segment is one of the model's."""
        return name in self._segments

    @property
    def facts(self) -> StickFacts:
        """The state of the Edge TPU at this moment."""
        return self._stick.facts

    def prepare(self, frame: Inference) -> None:
        """Bind a frame to shared memory before it is run."""
        self._stick.prepare(frame, self._model)

    def run(self, frame: Inference, name: str) -> bool:
        """Run a segment; return False if its C twin has to run instead."""
        number, segment = self._segments[name]
        return self._stick.run(frame, self._model, number, segment)

    def close(self) -> None:
        """End the Edge TPU's process, for all models."""
        self._stick.close()

    def disown(self) -> None:
        """Give up the Edge TPU of all models in a forked child."""
        self._stick.disown()


def _file(task: StickTask) -> int:
    """Return the descriptor of a file in memory with sys.path and a task, pickled."""
    try:
        functions = pickle.dumps((task.interpreter, task.delegate))
        if b"__main__" in functions:
            raise pickle.PicklingError("it is in the program itself")
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        raise InputError(
            "the Edge TPU runs in a process of its own, "
            f"which cannot be given the interpreter's function: {e}",
            hint="use a function at the top of a module that is imported",
        ) from e
    handle = os.memfd_create("edgec-edgetpu", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(handle), "wb") as f:
        f.write(pickle.dumps(sys.path) + pickle.dumps(task))
    return handle
