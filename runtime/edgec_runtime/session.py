"""Runs a bundle in this process: C segments through ctypes, Edge TPU segments on the stick or on their C twin."""

from __future__ import annotations

import ctypes
import threading
import time
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple, Type, Union

import numpy as np
from numpy.typing import NDArray

from .bundle import Bundle, PathLike
from .cache import extract
from .device_end.slots import machine_target as machine_target
from .errors import DeviceError, EdgecError, InputError, did_you_mean
from .inputs import check_inputs, noise_inputs
from .interpreters import Interpreter, InterpreterFactory, address, interpreter_factory, load_edgetpu, match_ports
from .manifest import SegmentInfo
from .tensors import TensorInfo
from .threads import ThreadPool, aligned
from .timing import Times, time_calls

Array = NDArray[Any]
TPU_MODES = ("auto", "delegate", "interpreter", "c")


@dataclass(frozen=True)
class SegmentTime:
    """One segment of one run.  backend: "c", "interpreter" or "delegate"."""

    name: str
    place: str
    backend: str
    ns: int


class _Backend(Protocol):
    kind: str

    def run(self) -> None: ...


class Session:
    """Runs the bundle's segments in order on buffers that are made once.

    One run at a time: concurrent calls wait for each other.  Raises BundleError, InputError or DeviceError.

    Args:
        bundle: the .edgec file, or an opened one.
        tpu: "auto" uses the stick when there is one and the segment was compiled for it, else the segment's C twin;
            "delegate" insists on the stick; "interpreter" runs the .tflite on LiteRT's or tflite-runtime's reference
            kernels; "c" never looks for a stick.
        interpreter: "litert", "tflite-runtime", or a function that makes one.
        threads: of the CPU, for C segments; at most manifest.threads.  The results are the same.
    """

    def __init__(
        self,
        bundle: Union[PathLike, Bundle],
        *,
        tpu: str = "auto",
        interpreter: Union[str, InterpreterFactory, None] = None,
        threads: int = 1,
    ) -> None:
        if tpu not in TPU_MODES:
            what = f'tpu="{tpu}" is no way to run{did_you_mean(tpu, TPU_MODES)}'
            raise InputError(what, hint="use " + ", ".join(TPU_MODES))
        self._owns_bundle = not isinstance(bundle, Bundle)
        self.bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
        self.manifest = self.bundle.manifest
        self.tpu = tpu
        self.threads = threads
        self._interpreter = interpreter
        self._lock = threading.Lock()
        self._library: Optional[ctypes.CDLL] = None
        self._weights: Optional[Array] = None  # mapped read only
        self._arena: Optional[Array] = None
        self._pool: Optional[ThreadPool] = None
        self._buffers: Dict[str, Array] = {}
        self._retired: List[_Backend] = []
        self._warned = False
        self._closed = False
        try:
            self.manifest.check_threads(threads, str(self.bundle.path))
            self._backends: List[_Backend] = self._build()
        except BaseException:
            self.close()
            raise

    # ---- what callers use ------------------------------------------------------------------------------------------

    @property
    def inputs(self) -> Tuple[TensorInfo, ...]:
        """The model's inputs, in order."""
        return self.manifest.input_infos()

    @property
    def outputs(self) -> Tuple[TensorInfo, ...]:
        """The model's outputs, in order."""
        return self.manifest.output_infos()

    @property
    def backends(self) -> Dict[str, str]:
        """Segment name → "c", "interpreter" or "delegate", as they run now."""
        return {s.name: b.kind for s, b in zip(self.manifest.segments, self._backends)}

    def run(self, inputs: Mapping[str, Any], *, timings: Optional[List[SegmentTime]] = None) -> Dict[str, Array]:
        """One inference; returns copies of the outputs, by name.

        Args:
            inputs: by name, of exactly the type and shape of `self.inputs`. An image input takes a photo as well: uint8
                [H,W,3] of any size, red first ([H,W,4]: alpha is dropped; [H,W]: grey), which `manifest.preprocess`
                makes into the input.
            timings: a list that gets one SegmentTime per segment.
        """
        arrays = check_inputs(self.manifest, inputs)
        with self._lock:
            if self._closed:
                raise InputError("this session is closed", hint="make a new Session")
            for info, array in zip(self.inputs, arrays):
                np.copyto(self._buffers[info.name], array)
            for i in range(len(self._backends)):
                start = time.perf_counter_ns()
                self._step(i)
                if timings is not None:
                    segment = self.manifest.segments[i]
                    ns = time.perf_counter_ns() - start
                    timings.append(SegmentTime(segment.name, segment.place, self._backends[i].kind, ns))
            return {info.name: self._buffers[info.name].copy() for info in self.outputs}

    def prepare(self, inputs: Mapping[str, Any]) -> Dict[str, Array]:
        """The tensors that `run` would compute with, photos prepared; by name.  Raises InputError as `run` does."""
        return dict(zip(self.manifest.inputs, check_inputs(self.manifest, inputs)))

    def tensor(self, name: str) -> Array:
        """A copy of any tensor that crosses a segment border, as the last run left it (to verify, to bisect)."""
        if name not in self._buffers:
            raise InputError(f'no tensor "{name}" crosses a segment border', hint="see manifest.tensors")
        return self._buffers[name].copy()

    def time(
        self,
        inputs: Optional[Mapping[str, Any]] = None,
        *,
        runs: int = 50,
        seconds: Optional[float] = None,
        warmup: float = 0.0,
    ) -> Times:
        """Times inferences, see timing.time_calls; parts are ns by segment.  inputs: default is reproducible noise.

        Photos are prepared once, before the clock runs.
        """
        given = noise_inputs(self.manifest) if inputs is None else self.prepare(inputs)

        def call() -> List[int]:
            times: List[SegmentTime] = []
            self.run(given, timings=times)
            return [t.ns for t in times]

        return time_calls(call, runs, seconds, warmup)

    def close(self) -> None:
        """Frees the buffers and interpreters, and the bundle if the session opened it.  May be called twice."""
        with self._lock:
            self._closed = True
            self._backends = []  # first: their pointers go into the buffers
            self._retired = []
            self._buffers = {}
            if self._pool is not None:
                self._pool.stop()
            self._pool = self._arena = None
            self._weights = None
            if self._owns_bundle:
                self.bundle.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    # ---- building ----------------------------------------------------------------------------------------------------

    def _build(self) -> List[_Backend]:
        """Interpreters first, since their memory may serve as a buffer; then the other buffers; then the C."""
        found: Dict[str, _InterpreterSegment] = {}
        for s in self.manifest.segments:
            if s.place == "edgetpu" and (made := self._on_interpreter(s)) is not None:
                found[s.name] = made
        self._adopt(found)
        for info in self.manifest.tensors.values():
            if info.name not in self._buffers:
                self._buffers[info.name] = aligned(info.nbytes).view(info.numpy_dtype).reshape(info.shape)
        for one in found.values():
            one.bind(self._buffers)
        return [found[s.name] if s.name in found else self._on_c(s) for s in self.manifest.segments]

    def _on_interpreter(self, s: SegmentInfo) -> Optional["_InterpreterSegment"]:
        """The segment on the stick or the reference kernels, or None where the mode or the device says C."""
        if self.tpu == "c" or (self.tpu == "auto" and s.edgetpu is None):
            return None
        if self.tpu == "interpreter":
            if s.tflite is None:
                raise InputError(f'segment "{s.name}" has no .tflite in this bundle', hint='run it with tpu="c"')
            made = self._factory()(self.bundle.read(s.tflite), None)
            return _InterpreterSegment(s, self.manifest.tensors, made, "interpreter")
        if s.edgetpu is None:
            raise InputError(
                f'segment "{s.name}" was not compiled for the Edge TPU',
                hint='compile again where edgetpu_compiler is installed, or run with tpu="auto"',
            )
        try:
            delegate = load_edgetpu(self._interpreter if isinstance(self._interpreter, str) else None)
            made = self._factory()(self.bundle.read(s.edgetpu), delegate)
            return _InterpreterSegment(s, self.manifest.tensors, made, "delegate")
        except DeviceError:
            if self.tpu == "delegate":
                raise
        except (OSError, ValueError, RuntimeError) as e:
            what = f"the Edge TPU refused the segment: {e}"
            if self.tpu == "delegate":
                raise DeviceError(what, at=s.name, hint="plug it in again; see `edgec doctor`") from e
            self._warn(f"{what}; it runs on the CPU")
        return None

    def _factory(self) -> InterpreterFactory:
        if callable(self._interpreter):
            return self._interpreter
        return interpreter_factory(self._interpreter)

    def _adopt(self, found: Mapping[str, "_InterpreterSegment"]) -> None:
        """Lets an interpreter's own memory be the buffer where that is safe, so nothing is copied across the border.

        An output is safe in the memory of the segment that writes it.  An input is where that segment is the only
        reader: a delegate may scribble over its inputs.  Neither is in an interpreter that moves its tensors.
        """
        readers: Dict[str, int] = {}
        for s in self.manifest.segments:
            for name in s.inputs:
                readers[name] = readers.get(name, 0) + 1
        for name in self.manifest.outputs:
            readers[name] = readers.get(name, 0) + 1
        for one in found.values():
            if not one.stable:
                continue
            own = {**one.outputs, **{n: i for n, i in one.inputs.items() if readers[n] == 1}}
            for name, index in own.items():
                if name not in self._buffers:
                    self._buffers[name] = one.lend(name, index)

    def _on_c(self, s: SegmentInfo) -> "_CSegment":
        if self._library is None:
            self._library = self._load()
            self._weights = self._map_weights()
            if self.threads > 1:
                self._pool = ThreadPool(self._library, self.threads)
        if self._arena is None:
            # One for all: segments run one after the other.  Our own, since a static one is shared by all sessions.
            self._arena = aligned(max((g.arena for g in self.manifest.segments), default=0))
        try:
            function = getattr(self._library, s.symbol if self._pool is None else f"{s.symbol}_on")
        except AttributeError:
            raise DeviceError(
                f"the bundle's library lacks {s.symbol}", at=str(self.bundle.path), hint="compile the model again"
            ) from None
        return _CSegment(s, function, self._pool, self._arena, self._weights, self._buffers)

    def _load(self) -> ctypes.CDLL:
        target = machine_target()
        name = self.manifest.libraries.get(target)
        if name is None:
            there = ", ".join(self.manifest.libraries) or "none"
            raise DeviceError(
                f"the bundle has no code for this machine, {target}; it has {there}",
                at=str(self.bundle.path),
                hint=f"compile with --target host, or run it with --on emulated:{self.manifest.board}",
            )
        path = extract(self.bundle, name)
        try:
            return ctypes.CDLL(str(path))
        except OSError as e:
            raise DeviceError(
                f"cannot load the bundle's library: {e}", at=str(path), hint="`edgec doctor` shows this machine's libc"
            ) from e

    def _map_weights(self) -> Optional[Array]:
        """What the library reads.  None where the model has none."""
        name = self.manifest.weights.get(machine_target())
        if name is None or not self.manifest.files[name].bytes:
            return None
        path = extract(self.bundle, name)
        try:
            return np.memmap(path, np.uint8, "r")
        except (OSError, ValueError) as e:
            raise DeviceError(f"cannot map the weights: {e}", at=str(path), hint="free some memory") from e

    # ---- running -----------------------------------------------------------------------------------------------------

    def _step(self, i: int) -> None:
        backend = self._backends[i]
        try:
            backend.run()
        except (RuntimeError, ValueError, OSError) as e:
            if backend.kind != "delegate":
                raise DeviceError(
                    f"the segment failed: {e}", at=self.manifest.segments[i].name, hint='run it with tpu="c"'
                ) from e
            self._stick_is_gone(e)
            self._backends[i].run()

    def _stick_is_gone(self, error: BaseException) -> None:
        """All Edge TPU segments go to their C twins.  Their interpreters stay: their memory is in use as buffers."""
        twins = [self._on_c(s) if b.kind == "delegate" else b for s, b in zip(self.manifest.segments, self._backends)]
        self._retired = self._backends
        self._backends = twins
        self._warn(f"the Edge TPU stopped answering ({error}); its segments run on the CPU until a new Session is made")

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(text, RuntimeWarning, stacklevel=5)


# ---- the two kinds of segment ------------------------------------------------------------------------------------


class _CSegment:
    kind = "c"

    def __init__(
        self,
        s: SegmentInfo,
        function: Any,
        pool: Optional[ThreadPool],
        arena: Array,
        weights: Optional[Array],
        buffers: Mapping[str, Array],
    ) -> None:
        self.info = s
        self._function = function
        function.restype = ctypes.c_int
        self._keep = (pool, arena, weights, [buffers[n] for n in (*s.inputs, *s.outputs)])
        ports = (
            ctypes.c_void_p(arena.ctypes.data if s.arena else None),
            ctypes.c_void_p(None if weights is None else weights.ctypes.data),
            _pointers([buffers[n] for n in s.inputs]),
            _pointers([buffers[n] for n in s.outputs]),
        )
        self._given = ports if pool is None else (pool.address, *ports, None, None)
        function.argtypes = [ctypes.c_void_p] * len(self._given)

    def run(self) -> None:
        code = self._function(*self._given)
        if code:
            raise DeviceError(
                f"the segment's C returned {code}", at=self.info.name, hint="compile the model again, or report this"
            )


def _pointers(arrays: List[Array]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


class _InterpreterSegment:
    """An Edge TPU segment on an interpreter.  `inputs` and `outputs`: tensor name → the interpreter's index."""

    def __init__(self, s: SegmentInfo, tensors: Mapping[str, TensorInfo], interpreter: Interpreter, kind: str) -> None:
        self.kind = kind
        self.info = s
        self._tensors = tensors
        self._interpreter = interpreter
        interpreter.allocate_tensors()
        self.inputs = self._ports(interpreter.get_input_details(), s.inputs)
        self.outputs = self._ports(interpreter.get_output_details(), s.outputs)
        self._buffers: Mapping[str, Array] = {}
        self._lent: Dict[str, int] = {}
        # Once, untimed: the stick takes the weights, and an interpreter that reallocates does it now.
        before = self._addresses()
        try:
            interpreter.invoke()
        except RuntimeError as e:
            if kind == "delegate":
                raise
            raise DeviceError(f"the segment failed: {e}", at=s.name, hint='run it with tpu="c"') from e
        self.stable = before == self._addresses()

    def _addresses(self) -> List[int]:
        return [address(self._interpreter, i) for i in (*self.inputs.values(), *self.outputs.values())]

    def _ports(self, details: List[Mapping[str, Any]], names: Tuple[str, ...]) -> Dict[str, int]:
        matched = match_ports(details, names)
        for name, d in zip(names, matched or []):
            info = self._tensors[name]
            if np.dtype(d["dtype"]) != info.numpy_dtype or tuple(int(n) for n in d["shape"]) != info.shape:
                matched = None
                break
        if matched is None:
            seen = ", ".join(f"{d['name']} {np.dtype(d['dtype']).str} {tuple(d['shape'])}" for d in details)
            wanted = ", ".join(str(self._tensors[n]) for n in names)
            raise EdgecError(
                f"the segment's .tflite has the tensors {seen}, the manifest {wanted}",
                at=self.info.name,
                hint="compile the model again",
            )
        return {n: int(d["index"]) for n, d in zip(names, matched)}

    def lend(self, name: str, index: int) -> Array:
        """The interpreter's own memory of a tensor, as an array that does not hold a reference to the interpreter."""
        info = self._tensors[name]
        self._lent[name] = address(self._interpreter, index)
        raw = (ctypes.c_uint8 * info.nbytes).from_address(self._lent[name])
        flat: Array = np.ctypeslib.as_array(raw)
        return flat.view(info.numpy_dtype).reshape(info.shape)

    def bind(self, buffers: Mapping[str, Array]) -> None:
        self._buffers = buffers

    def run(self) -> None:
        """Copies only what does not share memory.  DeviceError when lent memory is no longer where it was."""
        for name, index in self.inputs.items():
            if name not in self._lent:
                self._interpreter.set_tensor(index, self._buffers[name])
        self._interpreter.invoke()
        for name, where in self._lent.items():
            if address(self._interpreter, {**self.inputs, **self.outputs}[name]) != where:
                raise DeviceError(
                    f'the interpreter moved "{name}" while it ran', at=self.info.name, hint='run it with tpu="c"'
                )
        for name, index in self.outputs.items():
            if name not in self._lent:
                np.copyto(self._buffers[name], self._interpreter.get_tensor(index))
