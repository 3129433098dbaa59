"""Shares an Edge TPU among several sessions of this process.

Only one process at a time can open an Edge TPU, so that sessions with the same delegate
share its process. For a new session the process is replaced by one with the segments of
all sessions. Meanwhile segments run as their C twins, with the same results.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Callable, Dict, Optional, Tuple

from ..errors import DeviceError
from ..model.inference import Inference
from .compiled_interpreter import OWN
from .process import StickModel, StickTask
from .stick import Stick, StickFacts, StickOfModel


class SharedStick:
    """The Edge TPU's process of all sessions with one delegate.

    Any thread may add and remove sessions.
    """

    def __init__(self, task: StickTask) -> None:
        """Begin without sessions.

        Args:
            task: its interpreter and delegate are used, its models are not
        """
        self._task = task
        self._lock = threading.RLock()
        self._shares: Tuple[StickShare, ...] = ()
        self._stick: Optional[Stick] = None
        self._timeout = 0.0

    def add(
        self, model: StickModel, timeout: float, warn: Callable[[str], None]
    ) -> "StickShare":
        """Open the Edge TPU for another model.

        Args:
            model: the segments of a session
            timeout: time limit of an inference in seconds
            warn: is called at the first loss

        Raises:
            DeviceError: the Edge TPU cannot be opened; earlier sessions continue
        """
        with self._lock:
            # A process is already trying to open it again, for the earlier sessions.
            if self._stick is not None and not self._stick.facts.up:
                raise DeviceError(
                    f"the Edge TPU is away: {self._stick.facts.why}",
                    at=model.segments[0].name,
                    hint="plug it in again; see `edgec doctor`",
                )
            share = StickShare(self, model)
            before = self._shares
            self._timeout = max(timeout, self._timeout)
            try:
                self._open((*before, share), warn)
            except BaseException:
                # The cause may be the new model, or a Ctrl-C.
                if before:
                    self._restore(before, warn)
                else:
                    self._shares = ()
                    self._end()
                raise
            return share

    def _open(
        self, shares: Tuple["StickShare", ...], warn: Callable[[str], None]
    ) -> None:
        """Replace the process by one for other sessions."""
        # Another process can open the device only after the present one has closed it.
        self._end()
        task = replace(self._task, models=tuple(share.model for share in shares))
        self._stick = Stick(task, self._timeout, warn)
        self._shares = shares
        for share, present in zip(shares, self._stick.models):
            share.present = present

    def _restore(
        self, shares: Tuple["StickShare", ...], warn: Callable[[str], None]
    ) -> None:
        """Open the Edge TPU for the earlier sessions, or warn that they have lost it."""
        try:
            self._open(shares, warn)
        except DeviceError as e:
            warn(f"{e.what}; segments of earlier sessions run on the CPU from now on")

    def remove(self, share: "StickShare") -> None:
        """Remove a session; the process ends with the last one."""
        with self._lock:
            self._shares = tuple(other for other in self._shares if other is not share)
            if not self._shares:
                self._end()

    def _end(self) -> None:
        """End the process, if there is one."""
        if self._stick is not None:
            self._stick.close()
        self._stick = None

    def disown(self) -> None:
        """Give up the Edge TPU, and locks of other threads, in a forked child."""
        self._lock = threading.RLock()
        self._shares = ()
        if self._stick is not None:
            self._stick.disown()
        self._stick = None


class StickShare(StickOfModel):
    """The Edge TPU of a session that shares it.

    While another session is added, this one continues on the ended process, that is, on
    its C twins; so does one that was removed.

    Attributes:
        model: its segments
        present: the model's part of the process; SharedStick sets it before any use, and
            again with each new process
    """

    present: StickOfModel

    def __init__(self, shared: SharedStick, model: StickModel) -> None:
        """Prepare the share of a session.

        Args:
            shared: the Edge TPU
            model: its segments
        """
        self._shared = shared
        self.model = model
        self._names = {segment.name for segment in model.segments}

    def takes(self, name: str) -> bool:
        """Return whether a segment is one of the session's."""
        return name in self._names

    @property
    def facts(self) -> StickFacts:
        """The state of the Edge TPU at this moment."""
        return self.present.facts

    def prepare(self, frame: Inference) -> None:
        """Bind a frame to shared memory before it is run."""
        self.present.prepare(frame)

    def run(self, frame: Inference, name: str) -> bool:
        """Run a segment; return False if its C twin has to run instead."""
        return self.present.run(frame, name)

    def close(self) -> None:
        """Remove the session."""
        self._shared.remove(self)

    def disown(self) -> None:
        """Give up the Edge TPU of all sessions in a forked child."""
        self._shared.disown()


_Key = Tuple[Optional[str], str]
_SHARED: Dict[_Key, SharedStick] = {}
_LOCK = threading.Lock()


def shared_stick(task: StickTask, device: str) -> SharedStick:
    """Return the Edge TPU that sessions of a device share.

    Args:
        task: its interpreter and delegate are used
        device: libedgetpu's name of the device; "" for any, also one that is open already;
            OWN for that of our driver
    """
    name = task.interpreter if isinstance(task.interpreter, str) else None
    with _LOCK:
        if not device:
            # An Edge TPU that is open already surely exists.
            for (interpreter, other), shared in _SHARED.items():
                if interpreter == name and other != OWN:
                    return shared
        return _SHARED.setdefault((name, device), SharedStick(task))
