"""Loads a bundle, and runs its segments on C, an interpreter or the Edge TPU."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..bundle.extraction import extract
from ..bundle.manifest import SegmentInfo
from ..device_end.bundles import machine_target
from ..errors import DeviceError, InputError
from ..model.inference import ExecutionContext, Inference
from ..model.interpreters import (
    InterpreterFactory,
    interpreter_factory,
)
from ..model.library import load_library
from ..model.segments import CSegment, InterpreterSegment
from ..stick.stick import StickOfModel
from ..tensors import TensorInfo
from .locks import alone

Array = NDArray[Any]
TPU_MODES = ("auto", "delegate", "interpreter", "c")


class Program:
    """The segments of a bundle, ready to run on frames.

    Several frames can run at a time, except on an interpreter.
    """

    def __init__(
        self,
        bundle: Bundle,
        tpu: str,
        interpreter: Union[str, InterpreterFactory, None],
        threads: int,
        stick: Optional[StickOfModel],
    ) -> None:
        """Load a bundle.

        Args:
            bundle: the bundle
            tpu: one of `TPU_MODES`
            interpreter: the interpreters to use
            threads: threads that share a segment on the CPU
            stick: the Edge TPU (edgetpu.open_stick); None to run all segments on C
        """
        self.bundle = bundle
        self.manifest = bundle.manifest
        self._threads = threads
        self._library: Optional[ctypes.CDLL] = None
        self._weights: Optional[Array] = None
        """The weights, mapped read only."""
        self._factories: Dict[str, Callable[[], InterpreterSegment]] = {}
        """The function that makes the interpreter of a segment, by its name."""
        self._interpreters: Dict[str, InterpreterSegment] = {}
        self._interpreter_lock = threading.RLock()
        """Is locked during a run, since an interpreter runs one frame at a time."""
        self._abandoned: List[object] = []
        self.stick = stick
        if tpu == "interpreter":
            self._interpret(interpreter)
        self._code = {
            s.name: self._on_c(s)
            for s in self.manifest.segments
            if s.name not in self._factories
        }

    # ---- running
    # ----------------------------------------------------------------------------------

    def frame(self) -> Inference:
        """Return the tensors of another inference."""
        return Inference(self.manifest)

    def scratch(self, segments: Tuple[SegmentInfo, ...]) -> ExecutionContext:
        """Return the memory for a thread to run these segments."""
        # Segments run one after the other, so they share an arena.
        arena = max((s.arena for s in segments), default=0)
        return ExecutionContext(arena, self._library, self._threads)

    def begin(self, frame: Inference) -> None:
        """Prepare a frame for its first segment."""
        if self.stick is not None:
            self.stick.prepare(frame)

    def run(
        self, segment: SegmentInfo, frame: Inference, scratch: ExecutionContext
    ) -> str:
        """Run a segment; return its backend, "c", "interpreter" or "delegate".

        Raises:
            DeviceError: the backend failed
        """
        name = segment.name
        if name in self._factories:
            alone(
                self._interpreter_lock,
                lambda: self._interpreter(name, lambda s: s.run(frame.arrays)),
            )
            return "interpreter"
        stick = self.stick
        # While the stick is lost, `run` returns False and segments run on the CPU.
        if stick is not None and stick.takes(name) and stick.run(frame, name):
            return "delegate"
        self._code[name].run(frame, scratch)
        return "c"

    def backend(self, segment: SegmentInfo) -> str:
        """Return the present backend of a segment."""
        if segment.name in self._factories:
            return "interpreter"
        stick = self.stick
        if stick is not None and stick.facts.up and stick.takes(segment.name):
            return "delegate"
        return "c"

    def forked(self) -> None:
        """Give up the parent's threads and Edge TPU in the child of a fork.

        The thread that held a lock or an interpreter does not exist there.
        """
        self._interpreter_lock = threading.RLock()
        # They are not freed, since an interpreter might wait for its threads then.
        self._abandoned.append(self._interpreters)
        self._interpreters = {}
        if self.stick is not None:
            self.stick.disown()

    # ---- loading
    # ----------------------------------------------------------------------------------

    def _interpret(self, interpreter: Union[str, InterpreterFactory, None]) -> None:
        if callable(interpreter):
            make = interpreter
        else:
            make = interpreter_factory(interpreter)
        for s in self.manifest.segments:
            if s.place == "edgetpu":
                if s.tflite is None:
                    raise InputError(
                        f'segment "{s.name}" has no .tflite in this bundle',
                        hint='run it with tpu="c"',
                    )
                model = self.bundle.read(s.tflite)
                self._factories[s.name] = partial(
                    _segment, s, self.manifest.tensors, make, model
                )
                self._interpreter(s.name, lambda segment: None)

    def _interpreter(
        self, name: str, use: Callable[[InterpreterSegment], None]
    ) -> None:
        """Call a function with the interpreter of a segment, which is made if necessary.

        Raises DeviceError if that or the function fails.
        """
        try:
            if name not in self._interpreters:
                self._interpreters[name] = self._factories[name]()
            use(self._interpreters[name])
        except (RuntimeError, ValueError, OSError) as e:
            raise DeviceError(
                f"the segment failed: {e}", at=name, hint='run it with tpu="c"'
            ) from e

    def _on_c(self, s: SegmentInfo) -> CSegment:
        if self._library is None:
            self._library = self._load()
            self._weights = self._map_weights()
        return CSegment(
            s, self._library, self._weights, self._threads > 1, str(self.bundle.path)
        )

    def _load(self) -> ctypes.CDLL:
        target = machine_target()
        name = self.manifest.libraries.get(target)
        if name is None:
            targets = ", ".join(self.manifest.libraries) or "none"
            raise DeviceError(
                f"the bundle has no code for this machine, {target}; it has {targets}",
                at=str(self.bundle.path),
                hint="compile with --target host, or run it with --on "
                f"emulated:{self.manifest.board}",
            )
        return load_library(self.bundle, target)

    def _map_weights(self) -> Optional[Array]:
        """Return the weights of the library; None if the model has none."""
        name = self.manifest.weights.get(machine_target())
        if name is None or not self.manifest.files[name].bytes:
            return None
        path = extract(self.bundle, name)
        try:
            return np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as e:
            raise DeviceError(
                f"cannot map the weights: {e}", at=str(path), hint="free some memory"
            ) from e


def shared_scratch(programs: Sequence[Program]) -> ExecutionContext:
    """Return the memory and the threads for a thread that runs several programs.

    Their libraries are from the same version of edgec, so that the threads of the first
    can run the code of all (csrc/ek_thread_pool.h).
    """
    arenas = [s.arena for p in programs for s in p.manifest.segments]
    with_code = [p for p in programs if p._library is not None]
    if not with_code:
        return ExecutionContext(max(arenas, default=0), None, 1)
    first = with_code[0]
    return ExecutionContext(max(arenas, default=0), first._library, first._threads)


def _segment(
    info: SegmentInfo,
    tensors: Mapping[str, TensorInfo],
    make: InterpreterFactory,
    model: bytes,
) -> InterpreterSegment:
    return InterpreterSegment(info, tensors, make(model, None))
