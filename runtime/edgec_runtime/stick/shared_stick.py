"""One Edge TPU for several sessions of this process.

An Edge TPU belongs to one process at a time, and each session's segments would run in a
process of their own. So sessions with the same delegate share one: when a session
comes, the process ends and starts anew with the segments of all. What runs meanwhile
runs as its C twin, with the same results.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Callable, Dict, Optional, Tuple

from ..errors import DeviceError
from ..model.inference import Inference
from .process import StickModel, StickTask
from .stick import Stick, StickFacts, StickOfModel


class SharedStick:
    """The Edge TPU's process of all sessions with one delegate.

    Any thread may let sessions come and go.
    """

    def __init__(self, task: StickTask) -> None:
        """Begin without sessions. task: with the functions to use; its models are
        not.
        """
        self._task = task
        self._lock = threading.RLock()
        self._models: Dict[int, StickModel] = {}
        self._next = 0
        self._stick: Optional[Stick] = None
        self._sticks: Dict[int, StickOfModel] = {}
        self._timeout = 0.0

    def add(
        self, model: StickModel, timeout: float, warn: Callable[[str], None]
    ) -> "StickShare":
        """Open the Edge TPU for one model more.

        Args:
            model: the segments of a session
            timeout: seconds that an inference may take
            warn: takes the first loss

        Raises:
            DeviceError: the Edge TPU cannot be opened; the sessions before go on
        """
        with self._lock:
            # Its process is trying to open it again, for the sessions before.
            if self._stick is not None and not self._stick.facts.up:
                raise DeviceError(
                    f"the Edge TPU is away: {self._stick.facts.why}",
                    at=model.segments[0].name,
                    hint="plug it in again; see `edgec doctor`",
                )
            number = self._next
            self._next += 1
            before = dict(self._models)
            self._timeout = max(timeout, self._timeout)
            try:
                self._open({**before, number: model}, warn)
            except BaseException:
                # The new model may be what the Edge TPU does not take, or a Ctrl-C came.
                if before:
                    self._restore(before, warn)
                raise
            return StickShare(self, number, model)

    def _open(self, models: Dict[int, StickModel], warn: Callable[[str], None]) -> None:
        """Start a process with these models in place of the present one."""
        # The device has to be free before another process can open it.
        if self._stick is not None:
            self._stick.close()
        self._stick = None
        task = replace(self._task, models=tuple(models.values()))
        self._stick = Stick(task, self._timeout, warn)
        self._models = models
        self._sticks = dict(zip(models, self._stick.models))

    def _restore(
        self, models: Dict[int, StickModel], warn: Callable[[str], None]
    ) -> None:
        """Open the Edge TPU for the sessions that had it, or say that they lost it."""
        try:
            self._open(models, warn)
        except DeviceError as e:
            warn(f"{e.what}; segments of earlier sessions run on the CPU from now on")

    def remove(self, number: int) -> None:
        """Forget a session; the process ends with the last one."""
        with self._lock:
            self._models.pop(number, None)
            if not self._models and self._stick is not None:
                self._stick.close()
                self._stick = None

    def of(self, number: int) -> StickOfModel:
        """Return the Edge TPU as a session has it now.

        Without the lock: while another session opens it anew this one runs on, on the
        process that is ended, which means on its C twins.
        """
        return self._sticks[number]

    def disown(self) -> None:
        """In a forked child: the Edge TPU is the parent's, and locks may be held."""
        self._lock = threading.RLock()
        self._models = {}
        if self._stick is not None:
            self._stick.disown()
        self._stick = None


class StickShare(StickOfModel):
    """The Edge TPU of a session that shares it."""

    def __init__(self, shared: SharedStick, number: int, model: StickModel) -> None:
        """Name the model's segments. number: of the session."""
        self._shared = shared
        self._number = number
        self._names = {segment.name for segment in model.segments}

    def takes(self, name: str) -> bool:
        """Whether a segment is one of its own."""
        return name in self._names

    @property
    def facts(self) -> StickFacts:
        """The state of the Edge TPU at this moment."""
        return self._shared.of(self._number).facts

    def prepare(self, frame: Inference) -> None:
        """Before a frame is run."""
        self._shared.of(self._number).prepare(frame)

    def run(self, frame: Inference, name: str) -> bool:
        """Whether the segment ran; else it is to be run as its C twin."""
        return self._shared.of(self._number).run(frame, name)

    def close(self) -> None:
        """Let the session go."""
        self._shared.remove(self._number)

    def disown(self) -> None:
        """In a forked child: the Edge TPU is the parent's, for all sessions."""
        self._shared.disown()


_Key = Tuple[Optional[str], str]
_SHARED: Dict[_Key, SharedStick] = {}
_LOCK = threading.Lock()


def shared_stick(task: StickTask, device: str) -> SharedStick:
    """Return the Edge TPU that sessions of a device share.

    Args:
        task: with the functions to use
        device: libedgetpu's word for the device; "": any, also one that is open already
    """
    name = task.interpreter if isinstance(task.interpreter, str) else None
    with _LOCK:
        if not device:
            # An Edge TPU that is open already is the likeliest to be there.
            for (interpreter, _), shared in _SHARED.items():
                if interpreter == name:
                    return shared
        return _SHARED.setdefault((name, device), SharedStick(task))
