"""The memory of an inference: its tensors, and the arena of the thread that runs it."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple

import numpy as np
from numpy.typing import NDArray

from ..bundle.manifest import Manifest
from ..tensors import TensorInfo
from .threads import ThreadPool, aligned

Array = NDArray[Any]
_STALE = object()  # the frame still uses memory of a lost channel


class Lender(Protocol):
    """Lends frames memory that is shared with the Edge TPU's process (stick/stick.py)."""

    def attach(self) -> Tuple[int, Dict[str, Array]]:
        """Share memory for a frame; return its number and its tensors."""

    def detach(self, slot: int) -> None:
        """Free the memory of the frame with this number."""


class ExecutionContext:
    """The arena of C segments, and the threads that share their larger ops.

    Only one thread at a time may use it.
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
        """End the threads; not allowed during a run."""
        if self._threads is not None:
            self._threads.stop()


class Inference:
    """The tensors of an inference that cross segment borders.

    Attributes:
        arrays: the tensors that have memory now, by name; model inputs get it by `put`,
            outputs by `renew`
        ports: for each segment the addresses of its inputs and outputs, as C takes them
    """

    def __init__(self, manifest: Manifest) -> None:
        self._infos = manifest.tensors
        self._inputs = manifest.inputs
        self._outputs = manifest.outputs
        # an output may also be an unchanged input
        self._written = {n for s in manifest.segments for n in s.outputs}
        self.arrays: Dict[str, Array] = {}
        self.ports: Dict[str, Tuple[Any, Any]] = {}
        # for each tensor the lists of addresses, and its index in each
        self._address_slots: Dict[str, List[Tuple[Any, int]]] = {
            name: [] for name in self._infos
        }
        # memory of this process for tensors, by name
        self._private: Dict[str, Array] = {}
        # the lender of the shared memory, None, or _STALE
        self._bound: object = None
        # tensors in memory that is shared with the Edge TPU's process
        self._lent: Mapping[str, Array] = {}
        self._slot = -1
        for s in manifest.segments:
            ports = tuple(
                (ctypes.c_void_p * max(1, len(names)))()
                for names in (s.inputs, s.outputs)
            )
            for names, addresses in zip((s.inputs, s.outputs), ports):
                for i, name in enumerate(names):
                    self._address_slots[name].append((addresses, i))
            self.ports[s.name] = (ports[0], ports[1])
        for name in self._infos:
            if name not in manifest.inputs and name not in manifest.outputs:
                self._bind(name, self._memory(name))

    def _bind(self, name: str, array: Array) -> None:
        """Use an array for a tensor from now on."""
        self.arrays[name] = array

        address = array.ctypes.data
        for addresses, i in self._address_slots[name]:
            addresses[i] = address

    def _memory(self, name: str) -> Array:
        """Return the private memory of a tensor, which is made at its first use."""
        if name not in self._private:
            self._private[name] = _empty(self._infos[name])
        return self._private[name]

    # ---- inputs and outputs
    # ----------------------------------------------------------------------------------

    def inputs(self) -> Dict[str, Array]:
        """Return the memory of the model inputs, to be written in place, by name."""
        return {name: self._input(name) for name in self._inputs}

    def _input(self, name: str) -> Array:
        if name not in self._lent and (
            name not in self._private or self.arrays[name] is not self._private[name]
        ):
            self._bind(name, self._memory(name))
        return self.arrays[name]

    def put(self, name: str, array: Array, copy: bool = False) -> None:
        """Set a model input.

        Args:
            name: its name
            array: the array; it may be used itself, and must not be changed then
            copy: whether to copy it in any case
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
            keep: whether to use the frame's private memory again instead
        """
        for name in self._outputs:
            if name not in self._lent and name in self._written:
                if not keep:
                    self._bind(name, _empty(self._infos[name]))
                elif (
                    self._private.get(name) is None
                    or self.arrays.get(name) is not self._private[name]
                ):
                    self._bind(name, self._memory(name))

    def take(self, copy: bool = False) -> Dict[str, Array]:
        """Return the outputs, by name.

        Args:
            copy: whether to copy them; otherwise the caller may keep the arrays if it
                calls `renew` before the next run
        """
        if copy:
            return {n: self.arrays[n].copy() for n in self._outputs}

        # The next inference writes to shared memory again, so that it has to be copied.
        private = {
            n for n in self._outputs if n not in self._lent and n in self._written
        }
        return {
            n: self.arrays[n] if n in private else self.arrays[n].copy()
            for n in self._outputs
        }

    # ---- the Edge TPU
    # ----------------------------------------------------------------------------------

    @property
    def channel(self) -> Optional[Lender]:
        """The lender of the shared memory; None without one."""
        return None if self._bound is _STALE else self._bound  # type: ignore[return-value]

    @property
    def slot(self) -> int:
        """The frame's number in the Edge TPU's process."""
        return self._slot

    def use(self, channel: Optional[Lender]) -> None:
        """Bind the tensors of the Edge TPU to memory that is shared with its process.

        This is called before each run.  Raises stick.Gone if the process has ended; the
        frame then has no shared memory.

        Args:
            channel: the lender of the memory; None without a process
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
        """Return all shared memory to the Edge TPU's process."""
        lent = self._lent
        self._lent = {}
        bound = self._bound
        self._bound = None
        for name in lent:
            self._bind(name, self._memory(name))
        if lent and bound is not _STALE:
            bound.detach(self._slot)  # type: ignore[attr-defined]

    def salvage(self, written: Tuple[str, ...]) -> None:
        """Bind the outputs of a segment to private memory after its process was lost.

        The process may still write to the shared memory.  Earlier tensors stay there
        until the next `use`.

        Args:
            written: the outputs of the segment
        """
        self._bound = _STALE
        for name in written:
            self._bind(name, self._memory(name))


def _empty(info: TensorInfo) -> Array:
    return aligned(info.nbytes).view(info.numpy_dtype).reshape(info.shape)
