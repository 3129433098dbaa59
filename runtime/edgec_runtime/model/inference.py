"""The memory of an inference in flight: its tensors, and the arena of a thread."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple

import numpy as np
from numpy.typing import NDArray

from ..bundle.manifest import Manifest
from ..tensors import TensorInfo
from .threads import ThreadPool, aligned

Array = NDArray[Any]
_STALE = object()  # memory of a channel that was lost is still in use


class Lender(Protocol):
    """Lends a frame memory shared with the Edge TPU's process (stick.py)."""

    def attach(self) -> Tuple[int, Dict[str, Array]]:
        """Memory for one frame: its number, and the tensors in it."""

    def detach(self, slot: int) -> None:
        """The frame of this number is not used any more."""


class ExecutionContext:
    """The arena of C segments, and the threads that share their larger ops.

    For one thread at a time.
    """

    def __init__(
        self, nbytes: int, library: Optional[ctypes.CDLL], threads: int
    ) -> None:
        self._memory = aligned(nbytes)
        self._threads: Optional[ThreadPool] = None
        if library is not None and threads > 1:
            self._threads = ThreadPool(library, threads)
        self.arena: int = self._memory.ctypes.data
        self.pool: Optional[ctypes.c_void_p] = (
            self._threads.address if self._threads is not None else None
        )

    def stop(self) -> None:
        """Ends the threads.  Not during a run."""
        if self._threads is not None:
            self._threads.stop()


class Inference:
    """The tensors that cross segment borders, of one inference, and their addresses as
    the C segments take them.

    `arrays` has those that have a place now: all, but for model inputs and outputs
    before `put` and `renew`.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._infos = manifest.tensors
        self._inputs = manifest.inputs
        self._outputs = manifest.outputs
        # an output may be an input as it came
        self._written = {n for s in manifest.segments for n in s.outputs}
        self.arrays: Dict[str, Array] = {}
        # segment → addresses of what it reads, of what it writes
        self.ports: Dict[str, Tuple[Any, Any]] = {}
        self._places: Dict[str, List[Tuple[Any, int]]] = {
            name: [] for name in self._infos
        }
        self._own: Dict[str, Array] = {}
        self._bound: object = None
        # memory that the Edge TPU's process has too
        self._lent: Mapping[str, Array] = {}
        self._slot = -1
        for s in manifest.segments:
            ports = tuple(
                (ctypes.c_void_p * max(1, len(names)))()
                for names in (s.inputs, s.outputs)
            )
            for names, addresses in zip((s.inputs, s.outputs), ports):
                for i, name in enumerate(names):
                    self._places[name].append((addresses, i))
            self.ports[s.name] = (ports[0], ports[1])
        for name in self._infos:
            if name not in manifest.inputs and name not in manifest.outputs:
                self._bind(name, self._mine(name))

    def _bind(self, name: str, array: Array) -> None:
        self.arrays[name] = array

        where = array.ctypes.data
        for addresses, i in self._places[name]:
            addresses[i] = where

    def _mine(self, name: str) -> Array:
        if name not in self._own:
            self._own[name] = _empty(self._infos[name])
        return self._own[name]

    # ---- inputs and outputs
    # ----------------------------------------------------------------------------------

    def inputs(self) -> Dict[str, Array]:
        """The memory of the model inputs, to be written in place; by name."""
        return {name: self._input(name) for name in self._inputs}

    def _input(self, name: str) -> Array:
        if name not in self._lent and (
            name not in self._own or self.arrays[name] is not self._own[name]
        ):
            self._bind(name, self._mine(name))
        return self.arrays[name]

    def put(self, name: str, array: Array, copy: bool = False) -> None:
        """A model input.

        Without a copy where it can be used as it is; then nobody may change it.
        """
        if name in self.arrays and array is self.arrays[name]:
            return
        if (
            copy
            or name in self._lent
            or not (array.flags.c_contiguous and array.flags.aligned)
        ):
            np.copyto(self._input(name), array)
        else:
            self._bind(name, array)

    def renew(self, keep: bool = False) -> None:
        """Give the outputs new memory, which belongs to the caller.

        Args:
            keep: whether to use the frame's own memory again instead
        """
        for name in self._outputs:
            if name not in self._lent and name in self._written:
                if not keep:
                    self._bind(name, _empty(self._infos[name]))
                elif (
                    self._own.get(name) is None
                    or self.arrays.get(name) is not self._own[name]
                ):
                    self._bind(name, self._mine(name))

    def take(self, copy: bool = False) -> Dict[str, Array]:
        """The outputs, by name.

        Without a copy they are the caller's until `renew`, and from then on.
        """
        if copy:
            return {n: self.arrays[n].copy() for n in self._outputs}

        # Shared memory is written again by the next inference.
        own = {n for n in self._outputs if n not in self._lent and n in self._written}
        return {
            n: self.arrays[n] if n in own else self.arrays[n].copy()
            for n in self._outputs
        }

    # ---- the Edge TPU
    # ----------------------------------------------------------------------------------

    @property
    def channel(self) -> Optional[Lender]:
        """The Edge TPU's process with a part of the memory."""
        return None if self._bound is _STALE else self._bound  # type: ignore[return-value]

    @property
    def slot(self) -> int:
        """Its number in the Edge TPU's process."""
        return self._slot

    def use(self, channel: Optional[Lender]) -> None:
        """Before a run: what the Edge TPU reads and writes is where this process of it
        sees it; None: there is none.

        Raises stick.Gone where the process has ended; then the frame is as for None.
        """
        if channel is self._bound:
            return
        self.let_go()
        if channel is not None:
            self._slot, self._lent = channel.attach()
            self._bound = channel
            for name, array in self._lent.items():
                self._bind(name, array)

    def let_go(self) -> None:
        """No Edge TPU's process has a part of it any more."""

        lent = self._lent
        self._lent = {}
        bound = self._bound
        self._bound = None
        for name in lent:
            self._bind(name, self._mine(name))
        if lent and bound is not _STALE:
            bound.detach(self._slot)  # type: ignore[attr-defined]

    def salvage(self, written: Tuple[str, ...]) -> None:
        """The process was lost while these were to be written: it may still do so, so
        they go elsewhere.

        What was written before stays where it is, until the next `use`.
        """
        self._bound = _STALE
        for name in written:
            self._bind(name, self._mine(name))


def _empty(info: TensorInfo) -> Array:
    return aligned(info.nbytes).view(info.numpy_dtype).reshape(info.shape)
