"""A session's copy of the model's state (manifest.state), which each run updates."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Mapping, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..model.inference import Inference
from .locks import alone

Array = NDArray[Any]
T = TypeVar("T")


class StateStore:
    """The state after the last successful run.

    Runs of a model with state wait for each other.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._state = bundle.manifest.state
        self._initial: Dict[str, Array] = {}
        for s in self._state:
            info = bundle.manifest.tensors[s.input]

            data = bytes(info.nbytes) if s.initial is None else bundle.read(s.initial)
            self._initial[s.input] = np.frombuffer(data, info.numpy_dtype).reshape(
                info.shape
            )
        self._now = dict(self._initial)
        self._turn = threading.RLock()

    def in_turn(self, call: Callable[[], T]) -> T:
        """Return what a run returns: the next one begins when it has left its state."""
        return alone(self._turn, call) if self._state else call()

    def begin(self, frame: Inference, given: Mapping[str, Array]) -> None:
        """Copy the state into the frame of a run, unless the caller gives it."""
        for name, array in self._now.items():
            np.copyto(frame.arrays[name], given.get(name, array))

    def end(self, frame: Inference) -> None:
        """After a run, in its turn."""

        # Copies: the frame's memory is written by the next run.
        self._now = {s.input: frame.arrays[s.output].copy() for s in self._state}

    def reset(self) -> None:
        """Return to the state before the first run."""
        self.in_turn(self._forget)

    def _forget(self) -> None:
        self._now = dict(self._initial)

    def forked(self) -> None:
        """In the child of a fork: who has the lock may not be there."""
        self._turn = threading.RLock()
