"""A test double of tf.lite.Interpreter: the tiny model's RELU, with the real one's
manners and, on demand, faults.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from edgec_runtime.model.interpreters import TfliteInterpreter
from numpy.typing import NDArray

from tests.runtime.tiny_model import SHAPE, ZERO

Array = NDArray[Any]


class FakeInterpreter(TfliteInterpreter):
    """Refuses to run while a view of its memory is held, as LiteRT does.

    fail_at: the invoke (from 1) that raises, as when the stick is pulled out.  move:
    every invoke moves its tensors. names: what it calls its tensors.  dtype: what it
    says they are.
    """

    def __init__(
        self,
        *,
        fail_at: int = 0,
        move: bool = False,
        names: tuple[str, str] = ("q", "r"),
        dtype: type[np.generic] = np.int8,
    ) -> None:
        self.fail_at = fail_at
        self.move = move
        self.names = names
        self.dtype = dtype
        self.invokes = 0
        self._memory: list[Array] = []

    def allocate_tensors(self) -> None:
        self._memory = [np.zeros(SHAPE, np.int8), np.zeros(SHAPE, np.int8)]

    def get_input_details(self) -> list[Mapping[str, Any]]:
        return [
            {
                "name": self.names[0],
                "index": 0,
                "shape": np.array(SHAPE),
                "dtype": self.dtype,
            }
        ]

    def get_output_details(self) -> list[Mapping[str, Any]]:
        return [
            {
                "name": self.names[1],
                "index": 1,
                "shape": np.array(SHAPE),
                "dtype": np.int8,
            }
        ]

    def tensor(self, index: int) -> Callable[[], Array]:
        return lambda: self._memory[index]

    def invoke(self) -> None:
        self.invokes += 1
        for array in self._memory:
            # in the list, in `array`, in getrefcount's argument
            if sys.getrefcount(array) > 3:
                raise RuntimeError("There is at least 1 reference to internal data")
        if self.invokes == self.fail_at:
            raise RuntimeError("Failed to execute request. USB transfer error 5")
        if self.move:
            # kept, so that the new memory really is elsewhere
            self._moved = self._memory
            self._memory = [m.copy() for m in self._memory]
        np.maximum(self._memory[0], ZERO, out=self._memory[1])
