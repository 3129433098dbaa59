"""What can run a model file, as a side of a comparison: edgec's interp and C, LiteRT,
onnxruntime.
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
from edgec.frontends.asked import fix_onnx
from edgec.ir import Array, Graph, Value
from edgec.ir.interp import initial
from edgec.schedule.cores import Core
from edgec.toolchain.cc import Compiler


class InterpSide:
    """By the law of each op."""

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
        """See Side."""
        return self._walk(inputs, lambda v, array: see(v, array))

    def force(self, inputs: Sample, see: See) -> None:
        """See Side."""
        self._walk(inputs, see)

    def _walk(self, inputs: Sample, see: See) -> dict[str, Array]:
        known = walk(self.parts, {**initial(self.graph), **inputs}, see)
        return {v.name: known[v.name] for v in self.outputs}

    def close(self) -> None:
        """Nothing."""


class NativeSide(InterpSide):
    """By the C that edgec writes for this machine, op by op: nothing is fused, so that
    every value can be seen.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        compiler: Compiler,
        core: Core | None = None,
        csrc: Path | None = None,
    ) -> None:
        """core: whose kernels compute, default: plain ones. csrc: the kernels, if not
        edgec's own.
        """
        super().__init__(
            name, graph, f"C, {core.name if core is not None else 'plain kernels'}"
        )
        self._native = NativeGraph(graph, compiler, core, csrc)

    def _walk(self, inputs: Sample, see: See) -> dict[str, Array]:
        def observe(v: Value, array: Array) -> None:
            other = see(v, array)
            if other is not None:
                array[...] = other

        whole = {**initial(self.graph), **inputs}
        return self._native(
            {name: array.copy() for name, array in whole.items()}, observe
        )


class LiteRtSide(InterpSide):
    """A .tflite file by LiteRT, which keeps every tensor: by its reference kernels, or
    by its optimised ones.
    """

    same_code = False

    def __init__(self, name: str, path: Path, graph: Graph, optimised: bool) -> None:
        super().__init__(
            name, graph, f"LiteRT, {'optimised' if optimised else 'reference'} kernels"
        )
        self._new = partial(litert, path.read_bytes(), optimised, name)
        self._interpreter = self._new()
        self._tensors = {
            str(d["name"]): int(d["index"])
            for d in reversed(self._interpreter.get_tensor_details())
        }

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """See Side."""
        if self.graph.state:
            self._interpreter = self._new()  # its variables have no other way back
        for detail, v in zip(
            self._interpreter.get_input_details(), self.inputs, strict=True
        ):
            self._interpreter.set_tensor(detail["index"], inputs[v.name])
        self._interpreter.invoke()
        ends = {v.name for v in self.inputs}
        for v in self.graph.values():
            at = self._tensors.get(v.name)
            if v.const is None and at is not None:
                array = inputs[v.name] if v.name in ends else self._read(v, at)
                if array is not None:
                    see(v, array)
        details = self._interpreter.get_output_details()
        pairs = zip(details, self.outputs, strict=True)
        return {
            v.name: as_typed(self._interpreter.get_tensor(d["index"]), v)
            for d, v in pairs
        }

    def _read(self, v: Value, at: int) -> Array | None:
        """A tensor; None where LiteRT has dropped it, or means another by this name."""
        try:
            array = as_typed(self._interpreter.get_tensor(at), v)
        except ValueError:
            return None
        if array.shape == v.type.shape and array.dtype == v.type.np_dtype:
            return array
        return None


def as_typed(array: Array, v: Value) -> Array:
    """A tensor of a .tflite file as edgec types it: uint8 with a scale is int8."""
    if array.dtype == np.uint8 and v.type.dtype == "int8":
        return (array ^ 0x80).view(np.int8)
    return array


def litert(model: bytes, optimised: bool, at: str) -> Any:
    """An interpreter that keeps all tensors.

    Raises EdgecError where there is none, or it refuses the model.
    """
    try:
        module = importlib.import_module("ai_edge_litert.interpreter")
    except ImportError as e:
        raise EdgecError(
            f"LiteRT is not here: {e}",
            at=at,
            hint="python3 -m pip install ai-edge-litert",
        ) from e
    kinds = module.OpResolverType
    kind = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if optimised else kinds.BUILTIN_REF
    try:
        made = module.Interpreter(
            model_content=model,
            experimental_op_resolver_type=kind,
            experimental_preserve_all_tensors=True,
        )
        made.allocate_tensors()
    except (RuntimeError, ValueError) as e:
        raise EdgecError(
            f"LiteRT refuses the model: {e}",
            at=at,
            hint="compare with interp: or c: instead",
        ) from e
    return made


class OnnxRuntimeSide(InterpSide):
    """A .onnx file by onnxruntime, with every tensor as an output."""

    same_code = False
    channels_last = False

    def __init__(
        self,
        name: str,
        path: Path,
        graph: Graph,
        fixed: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """fixed: inputs that are constants."""
        super().__init__(name, graph, "onnxruntime")
        self._path = path
        self._fixed = fixed or {}
        self._known = {v.name: v for v in graph.values() if v.const is None}

    @cached_property
    def _session(self) -> Any:
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
        fix_onnx(
            model.graph,
            {v.name: v.type.shape for v in self.graph.values()},
            self._fixed,
        )
        named = {o.name for o in model.graph.output}
        for node in model.graph.node:
            for tensor in node.output:
                if tensor in self._known and tensor not in named:
                    named.add(tensor)
                    model.graph.output.append(onnx.ValueInfoProto(name=tensor))
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        # Sums of uint8 by int8 are exact then; x86-64 without VNNI saturates them else,
        # in 16 bits.
        options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            return runtime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as e:  # its own classes, which are not public
            raise EdgecError(
                f"onnxruntime refuses the model: {e}",
                self.name,
                "compare with interp: instead",
            ) from e

    def run(self, inputs: Sample, see: Look) -> dict[str, Array]:
        """See Side."""
        names = [o.name for o in self._session.get_outputs()]
        given = {**initial(self.graph), **inputs}
        found = {
            **given,
            **dict(zip(names, self._session.run(names, given), strict=True)),
        }
        for v in self._known.values():
            array = found.get(v.name)
            if (
                array is not None
                and array.shape == v.type.shape
                and array.dtype == v.type.np_dtype
            ):
                see(v, array)
        missing = [v.name for v in self.outputs if v.name not in found]
        if missing:
            raise InputError(
                f"onnxruntime has no output {missing[0]}",
                self.name,
                "name the model's own file",
            )
        return {v.name: found[v.name] for v in self.outputs}
