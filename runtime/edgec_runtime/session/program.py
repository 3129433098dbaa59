"""What is loaded of a bundle, once: its code and weights, its interpreters, the Edge
TPU.
"""

from __future__ import annotations

import ctypes
import threading
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

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
    """The segments of a bundle, ready to run on frames; several at a time, but for
    those on an interpreter.

    The arguments are Session's.  warn: is told, once, why an Edge TPU that is there is
    not used.
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
        self.bundle = bundle
        self.manifest = bundle.manifest
        self._threads = threads
        self._library: Optional[ctypes.CDLL] = None
        self._weights: Optional[Array] = None  # mapped read only
        self._interpreted: Dict[str, Callable[[], InterpreterSegment]] = {}  # makes one
        self._interpreters: Dict[str, InterpreterSegment] = {}
        self._one = threading.Lock()  # an interpreter does one thing at a time
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
        """Tensors for one more inference in flight."""
        return Inference(self.manifest)

    def scratch(self, segments: Tuple[SegmentInfo, ...]) -> ExecutionContext:
        """What a thread needs that runs these segments."""
        return ExecutionContext(
            max((s.arena for s in segments), default=0), self._library, self._threads
        )

    def begin(self, frame: Inference) -> None:
        """Before the first segment."""
        if self.stick is not None:
            self.stick.prepare(frame)

    def run(
        self, segment: SegmentInfo, frame: Inference, scratch: ExecutionContext
    ) -> str:
        """Runs a segment; returns on what: "c", "interpreter" or "delegate".

        Raises DeviceError.
        """
        name = segment.name
        if name in self._interpreted:
            with self._one:
                self._interpreter(name, lambda made: made.run(frame.arrays))
            return "interpreter"
        if (
            self.stick is not None
            and self.stick.takes(name)
            and self.stick.run(frame, name)
        ):
            return "delegate"
        self._code[name].run(frame, scratch)
        return "c"

    def backend(self, segment: SegmentInfo) -> str:
        """What a segment would run on now."""
        if segment.name in self._interpreted:
            return "interpreter"
        if (
            self.stick is not None
            and self.stick.facts.up
            and self.stick.takes(segment.name)
        ):
            return "delegate"
        return "c"

    def close(self) -> None:
        """Ends the Edge TPU's process.  What runs now goes on, on the CPU."""
        if self.stick is not None:
            self.stick.close()

    def forked(self) -> None:
        """In the child of a fork: who held a lock or an interpreter is not there, the
        Edge TPU is the parent's.
        """
        self._one = threading.Lock()
        # not freed: it might wait for threads of its own
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
        """None where the mode or the device says that all segments run on C."""
        there = [s for s in self.manifest.segments if s.place == "edgetpu"]
        without = [s.name for s in there if s.edgetpu is None]
        if tpu == "delegate" and without:
            raise InputError(
                f'segment "{without[0]}" was not compiled for the Edge TPU',
                hint="compile again where edgetpu_compiler is installed, "
                'or run with tpu="auto"',
            )
        segments = tuple(s for s in there if s.edgetpu is not None)
        if not segments:
            return None
        names = {n for s in segments for n in (*s.inputs, *s.outputs)}
        try:
            if delegate is load_edgetpu:
                # where there is none, no process need be started to find that out
                edgetpu_library()
        except DeviceError:
            if tpu == "delegate":
                raise
            return None
        models = tuple(
            self.bundle.read(s.edgetpu) for s in segments if s.edgetpu is not None
        )
        tensors = {n: i for n, i in self.manifest.tensors.items() if n in names}
        try:
            return Stick(
                StickTask(segments, tensors, models, interpreter, delegate),
                timeout,
                warn,
            )
        except DeviceError as e:
            if tpu == "delegate":
                raise
            warn(f"{e.what}; it runs on the CPU")
        return None

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
        """What the library reads.  None where the model has none."""
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
