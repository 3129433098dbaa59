"""A loaded bundle: its code and weights, its interpreters, and the Edge TPU."""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle
from ..bundle.extracted import extract
from ..bundle.manifest import SegmentInfo
from ..device_end.bundles import machine_target
from ..errors import DeviceError, InputError
from ..model.inference import ExecutionContext, Inference
from ..model.interpreters import (
    InterpreterFactory,
    edgetpu_library,
    interpreter_factory,
    load_edgetpu,
)
from ..model.library import load_library
from ..model.segments import CSegment, InterpreterSegment
from ..stick.process import Delegate, StickTask
from ..stick.stick import Stick
from ..tensors import TensorInfo

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
        delegate: Delegate,
        timeout: float,
        threads: int,
        warn: Callable[[str], None],
    ) -> None:
        """Load a bundle; the arguments are those of Session.

        Args:
            bundle: the bundle
            tpu: one of `TPU_MODES`
            interpreter: the interpreters to use
            delegate: loads the Edge TPU's library
            timeout: seconds that an inference on the Edge TPU may take
            threads: threads that share a segment on the CPU
            warn: takes, once, the reason why an Edge TPU that is there is not used
        """
        self.bundle = bundle
        self.manifest = bundle.manifest
        self._threads = threads
        self._library: Optional[ctypes.CDLL] = None
        self._weights: Optional[Array] = None
        """The weights, mapped read only."""
        self._interpreted: Dict[str, Callable[[], InterpreterSegment]] = {}
        """Makes the interpreter of a segment."""
        self._interpreters: Dict[str, InterpreterSegment] = {}
        self._one = threading.Lock()
        """An interpreter does one thing at a time."""
        self._left: List[object] = []
        self.stick: Optional[Stick] = None
        if tpu == "interpreter":
            self._interpret(interpreter)
        elif tpu != "c":
            self.stick = self._open_stick(tpu, interpreter, delegate, timeout, warn)
        try:
            self._code = {
                s.name: self._on_c(s)
                for s in self.manifest.segments
                if s.name not in self._interpreted
            }
        except BaseException:
            self.close()
            raise

    # ---- running
    # ----------------------------------------------------------------------------------

    def frame(self) -> Inference:
        """Return tensors for one more inference in flight."""
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
        if name in self._interpreted:
            with self._one:
                self._interpreter(name, lambda made: made.run(frame.arrays))
            return "interpreter"
        stick = self.stick
        # A stick that is lost takes nothing, and its segments run on the CPU.
        if stick is not None and stick.takes(name) and stick.run(frame, name):
            return "delegate"
        self._code[name].run(frame, scratch)
        return "c"

    def backend(self, segment: SegmentInfo) -> str:
        """Return the present backend of a segment."""
        if segment.name in self._interpreted:
            return "interpreter"
        stick = self.stick
        if stick is not None and stick.facts.up and stick.takes(segment.name):
            return "delegate"
        return "c"

    def close(self) -> None:
        """End the Edge TPU's process; a frame that runs goes on, on the CPU."""
        if self.stick is not None:
            self.stick.close()

    def forked(self) -> None:
        """Give up the parent's threads and Edge TPU in the child of a fork.

        The thread that held a lock or an interpreter does not exist there.
        """
        self._one = threading.Lock()
        # Not freed: an interpreter might wait for threads of its own.
        self._left.append(self._interpreters)
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
                self._interpreted[s.name] = partial(
                    _segment, s, self.manifest.tensors, make, model
                )
                self._interpreter(s.name, lambda made: None)

    def _interpreter(
        self, name: str, use: Callable[[InterpreterSegment], None]
    ) -> None:
        """Makes it where it is not there yet.  DeviceError where it fails."""
        try:
            if name not in self._interpreters:
                self._interpreters[name] = self._interpreted[name]()
            use(self._interpreters[name])
        except (RuntimeError, ValueError, OSError) as e:
            raise DeviceError(
                f"the segment failed: {e}", at=name, hint='run it with tpu="c"'
            ) from e

    def _open_stick(
        self,
        tpu: str,
        interpreter: Union[str, InterpreterFactory, None],
        delegate: Delegate,
        timeout: float,
        warn: Callable[[str], None],
    ) -> Optional[Stick]:
        """Return the Edge TPU; None where all segments run on C.

        Args:
            tpu: "delegate", where anything else is an error, or "auto"
            interpreter: the interpreters to use
            delegate: loads the Edge TPU's library
            timeout: seconds that an inference may take
            warn: takes the reason why an Edge TPU that is there is not used
        """
        segments = self._compiled_segments(tpu == "delegate")
        if not segments:
            return None
        try:
            if delegate is load_edgetpu:
                # Without the library no process need be started to find that out.
                edgetpu_library()
        except DeviceError:
            if tpu == "delegate":
                raise
            return None

        task = self._stick_task(segments, interpreter, delegate)
        try:
            return Stick(task, timeout, warn)
        except DeviceError as e:
            if tpu == "delegate":
                raise
            warn(f"{e.what}; it runs on the CPU")
        return None

    def _compiled_segments(self, all_of_them: bool) -> Tuple[SegmentInfo, ...]:
        """Return the segments that were compiled for the Edge TPU.

        Args:
            all_of_them: whether it is an error if one of its segments was not
        """
        segments: List[SegmentInfo] = []
        for s in self.manifest.segments:
            if s.place != "edgetpu":
                continue
            if s.edgetpu is not None:
                segments.append(s)
            elif all_of_them:
                raise InputError(
                    f'segment "{s.name}" was not compiled for the Edge TPU',
                    hint="compile again where edgetpu_compiler is installed, "
                    'or run with tpu="auto"',
                )
        return tuple(segments)

    def _stick_task(
        self,
        segments: Tuple[SegmentInfo, ...],
        interpreter: Union[str, InterpreterFactory, None],
        delegate: Delegate,
    ) -> StickTask:
        """Return what the process of the Edge TPU needs of a bundle."""

        # As bytes: the process does not read the bundle itself.
        models: List[bytes] = []
        names: Set[str] = set()
        for s in segments:
            assert s.edgetpu is not None
            models.append(self.bundle.read(s.edgetpu))
            names.update(s.inputs, s.outputs)

        # Only the tensors of its segments lie in the shared memory.
        tensors = {n: i for n, i in self.manifest.tensors.items() if n in names}
        return StickTask(segments, tensors, tuple(models), interpreter, delegate)

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
            there = ", ".join(self.manifest.libraries) or "none"
            raise DeviceError(
                f"the bundle has no code for this machine, {target}; it has {there}",
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


def _segment(
    info: SegmentInfo,
    tensors: Mapping[str, TensorInfo],
    make: InterpreterFactory,
    model: bytes,
) -> InterpreterSegment:
    return InterpreterSegment(info, tensors, make(model, None))
