"""Executors of model files: edgec's interp and C, LiteRT, onnxruntime.

Each is a side of a comparison (`edgec.comparing.side.Side`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from edgec.comparing.changes import Changes
from edgec.comparing.side import Look, Sample, See, walk
from edgec.compiler.native import NativeGraph
from edgec.errors import EdgecError, InputError
from edgec.frontends.input_requests import fix_onnx
from edgec.ir import Array, Graph, Value
from edgec.ir.interp import initial
from edgec.schedule.cores import Core
from edgec.toolchain.cc import Compiler

ONNXRUNTIME_SILENT = 4
"""The log level of onnxruntime that prints fatal errors alone."""


class InterpSide:
    """A graph run by the reference of each operation.

    Attributes: see `Side`.
    """

    channels_last = True
    complete = True
    same_code = True

    def __init__(self, name: str, graph: Graph, how: str = "interp") -> None:
        self.name = name
        self.how = how
        self.graph = graph
        self.inputs: Sequence[Value] = graph.given()
        self.outputs: Sequence[Value] = graph.returned()
        self.parts: Mapping[str, Graph] = {"": graph}
        self.changes: Changes = {}

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """Run one inference, see `Side.run`."""
        return self._walk(inputs, lambda v, array: see(v, array))

    def force(self, inputs: Sample, see: See) -> None:
        """Run one inference with forced values, see `Side.force`."""
        self._walk(inputs, see)

    def _walk(self, inputs: Sample, see: See) -> dict[str, Array]:
        # State begins with its initial values: a comparison is of single inferences.
        values = walk(self.parts, {**initial(self.graph), **inputs}, see)
        return {v.name: values[v.name] for v in self.outputs}

    def close(self) -> None:
        """Do nothing: a graph has no resources."""


class NativeSide(InterpSide):
    """A graph run by the C that edgec writes for this machine.

    No operations are fused, so that every value is visible.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        compiler: Compiler,
        core: Core | None = None,
        csrc: Path | None = None,
    ) -> None:
        """Compile the graph.

        core: the core whose kernels compute; None: plain C.
        csrc: the folder of the kernels, if not edgec's own.
        """
        kernels = core.name if core is not None else "plain kernels"
        super().__init__(name, graph, f"C, {kernels}")
        self._native = NativeGraph(graph, compiler, core, csrc)

    def _walk(self, inputs: Sample, see: See) -> dict[str, Array]:
        def observe(v: Value, array: Array) -> None:
            """Show a value, and let later operations read what comes back for it."""
            other = see(v, array)
            if other is not None:
                array[...] = other

        # Forced inputs are written in place, and samples belong to the caller.
        arrays = {**initial(self.graph), **inputs}
        copies = {name: array.copy() for name, array in arrays.items()}

        return self._native(copies, observe)


class LiteRtSide(InterpSide):
    """A .tflite file run by LiteRT, which keeps every tensor."""

    same_code = False

    def __init__(self, name: str, path: Path, graph: Graph, optimised: bool) -> None:
        """Load the file. optimised: whether by LiteRT's optimised kernels."""
        kernels = "optimised" if optimised else "reference"
        super().__init__(name, graph, f"LiteRT, {kernels} kernels")
        self._new = partial(litert, path.read_bytes(), optimised, name)
        self._interpreter = self._new()

        # Of several tensors of one name the first counts, hence from the last one.
        self._tensors: dict[str, int] = {}
        for detail in reversed(self._interpreter.get_tensor_details()):
            self._tensors[str(detail["name"])] = int(detail["index"])

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """Run one inference, see `Side.run`."""
        if self.graph.state:
            # Only a new interpreter has the initial values of variables.
            self._interpreter = self._new()

        # LiteRT lists inputs and outputs in the order of the file, as edgec does.
        details = self._interpreter.get_input_details()
        for detail, v in zip(details, self.inputs, strict=True):
            self._interpreter.set_tensor(detail["index"], inputs[v.name])

        self._interpreter.invoke()
        self._show_values(inputs, see)

        outputs = {}
        details = self._interpreter.get_output_details()
        for detail, v in zip(details, self.outputs, strict=True):
            array = self._interpreter.get_tensor(detail["index"])
            outputs[v.name] = as_typed(array, v)

        return outputs

    def _show_values(self, inputs: Sample, see: Look) -> None:
        """Show every value of the last inference that LiteRT has kept."""
        input_names = {v.name for v in self.inputs}
        for v in self.graph.values():
            index = self._tensors.get(v.name)
            if v.const is not None or index is None:
                continue
            # An interpreter may reuse the memory of an input.
            array = inputs[v.name] if v.name in input_names else self._tensor(v, index)
            if array is not None:
                see(v, array)

    def _tensor(self, v: Value, index: int) -> Array | None:
        """Return a tensor of the last inference.

        None where LiteRT has dropped it, or has another one of this name.
        """
        try:
            array = as_typed(self._interpreter.get_tensor(index), v)
        except ValueError:
            return None

        is_same = array.shape == v.type.shape and array.dtype == v.type.np_dtype

        return array if is_same else None


def as_typed(array: Array, v: Value) -> Array:
    """Return a tensor of a .tflite file in edgec's type: uint8 with a scale is int8."""
    # Subtracting 128 is a flip of the highest bit.
    if array.dtype == np.uint8 and v.type.dtype == "int8":
        return (array ^ 0x80).view(np.int8)
    return array


def litert(model: bytes, optimised: bool, at: str) -> Any:
    """Return a LiteRT interpreter that keeps all tensors.

    at: the side, for messages.

    Raises EdgecError where LiteRT is not installed, or refuses the model.
    """
    try:
        module = importlib.import_module("ai_edge_litert.interpreter")
    except ImportError as e:
        raise EdgecError(
            f"LiteRT is not here: {e}",
            at=at,
            hint="python3 -m pip install ai-edge-litert",
        ) from e

    # Delegates would hide the tensors inside of them.
    kinds = module.OpResolverType
    kind = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if optimised else kinds.BUILTIN_REF
    try:
        interpreter = module.Interpreter(
            model_content=model,
            experimental_op_resolver_type=kind,
            experimental_preserve_all_tensors=True,
        )
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError) as e:
        raise EdgecError(
            f"LiteRT refuses the model: {e}",
            at=at,
            hint="compare with interp: or c: instead",
        ) from e

    return interpreter


class OnnxRuntimeSide(InterpSide):
    """An .onnx file run by onnxruntime, with every tensor as an output."""

    same_code = False
    channels_last = False

    def __init__(
        self,
        name: str,
        path: Path,
        graph: Graph,
        fixed: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Prepare the side; the file is loaded at the first inference.

        fixed: the values of inputs that are constants, by name.
        """
        super().__init__(name, graph, "onnxruntime")
        self._path = path
        self._fixed = fixed or {}
        self._known = {v.name: v for v in graph.values() if v.const is None}

    @cached_property
    def _session(self) -> Any:
        """The session of the file with every tensor as an output."""
        try:
            onnx = importlib.import_module("onnx")
            runtime = importlib.import_module("onnxruntime")
        except ImportError as e:
            raise EdgecError(
                f"onnxruntime is not here: {e}",
                self.name,
                "python3 -m pip install onnxruntime",
            ) from e

        model = onnx.load(str(self._path))
        shapes = {v.name: v.type.shape for v in self.graph.values()}
        fix_onnx(model.graph, shapes, self._fixed)
        self._make_all_outputs(onnx, model)
        options = runtime.SessionOptions()
        options.log_severity_level = ONNXRUNTIME_SILENT
        # Sums of uint8 by int8 are exact then; x86-64 without VNNI saturates them else,
        # in 16 bits.
        options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            return runtime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as e:
            # The classes of onnxruntime's errors are not public.
            raise EdgecError(
                f"onnxruntime refuses the model: {e}",
                self.name,
                "compare with interp: instead",
            ) from e

    def _make_all_outputs(self, onnx: Any, model: Any) -> None:
        """Make every tensor that edgec's graph has too an output of the model."""
        outputs = {o.name for o in model.graph.output}
        for node in model.graph.node:
            for tensor in node.output:
                if tensor in self._known and tensor not in outputs:
                    outputs.add(tensor)
                    model.graph.output.append(onnx.ValueInfoProto(name=tensor))

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """Run one inference, see `Side.run`."""
        names = [o.name for o in self._session.get_outputs()]
        arrays: dict[str, Array] = {**initial(self.graph), **inputs}
        results = self._session.run(names, arrays)
        arrays.update(zip(names, results, strict=True))

        for v in self._known.values():
            array = arrays.get(v.name)
            if array is None:
                continue
            # A pass of the front-end may have kept a name for another tensor.
            if array.shape == v.type.shape and array.dtype == v.type.np_dtype:
                see(v, array)

        missing = [v.name for v in self.outputs if v.name not in arrays]
        if missing:
            raise InputError(
                f"onnxruntime has no output {missing[0]}",
                self.name,
                "name the model's own file",
            )

        return {v.name: arrays[v.name] for v in self.outputs}
