"""The Edge TPU as a Session has it: a process that can be ended (stick_process.py), and
the next one after it was lost.

While there is none, segments run as their C twins; the stream or the run that met the
fault does not stop.
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
from ..session.locks import alone, start
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
# A process may take so long to import its modules, from a slow card on a busy device.
STARTING_S = 60.0
# Then it may take so long to open the Edge TPU, or to report that it could not: the
# driver may hang.
OPENING_S = 15.0
# times as long as its first timed inference may an inference take, where that is more
# than the time-out
SLOWER = 10
ENDING_S = 2.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0  # before it is tried again, when it fails as soon as it is used
NEXT_PAUSE_S = 1.0  # at most, between two processes that cannot open it
_MESSAGE = max(ANSWER.size, STATE.size) + TEXT_BYTES


class Gone(Exception):
    """The process does not answer, or reported a failure."""


class Channel:
    """One process.

    Its methods raise Gone once it is of no use; they may be called from any thread.
    """

    def __init__(self, given: int, timeout: float, again: bool) -> None:
        """given: a file with the Work.  timeout: seconds that an inference may take.

        again: it tries to open the Edge TPU until it can.  OSError where the system
        starts no process.
        """
        self._given_timeout = timeout
        self.served = 0
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._slots = itertools.count()
        self._why: Optional[str] = None  # it is of no use
        self.lenders: Tuple[_ModelLender, ...] = ()
        """Lends frames of each model memory that the process has too."""
        self._wire, wire = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        life, self._life = os.pipe()
        try:
            handles = (wire.fileno(), life, given)
            command = [
                sys.executable or "python3",
                "-I",
                "-c",
                START,
                *map(str, handles),
                "again" if again else "once",
            ]
            # A group of its own: Ctrl-C is for the session, which ends it.
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

    def wait_until_ready(self, work: StickTask, heard: Callable[[str], None]) -> None:
        """Wait until the process is ready.

        Args:
            heard: takes the reason of each failed attempt to open the Edge TPU
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
                heard(message[STATE.size :].decode("utf-8", "replace"))
        models = enumerate(work.models)
        self.lenders = tuple(_ModelLender(self, i, m.tensors) for i, m in models)
        self._timeout = max(self._given_timeout, SLOWER * ns * 1e-9)
        self._wire.settimeout(self._timeout)

    def attach(
        self, model: int, tensors: Mapping[str, TensorInfo]
    ) -> Tuple[int, Dict[str, Array]]:
        """Memory of one frame, shared with the process: its number and its tensors."""
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
        """The frame is not used any more."""
        request = REQUEST.pack(DETACH, slot, 0, 0)
        with contextlib.suppress(Gone):
            alone(self._lock, lambda: self._send(request, []))

    def run(self, slot: int, segment: int) -> int:
        """Return the ns of the segment there."""
        return alone(self._lock, lambda: self._run(slot, segment))

    def _run(self, slot: int, segment: int) -> int:
        number = next(self._numbers)
        self._send(REQUEST.pack(RUN, slot, segment, number), [])
        while True:
            message = self._receive(self._timeout)
            answered, failed, ns = ANSWER.unpack_from(message)
            if answered == number:  # else of a run that was interrupted here
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
            raise Gone(self._ended(str(e))) from e

    def _receive(self, timeout: float) -> bytes:
        try:
            message = self._wire.recv(_MESSAGE)
        except socket.timeout:
            self._why = f"no answer for {timeout:.3g} s"
            raise Gone(self._why) from None
        except OSError as e:
            raise Gone(self._ended(str(e))) from e
        if not message:
            raise Gone(self._ended("its process ended"))
        return message

    def _ended(self, otherwise: str) -> str:
        if self._why is None:
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(0.05)
            self._why = otherwise if code is None else f"its process ended with {code}"
        return self._why

    def kill(self) -> None:
        """End the process, also a hanging one, and everybody's wait for it.

        Does not wait.
        """
        self._why = self._why or "it was ended"
        self._process.kill()
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def bury(self) -> None:
        """Wait for the end after `kill`, ENDING_S at most, and free the memory."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        with self._lock:
            self._wire.close()
            # Forgotten first: its number may soon be another file's.
            life = self._life
            self._life = -1
            if life >= 0:
                os.close(life)

    def disown(self) -> None:
        """In a forked child: the process is the parent's.  Nothing is said to it."""
        self._lock = threading.RLock()
        self._why = "it belongs to the process that was forked"
        self._process.returncode = 0  # nobody waits for it here
        self._wire.close()
        os.close(self._life)
        self._life = -1


class _ModelLender:
    """Lends frames of one model memory of a process (see Lender)."""

    def __init__(
        self, channel: Channel, model: int, tensors: Mapping[str, TensorInfo]
    ) -> None:
        self._channel = channel
        self._model = model
        self._tensors = tensors

    def attach(self) -> Tuple[int, Dict[str, Array]]:
        """Memory for one frame: its number, and the tensors in it."""
        return self._channel.attach(self._model, self._tensors)

    def detach(self, slot: int) -> None:
        """The frame of this number is not used any more."""
        self._channel.detach(slot)


@dataclass(frozen=True)
class StickFacts:
    """up: it runs segments now.  lost, back: how often.  on_cpu: segments that ran as
    their C twins meanwhile.

    hop: ns beyond its own time that the last segment on it took, for the way there and
    back.  why: it was lost last.
    """

    up: bool
    lost: int = 0
    back: int = 0
    on_cpu: int = 0
    hop: int = 0
    why: str = ""


class Stick:
    """The Edge TPU's process with the models that share it; a session has one of its
    `models`.

    It starts with an open Edge TPU, or raises DeviceError with the process's message.

    Args:
        timeout: seconds that an inference may take
        warn: takes the first loss
    """

    def __init__(
        self, work: StickTask, timeout: float, warn: Callable[[str], None]
    ) -> None:
        self._work = work
        self._timeout = timeout
        self._warn = warn
        # a forgotten session is closed wherever the collector runs
        self._lock = threading.RLock()
        self._facts = StickFacts(False)
        self._closing = False
        self._ending: "SimpleQueue[None]" = SimpleQueue()
        """Ends the pauses of the thread that opens it again."""
        self._ended: Optional[Channel] = None
        self._pause = 0.0
        self._hop = 0
        self._opening: Optional[Channel] = None
        self._lost: "SimpleQueue[Optional[Channel]]" = SimpleQueue()
        self.models: List[StickOfModel] = []
        first = 0
        for i, model in enumerate(work.models):
            self.models.append(StickOfModel(self, i, first, model.segments))
            first += len(model.segments)
        self._given = _file(work)
        self.channel: Optional[Channel] = None
        said: List[str] = []
        try:
            self.channel = self._open(False, said.append)
        except (Gone, OSError) as e:
            os.close(self._given)
            raise DeviceError(
                f"the Edge TPU cannot run its segments: {said[-1] if said else e}",
                at=work.models[0].segments[0].name,
                hint="plug it in again; see `edgec doctor`",
            ) from None
        self._facts = StickFacts(True)
        # There from the start: who meets a fault has a frame to compute, and waits for
        # no thread to begin.
        self._opener = threading.Thread(
            target=self._open_again, name="edgec-stick", daemon=True
        )
        start([self._opener])

    @property
    def facts(self) -> StickFacts:
        """The state of the Edge TPU at this moment."""
        return replace(self._facts, hop=self._hop)

    def prepare(self, frame: Inference, model: int) -> None:
        """Before a frame of a model is run."""
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
        """Whether the segment ran; else it is to be run as its C twin.

        Args:
            frame: the frame
            model: the number of the segment's model
            number: of the segment, counted over all models
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
        """Returns within seconds, also where the Edge TPU hangs."""
        self._closing = True
        self._ending.put(None)
        with self._lock:
            # Known before it is taken away: a close that a Ctrl-C ends is called again.
            self._ended = self.channel or self._ended
            self.channel = None
            opening = self._opening
            self._facts = replace(self._facts, up=False)
        for one in (self._ended, opening):
            if one is not None:
                one.kill()
        if self._ended is not None:
            self._ended.bury()
        self._lost.put(None)
        if threading.current_thread() is not self._opener:
            self._opener.join(2 * ENDING_S)
        with self._lock:
            given = self._given
            self._given = -1
            if given >= 0:
                os.close(given)

    def disown(self) -> None:
        """In a forked child: the Edge TPU is the parent's, segments run as their C
        twins.
        """
        self._lock = threading.RLock()
        self._closing = True
        for one in (self.channel, self._opening):
            if one is not None:
                one.disown()
        self.channel = self._opening = None
        self._facts = replace(
            self._facts, up=False, why="it belongs to the process that was forked"
        )

    # ---- lost, and back
    # ----------------------------------------------------------------------------------

    def _open(self, again: bool, heard: Callable[[str], None]) -> Channel:
        """A process that is ready.  Raises Gone or OSError."""
        made = Channel(self._given, self._timeout, again)
        with self._lock:
            self._opening = made
        try:
            if self._closing:
                raise Gone("the session is closed")
            made.wait_until_ready(self._work, heard)
        except BaseException:
            made.kill()
            made.bury()
            raise
        finally:
            with self._lock:
                self._opening = None
        return made

    def _lose(self, channel: Channel, why: str) -> None:
        with self._lock:
            if self.channel is not channel:
                return  # it was another thread that met it, or the session was closed
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
        """A thread of its own, until the session is closed."""
        while True:
            lost = self._lost.get()
            if lost is None:
                return
            self._reopen(lost)

    def _closes_within(self, pause: float) -> bool:
        """Return whether it is closed, at once or after so many seconds."""
        # An event would take its lock in Python code (see session/locks.py).
        with contextlib.suppress(Empty):
            self._ending.get(timeout=pause)
        return self._closing

    def _reopen(self, lost: Channel) -> None:
        """Ends when there is a process again, or the session is closed."""
        lost.bury()
        pause = self._pause
        while not self._closes_within(pause):
            try:
                made = self._open(True, lambda why: None)
            except (Gone, OSError):
                # it hung, or crashed as some drivers do without a stick
                pause = min(NEXT_PAUSE_S, max(FIRST_PAUSE_S, 2 * pause))
                continue
            with self._lock:
                if not self._closing:
                    self.channel = made
                    self._facts = replace(
                        self._facts, up=True, back=self._facts.back + 1
                    )
                    return
            made.kill()
            made.bury()


class StickOfModel:
    """The Edge TPU, as the session of one model has it."""

    def __init__(
        self, stick: Stick, model: int, first: int, segments: Tuple[SegmentInfo, ...]
    ) -> None:
        """Name a model's segments.

        Args:
            stick: the Edge TPU
            model: the model's number
            first: the number of its first segment, counted over all models
            segments: its segments
        """
        self._stick = stick
        self._model = model
        self._segments = {s.name: (first + i, s) for i, s in enumerate(segments)}

    def takes(self, name: str) -> bool:
        """Whether a segment is one of its own."""
        return name in self._segments

    @property
    def facts(self) -> StickFacts:
        """The state of the Edge TPU at this moment."""
        return self._stick.facts

    def prepare(self, frame: Inference) -> None:
        """Before a frame is run."""
        self._stick.prepare(frame, self._model)

    def run(self, frame: Inference, name: str) -> bool:
        """Whether the segment ran; else it is to be run as its C twin."""
        number, segment = self._segments[name]
        return self._stick.run(frame, self._model, number, segment)

    def close(self) -> None:
        """End the Edge TPU's process, for all models."""
        self._stick.close()

    def disown(self) -> None:
        """In a forked child: the Edge TPU is the parent's, for all models."""
        self._stick.disown()


def _file(work: StickTask) -> int:
    """Return a file in memory with the process's work."""
    try:
        functions = pickle.dumps((work.interpreter, work.delegate))
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
        f.write(pickle.dumps(sys.path) + pickle.dumps(work))
    return handle
