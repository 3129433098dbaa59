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
from edgec.emit.values_file import VALUES_FILE, At, ValuesFile
from edgec.errors import DeviceError, InputError
from edgec.ir import Array, Graph, Value
from edgec.ir.tensors import tensor_type
from edgec.ir.text import ParseError, parse

_HINT = "compile the model again"


class BundleSide:
    """The very library of a bundle, as every machine of this kind runs it: what its C
    stores can be seen.
    """

    complete = False
    channels_last = True

    def __init__(self, name: str, path: Path, tpu: str) -> None:
        """tpu: "c", or how a session runs the Edge TPU segments; then borders of
        segments can be seen.
        """
        self.name = name
        self._bundle = Bundle.open(path)
        self._session: Session | None = None
        try:
            self._open(tpu)
        except BaseException:
            self.close()
            raise

    def _open(self, tpu: str) -> None:
        m = self._bundle.manifest
        at = str(self._bundle.path)
        self.preprocess = m.preprocess
        self.labels = m.labels or ()
        self._types = {n: tensor_type(info) for n, info in m.tensors.items()}
        self._file = ValuesFile()
        if VALUES_FILE in m.files:
            self._file = from_json(
                self._bundle.read(VALUES_FILE), ValuesFile, VALUES_FILE, at, _HINT
            )
        target = machine_target()
        if target not in m.libraries:
            there = ", ".join(m.libraries) or "none"
            raise DeviceError(
                f"the bundle has no code for this machine, {target}; it has {there}",
                at,
                _HINT,
            )
        if self._file.target not in ("", target):
            what = (
                f"it shows the values of {self._file.target}'s code; "
                f"this machine is {target}"
            )
            raise DeviceError(what, at, "compile the model on this machine")
        try:
            self.parts: Mapping[str, Graph] = {
                n: parse(s.graph) for n, s in self._file.segments.items()
            }
        except ParseError as e:
            raise InputError(f"{VALUES_FILE} is damaged: {e}", at, _HINT) from e
        known = {
            v.name: v
            for g in self.parts.values()
            for v in g.values()
            if v.const is None
        }
        self.changes: Changes = changes_in(self._file)
        self.inputs: Sequence[Value] = [
            known.get(n) or Value(n, self._types[n]) for n in m.inputs
        ]
        self.outputs: Sequence[Value] = [
            known.get(n) or Value(n, self._types[n]) for n in m.outputs
        ]
        self._known = {**{n: Value(n, t) for n, t in self._types.items()}, **known}
        self._library = load_library(self._bundle, target)
        self._weights = self._read_weights(target)
        self._arena = aligned_bytes(max((s.arena for s in m.segments), default=0))
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
        """Run it, showing each value as soon as it is in its place."""
        found = self._file.segments.get(s.name)
        ports = (
            pointers([buffers[n] for n in s.inputs]),
            pointers([buffers[n] for n in s.outputs]),
        )
        memory = (
            ctypes.c_void_p(self._arena.ctypes.data),
            ctypes.c_void_p(self._weights.ctypes.data),
        )
        raised: list[BaseException] = []
        due: dict[int, list[tuple[Value, Array]]] = {}
        for name, at in found.places.items() if found is not None else ():
            if name not in s.inputs:
                due.setdefault(at.done, []).append(
                    (self._known[name], self._bytes(self._known[name], at, buffers))
                )

        def mark(_: int | None, step: int) -> None:
            try:
                for v, raw in due.get(step, ()) if not raised else ():
                    show(v, raw)
            except BaseException as e:  # C cannot pass it on
                raised.append(e)

        try:
            if found and not f"{found.function}_".startswith(f"{s.name}_"):
                raise AttributeError(f"{found.function} is not the code of {s.name}")
            function = getattr(
                self._library, f"edgec_{found.function if found else s.name}_profile"
            )
        except AttributeError as e:
            raise InputError(
                f"{VALUES_FILE} is damaged: {e}", str(self._bundle.path), _HINT
            ) from e
        function(*memory, *ports, MARK(mark), None)
        if raised:
            raise raised[0]
        if found is None:
            for name in s.outputs:
                show(self._known[name], buffers[name])

    def _bytes(self, v: Value, at: At, buffers: Mapping[str, Array]) -> Array:
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
