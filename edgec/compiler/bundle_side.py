"""A bundle as a side of a comparison: its own C on this machine, or its Edge TPU
segments by what runs them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from edgec_devices.decoding import from_json
from edgec_runtime import Bundle, Session
from edgec_runtime.bundle.manifest import SegmentInfo
from edgec_runtime.model.library import load_library
from edgec_runtime.session.session import machine_target
from edgec_runtime.session.vision import Vision

from edgec.comparing.changes import Changes
from edgec.comparing.side import Look, Sample, See
from edgec.comparing.tasks import Meaning
from edgec.compiler.changed import changes_in
from edgec.compiler.native import MARK, aligned_bytes, pointers
from edgec.emit.values_file import VALUES_FILE, ValueLocation, ValuesFile
from edgec.errors import DeviceError, InputError
from edgec.ir import Array, Graph, Value
from edgec.ir.tensors import tensor_type
from edgec.ir.text import ParseError, parse

_HINT = "compile the model again"


class BundleSide:
    """The very library of a bundle, as every machine of this kind runs it.

    The values that its C stores can be seen.
    """

    complete = False
    channels_last = True

    def __init__(self, name: str, path: Path, tpu: str) -> None:
        """Open the bundle.

        tpu: "c", or how a session runs the Edge TPU segments; then the tensors between
        segments can be seen.

        Raises EdgecError for a bundle of another machine, or a damaged one.
        """
        self.name = name
        self._bundle = Bundle.open(path)
        self._session: Session | None = None
        try:
            self._read()
            self._open(tpu)
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        """Read what the bundle says of its values."""
        manifest = self._bundle.manifest
        self.preprocess = manifest.preprocess
        self.labels = manifest.labels or ()
        self._file = self._values_file()
        try:
            self.parts: Mapping[str, Graph] = {
                name: parse(s.graph) for name, s in self._file.segments.items()
            }
        except ParseError as e:
            what = f"{VALUES_FILE} is damaged: {e}"
            raise InputError(what, str(self._bundle.path), _HINT) from e
        self.changes: Changes = changes_in(self._file)

        # A value of a segment's graph has the same name as the tensor of the manifest.
        self._known: dict[str, Value] = {}
        for name, info in manifest.tensors.items():
            self._known[name] = Value(name, tensor_type(info))
        for graph in self.parts.values():
            for v in graph.values():
                if v.const is None:
                    self._known[v.name] = v
        self.inputs: Sequence[Value] = [self._known[n] for n in manifest.inputs]
        self.outputs: Sequence[Value] = [self._known[n] for n in manifest.outputs]

    def _values_file(self) -> ValuesFile:
        """Return the bundle's list of values. Raises EdgecError for another machine's."""
        manifest = self._bundle.manifest
        at = str(self._bundle.path)
        values = ValuesFile()
        if VALUES_FILE in manifest.files:
            data = self._bundle.read(VALUES_FILE)
            values = from_json(data, ValuesFile, VALUES_FILE, at, _HINT)
        target = machine_target()
        if target not in manifest.libraries:
            there = ", ".join(manifest.libraries) or "none"
            what = f"the bundle has no code for this machine, {target}; it has {there}"
            raise DeviceError(what, at, _HINT)
        if values.target not in ("", target):
            what = (
                f"it shows the values of {values.target}'s code; "
                f"this machine is {target}"
            )
            raise DeviceError(what, at, "compile the model on this machine")
        return values

    def _open(self, tpu: str) -> None:
        """Load the library, and open a session where the Edge TPU segments need one."""
        target = machine_target()
        self._library = load_library(self._bundle, target)
        self._weights = self._read_weights(target)
        segments = self._bundle.manifest.segments
        self._arena = aligned_bytes(max((s.arena for s in segments), default=0))
        self.same_code = tpu == "c"
        self.how = "the bundle's C"
        if tpu != "c":
            self._session = Session(self._bundle, tpu=tpu)
            by = {"interpreter": "LiteRT", "delegate": "Edge TPU", "c": "C"}
            kinds = dict.fromkeys(by[k] for k in self._session.backends.values())
            self.how = f"the bundle by {' and '.join(kinds)}"
        elif not self._file.segments:
            self.how += ", which was made before its values could be seen"

    def _read_weights(self, target: str) -> Array:
        """Return the weights of a target, in memory that C can use."""
        name = self._bundle.manifest.weights.get(target)
        data = self._bundle.read(name) if name is not None else b""
        weights = aligned_bytes(len(data))
        weights[:] = np.frombuffer(data, np.uint8)
        return weights

    @property
    def meaning(self) -> Meaning | None:
        """Of its outputs, where it says."""
        task = self._bundle.manifest.task
        vision = Vision(self._bundle, native=False)
        if task is None or vision.image is None:
            return None
        size = vision.image
        shapes = {v.name: v.type.shape for v in self.outputs}
        return Meaning(
            task.kind, size[0], shapes, lambda outputs: vision.result(outputs, size)
        )

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """See Side."""
        if self._session is None:
            return self._walk(inputs, see)
        self._session.reset()
        outputs = self._session.run(inputs)
        for name in self._bundle.manifest.tensors:
            see(self._known[name], self._session.tensor(name))
        return outputs

    def force(self, inputs: Sample, see: See) -> None:
        """See Side."""
        self._walk(inputs, see)

    def _walk(
        self, inputs: Sample, see: Callable[[Value, Array], Array | None]
    ) -> dict[str, Array]:
        m = self._bundle.manifest
        buffers = {n: aligned_bytes(info.nbytes) for n, info in m.tensors.items()}

        def show(v: Value, raw: Array) -> None:
            array = raw[: v.type.nbytes].view(v.type.np_dtype).reshape(v.type.shape)
            other = see(v, array)
            if other is not None:
                array[...] = other

        for state in m.state:
            if state.initial is not None:
                buffers[state.input][:] = np.frombuffer(
                    self._bundle.read(state.initial), np.uint8
                )
        for name in (*m.inputs, *m.kept):
            if name in inputs or name in m.inputs:
                buffers[name][:] = (
                    np.ascontiguousarray(inputs[name]).reshape(-1).view(np.uint8)
                )
            show(self._known[name], buffers[name])
        for s in m.segments:
            self._segment(s, buffers, show)
        return {
            v.name: buffers[v.name].view(v.type.np_dtype).reshape(v.type.shape).copy()
            for v in self.outputs
        }

    def _segment(
        self,
        s: SegmentInfo,
        buffers: Mapping[str, Array],
        show: Callable[[Value, Array], None],
    ) -> None:
        """Run a segment, showing each value as soon as it is in its place."""
        values = self._file.segments.get(s.name)
        ports = (
            pointers([buffers[n] for n in s.inputs]),
            pointers([buffers[n] for n in s.outputs]),
        )
        memory = (
            ctypes.c_void_p(self._arena.ctypes.data),
            ctypes.c_void_p(self._weights.ctypes.data),
        )
        due: dict[int, list[tuple[Value, Array]]] = {}
        for name, at in values.places.items() if values is not None else ():
            if name not in s.inputs:
                v = self._known[name]
                due.setdefault(at.done, []).append((v, self._bytes(v, at, buffers)))

        raised: list[BaseException] = []

        def mark(_: int | None, step: int) -> None:
            # C cannot pass an exception on, so the first one waits until it is done.
            try:
                for v, raw in due.get(step, ()) if not raised else ():
                    show(v, raw)
            except BaseException as e:
                raised.append(e)

        function = self._function(s, values.function if values is not None else s.name)
        function(*memory, *ports, MARK(mark), None)
        if raised:
            raise raised[0]
        if values is None:
            for name in s.outputs:
                show(self._known[name], buffers[name])

    def _function(self, s: SegmentInfo, name: str) -> Callable[..., int]:
        """Return the profiled entry of a segment's C.

        Raises InputError where the list of values names another segment's.
        """
        try:
            if not f"{name}_".startswith(f"{s.name}_"):
                raise AttributeError(f"{name} is not the code of {s.name}")
            function: Callable[..., int] = getattr(
                self._library, f"edgec_{name}_profile"
            )
        except AttributeError as e:
            what = f"{VALUES_FILE} is damaged: {e}"
            raise InputError(what, str(self._bundle.path), _HINT) from e
        return function

    def _bytes(
        self, v: Value, at: ValueLocation, buffers: Mapping[str, Array]
    ) -> Array:
        """The memory of a value; a place that cannot be is refused."""
        whole = buffers.get(at.buffer, self._arena if not at.buffer else None)
        if whole is None or not 0 <= at.offset <= len(whole) - v.type.nbytes:
            raise InputError(
                f"{VALUES_FILE} is damaged: {v.name} is nowhere",
                str(self._bundle.path),
                _HINT,
            )
        return whole[at.offset :]

    def close(self) -> None:
        """Close the bundle."""
        if self._session is not None:
            self._session.close()
        self._bundle.close()
