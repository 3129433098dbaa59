"""A bundle as one side of a comparison.

Its C runs on this machine, or its Edge TPU segments run by LiteRT or on an Edge TPU.
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
from edgec.compiler.channel_changes import changes_in
from edgec.compiler.native import MARK, aligned_bytes, pointers
from edgec.emit.values_file import VALUES_FILE, ValueLocation, ValuesFile
from edgec.errors import DeviceError, InputError
from edgec.ir import Array, Graph, Value
from edgec.ir.tensors import tensor_type
from edgec.ir.text import ParseError, parse

_HINT = "compile the model again"


class BundleSide:
    """The library of a bundle, run as every machine of this kind runs it.

    The comparison sees the values in memory: those of the C that are not fused away.

    Attributes:
        name: the name of the side.
        preprocess: the preprocessing of image inputs, by name.
        labels: the names of classes.
        parts: the graph of each segment, by its name.
        changes: the channel changes of the recipe, by value.
        inputs: the inputs of the model.
        outputs: the outputs of the model.
        same_code: whether `run` executes the C, as `force` always does.
        how: the way in which the bundle runs, in words.
        complete: whether the ops of `parts` have their constants.
        channels_last: whether channels are the last axis of images.
    """

    complete = False
    channels_last = True

    def __init__(self, name: str, path: Path, tpu: str) -> None:
        """Open the bundle.

        tpu: "c" for the bundle's C, or the way in which a session runs the Edge TPU
        segments; a session shows the tensors between segments alone.

        Raises EdgecError for a bundle of another machine, or a damaged one.
        """
        self.name = name
        self._bundle = Bundle.open(path)
        self._session: Session | None = None
        try:
            self._bundle.manifest.check_alone(
                str(path), hint="compile and compare its networks alone"
            )
            self._read()
            self._open(tpu)
        except BaseException:
            # Nobody else can close the bundle of an object that was never returned.
            self.close()
            raise

    def _read(self) -> None:
        """Read the types, places and graphs of the bundle's values."""
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
        # The one of the graph goes last, so that `see` gets the values of `parts`.
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
        """Return the bundle's list of values, which is empty in older bundles.

        Raises DeviceError for the list or the code of another machine.
        """
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
        # Other code fuses other ops, so its values are at other places.
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
        # Segments run one after the other, so one arena serves them all.
        self._arena = aligned_bytes(max((s.arena for s in segments), default=0))
        self.same_code = tpu == "c"
        self.how = "the bundle's C"
        if tpu != "c":
            self._session = Session(self._bundle, tpu=tpu)
            titles = {"interpreter": "LiteRT", "delegate": "Edge TPU", "c": "C"}
            backends = self._session.backends.values()
            # A dict keeps the order of the segments.
            used = dict.fromkeys(titles[backend] for backend in backends)
            self.how = f"the bundle by {' and '.join(used)}"
        elif not self._file.segments:
            self.how += ", which was made before its values could be seen"

    def _read_weights(self, target: str) -> Array:
        """Return the weights of a target in aligned memory, as the C needs them."""
        name = self._bundle.manifest.weights.get(target)
        data = self._bundle.read(name) if name is not None else b""
        weights = aligned_bytes(len(data))
        weights[:] = np.frombuffer(data, np.uint8)
        return weights

    @property
    def meaning(self) -> Meaning | None:
        """The meaning of the outputs; None without a task on images."""
        task = self._bundle.manifest.task
        # Both sides are judged by the same Python, so that only outputs differ.
        vision = Vision(self._bundle, native=False)
        if task is None or vision.image is None:
            return None
        size = vision.image
        width = size[0]
        shapes = {v.name: v.type.shape for v in self.outputs}
        return Meaning(
            task.kind, width, shapes, lambda outputs: vision.result(outputs, size)
        )

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """Return the outputs of a sample, and show every value that can be seen."""
        if self._session is None:
            return self._walk(inputs, see)
        # Samples are independent: no state of the one before may be left.
        self._session.reset()
        outputs = self._session.run(inputs)
        for name in self._bundle.manifest.tensors:
            see(self._known[name], self._session.tensor(name))
        return outputs

    def force(self, inputs: Sample, see: See) -> None:
        """Run a sample, with each value replaced as soon as it is computed."""
        self._walk(inputs, see)

    def _walk(
        self, inputs: Sample, see: Callable[[Value, Array], Array | None]
    ) -> dict[str, Array]:
        """Run all segments on one sample.

        see: is shown each value, and may return an array to go on with in its place.
        """
        manifest = self._bundle.manifest
        buffers: dict[str, Array] = {}
        for name, info in manifest.tensors.items():
            buffers[name] = aligned_bytes(info.nbytes)

        def show(v: Value, raw: Array) -> None:
            array = _as_array(v, raw)
            other = see(v, array)
            if other is not None:
                # The array is a view of the buffer, so the C reads the other values.
                array[...] = other

        self._fill_inputs(inputs, buffers)
        for name in (*manifest.inputs, *manifest.kept):
            show(self._known[name], buffers[name])
        for s in manifest.segments:
            self._run_segment(s, buffers, show)
        # The copies outlive the buffers of this sample.
        return {v.name: _as_array(v, buffers[v.name]).copy() for v in self.outputs}

    def _fill_inputs(self, inputs: Sample, buffers: Mapping[str, Array]) -> None:
        """Write inputs and state into their buffers."""
        manifest = self._bundle.manifest
        for state in manifest.state:
            if state.initial is not None:
                initial = self._bundle.read(state.initial)
                buffers[state.input][:] = np.frombuffer(initial, np.uint8)
        for name in (*manifest.inputs, *manifest.kept):
            # A sample may lack state, which keeps its first value then. A lacking input
            # is an error of the caller.
            if name in inputs or name in manifest.inputs:
                array = np.ascontiguousarray(inputs[name])
                buffers[name][:] = array.reshape(-1).view(np.uint8)

    def _run_segment(
        self,
        s: SegmentInfo,
        buffers: Mapping[str, Array],
        show: Callable[[Value, Array], None],
    ) -> None:
        """Run a segment, and show each value as soon as it is complete."""
        values = self._file.segments.get(s.name)
        arguments = (
            ctypes.c_void_p(self._arena.ctypes.data),
            ctypes.c_void_p(self._weights.ctypes.data),
            pointers([buffers[name] for name in s.inputs]),
            pointers([buffers[name] for name in s.outputs]),
        )
        due = self._due_values(s, buffers)
        raised: list[BaseException] = []

        def mark(_: int | None, step: int) -> None:
            if raised:
                return
            # C cannot pass an exception on, so the first one waits until it is done.
            try:
                for v, raw in due.get(step, ()):
                    show(v, raw)
            except BaseException as e:
                raised.append(e)

        function = self._function(s, values.function if values is not None else s.name)
        function(*arguments, MARK(mark), None)
        if raised:
            raise raised[0]
        # A bundle without a list of values shows the tensors of the manifest alone.
        if values is None:
            for name in s.outputs:
                show(self._known[name], buffers[name])

    def _due_values(
        self, s: SegmentInfo, buffers: Mapping[str, Array]
    ) -> dict[int, list[tuple[Value, Array]]]:
        """Return the values of a segment and their memory, by the mark that ends them."""
        due: dict[int, list[tuple[Value, Array]]] = {}
        values = self._file.segments.get(s.name)
        if values is None:
            return due
        for name, location in values.places.items():
            # Inputs were shown when they were written.
            if name not in s.inputs:
                v = self._known[name]
                raw = self._bytes(v, location, buffers)
                due.setdefault(location.done, []).append((v, raw))
        return due

    def _function(self, s: SegmentInfo, name: str) -> Callable[..., int]:
        """Return the profiled entry of a segment's C.

        Raises InputError where the list of values names another segment's.
        """
        try:
            # The list is a file from anywhere: a function with other tensors would read
            # beside the buffers.
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
        self, v: Value, location: ValueLocation, buffers: Mapping[str, Array]
    ) -> Array:
        """Return the memory from a value's place on.

        Raises InputError for a place outside of its buffer.
        """
        # Values inside a segment have no buffer of their own: "" is the arena.
        buffer = buffers.get(location.buffer)
        if buffer is None and not location.buffer:
            buffer = self._arena
        nbytes = v.type.nbytes
        if buffer is None or not 0 <= location.offset <= len(buffer) - nbytes:
            raise InputError(
                f"{VALUES_FILE} is damaged: {v.name} is nowhere",
                str(self._bundle.path),
                _HINT,
            )
        return buffer[location.offset :]

    def close(self) -> None:
        """Close the bundle."""
        if self._session is not None:
            self._session.close()
        self._bundle.close()


def _as_array(v: Value, raw: Array) -> Array:
    """Return the first bytes of memory as the array of a value, without a copy."""
    return raw[: v.type.nbytes].view(v.type.np_dtype).reshape(v.type.shape)
