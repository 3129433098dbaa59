"""Stores the state of a session's model (manifest.state) between runs."""

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
        self._present = dict(self._initial)
        self._turn = threading.RLock()

    def in_turn(self, call: Callable[[], T]) -> T:
        """Call a run and return its result; runs with state wait for each other."""
        return alone(self._turn, call) if self._state else call()

    def begin(self, frame: Inference, inputs: Mapping[str, Array]) -> None:
        """Copy the state into the frame of a run.

        Args:
            frame: the frame
            inputs: the caller's inputs, whose state takes precedence
        """
        for name, array in self._present.items():
            np.copyto(frame.arrays[name], inputs.get(name, array))

    def end(self, frame: Inference) -> None:
        """Store the state after a run, before the next one begins."""
        # The arrays are copied, since the next run writes to the frame's memory.
        self._present = {s.input: frame.arrays[s.output].copy() for s in self._state}

    def reset(self) -> None:
        """Return to the state before the first run."""
        self.in_turn(self._forget)

    def _forget(self) -> None:
        self._present = dict(self._initial)

    def forked(self) -> None:
        """Replace the lock in the child of a fork, where its owner may not exist."""
        self._turn = threading.RLock()
