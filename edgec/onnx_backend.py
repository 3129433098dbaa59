"""edgec behind the `onnx.backend` interface, for ONNX's own test suite and others:

    import edgec.onnx_backend as backend
    outputs = backend.prepare(model, "CPU").run([x])

Device "CPU" is the generated C, compiled for this machine; "INTERP" is the numpy
interpreter. An unsupported model is an `EdgecError`. The inputs of a run decide about
shapes. An input counts as a constant of the run if a shape depends on its elements, or an
operator needs them at compile time: a run with other elements compiles anew. Inputs of
four bits are taken as they are, and outputs of four bits are int8 or uint8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from edgec.compiler.native import NativeGraph, native_compiler
from edgec.emit.c import check_kernels
from edgec.errors import EdgecError, InputError, UnsupportedError
from edgec.frontends import checked
from edgec.frontends.onnx import graph_of
from edgec.ir import Array, Graph, Run, interp
from edgec.ir.reading import ComputedError
from edgec.passes.pipeline import optimize

_DEVICES = ("CPU", "INTERP")
"""Names of devices, each perhaps with a number behind a colon."""


@dataclass(frozen=True)
class Specialised:
    """A model for certain types of inputs, and certain elements of some.

    Attributes:
        graph: the optimised graph.
        types: the shape and dtype of each input of the model, by name.
        constants: the bytes of the inputs that became constants of the graph, by name.
    """

    graph: Graph
    types: Mapping[str, tuple[tuple[int, ...], str]]
    constants: Mapping[str, bytes]

    def fits(self, feeds: Mapping[str, Array]) -> bool:
        """Return whether the graph is for these inputs."""
        # Types first: bytes of another type may be the same by chance.
        if _types(feeds) != self.types:
            return False
        constants = self.constants.items()
        return all(feeds[name].tobytes() == data for name, data in constants)


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that can be run.

    A run with new shapes of inputs, or new constants, compiles another graph.
    """

    def __init__(self, model: ModelProto, device: str, cc: str | None = None) -> None:
        self._model = model
        self._device = device
        self._cc = cc
        # Up to IR version 3, ONNX lists initializers among the inputs too.
        constant_names = {t.name for t in model.graph.initializer}
        self._inputs = [i for i in model.graph.input if i.name not in constant_names]
        self._compiled: list[tuple[Specialised, Run]] = []

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run one inference; raises EdgecError.

        inputs: arrays in the order of the model's inputs, by name, or the only one.

        Return the outputs in order, as a tuple with names.
        """
        feeds = self._by_name(inputs)
        special, run = self._specialised_run(feeds)
        # Inputs that became constants are no inputs of the graph.
        used = {v.name: feeds[v.name] for v in special.graph.inputs}
        results = run({n: in_eight_bits(a) for n, a in used.items()}, None)
        names = [o.name for o in self._model.graph.output]
        outputs: tuple[Any, ...] = namedtupledict("Outputs", names)(
            *(results[name] for name in names)
        )
        return outputs

    def specialised(self, feeds: Mapping[str, Array]) -> Specialised:
        """Return the optimised graph for these inputs; raises EdgecError."""
        model = self._model
        path = Path(f"{model.graph.name or 'model'}.onnx")
        # An attempt fails with the inputs that have to be constant, and the next one has
        # them; it ends, since each attempt has more of them than the one before.
        constants = list[str]()
        while True:
            shapes = {n: a.shape for n, a in feeds.items() if n not in constants}
            try:
                graph = checked(graph_of(model, path, shapes), Path("model.onnx"))
                graph = optimize(graph)
                if self._device == "CPU":
                    _check(graph)
                data = {n: feeds[n].tobytes() for n in constants}
                return Specialised(graph, _types(feeds), data)
            except UnsupportedError as e:
                needed = _inputs_behind(e) - {*constants}
                if not needed:
                    raise
                constants += sorted(needed)
                model = _with_constants(self._model, {n: feeds[n] for n in constants})

    def _specialised_run(self, feeds: Mapping[str, Array]) -> tuple[Specialised, Run]:
        """Return the graph for these inputs and its runner, compiled at first use."""
        for compiled in self._compiled:
            if compiled[0].fits(feeds):
                return compiled
        special = self.specialised(feeds)
        run: Run
        if self._device == "INTERP":
            run = partial(interp, special.graph)
        else:
            run = NativeGraph(special.graph, native_compiler(self._cc))
        self._compiled.append((special, run))
        return special, run

    def _by_name(self, inputs: Any) -> dict[str, Array]:
        """Return the arrays of a run by name; raises InputError for a wrong number."""
        names = [i.name for i in self._inputs]
        too_many = False
        if isinstance(inputs, Mapping):
            # The names of initializers may be among them: they are no inputs here.
            arrays = {n: np.asarray(inputs[n]) for n in names if n in inputs}
        else:
            listed = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            too_many = isinstance(inputs, (list, tuple)) and len(listed) > len(names)
            arrays = {n: np.asarray(a) for n, a in zip(names, listed, strict=False)}
        if len(arrays) < len(names) or too_many:
            raise InputError(
                f"the model takes the inputs {', '.join(names)}",
                "run",
                "give an array for each",
            )
        return arrays


class EdgecBackend(Backend):  # type: ignore[misc]
    """The functions of this module, as ONNX's test runner takes them."""

    @classmethod
    def is_compatible(
        cls, model: ModelProto, device: str = "CPU", **kwargs: Any
    ) -> bool:
        """Return whether edgec takes the model, as far as is known without inputs."""
        try:
            cls.prepare(model, device, **kwargs)
        except EdgecError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Return the model, ready to be run.

        kwargs: `cc`, a C compiler of this machine instead of zig.

        Raises EdgecError for an unsupported model with static shapes.
        """
        if not cls.supports_device(device):
            raise InputError(
                f"there is no device {device}",
                "prepare",
                f"give {' or '.join(_DEVICES)}",
            )
        ready = Prepared(model, device.split(":")[0], **kwargs)
        # Without shapes nothing is known before the first run, so only static models can
        # be refused here; what another run could have as a constant is no error either.
        if all(_is_static(i) for i in ready._inputs):
            try:
                graph_of(model, Path(f"{model.graph.name or 'model'}.onnx"), {})
            except UnsupportedError as e:
                if not _inputs_behind(e):
                    raise
        return ready

    @classmethod
    def run_model(
        cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator.

        inputs: arrays in the order of the node's inputs, or by name. kwargs:
        `opset_version`, the newest by default, and those of `prepare`.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        # An empty name stands for an optional input that is left out.
        names = [n for n in node.input if n]
        listed = [inputs[n] for n in names] if isinstance(inputs, Mapping) else inputs
        arrays = {n: np.asarray(a) for n, a in zip(names, listed, strict=True)}
        ins = []
        for name, array in arrays.items():
            dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            info = onnx.helper.make_tensor_value_info(name, dtype, array.shape)
            ins.append(info)
        # Outputs have no types: edgec infers them, whatever the node is.
        outs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = onnx.helper.make_graph([node], node.op_type, ins, outs)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)]
        )
        return cls.run_model(model, list(arrays.values()), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a device is "CPU" or "INTERP", perhaps with ":0" behind it."""
        return device.split(":")[0] in _DEVICES


def in_eight_bits(array: Array) -> Array:
    """Return int4 as int8 and uint4 as uint8, any other array as it is."""
    wide = {"int4": np.int8, "uint4": np.uint8}.get(array.dtype.name)
    return array if wide is None else array.astype(wide)


def _types(feeds: Mapping[str, Array]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each array, by name."""
    return {n: (a.shape, str(a.dtype)) for n, a in feeds.items()}


def _is_static(info: onnx.ValueInfoProto) -> bool:
    """Return whether an input is a tensor of a known shape."""
    if not info.type.HasField("tensor_type"):
        return False
    dims = info.type.tensor_type.shape.dim
    return all(d.HasField("dim_value") for d in dims)


def _check(graph: Graph) -> None:
    """Raise UnsupportedError for an operation without C.

    If the operation needs constants, the cause of the error has the inputs behind them.
    """
    try:
        check_kernels(graph)
    except UnsupportedError as e:
        # The kernel knows only its own operands; the graph knows their origin.
        if isinstance(e.__cause__, ComputedError):
            e.__cause__.inputs = graph.inputs_behind(e.__cause__.values)
        raise


def _inputs_behind(e: BaseException) -> set[str]:
    """Return the inputs of a model that would have to be constant, by an error."""
    # The error for people wraps the one with the inputs, perhaps several times.
    cause: BaseException | None = e
    while cause is not None and not isinstance(cause, ComputedError):
        cause = cause.__cause__
    return set() if cause is None else {*cause.inputs}


def _with_constants(model: ModelProto, arrays: Mapping[str, Array]) -> ModelProto:
    """Return a copy of a model with some inputs as constants."""
    twin = ModelProto()
    twin.CopyFrom(model)
    remaining = [i for i in twin.graph.input if i.name not in arrays]
    # Fields of protobuf messages cannot be assigned.
    del twin.graph.input[:]
    twin.graph.input.extend(remaining)
    twin.graph.initializer.extend(
        numpy_helper.from_array(a, n) for n, a in arrays.items()
    )
    return twin


# The interface consists of functions of a module.
is_compatible = EdgecBackend.is_compatible
prepare = EdgecBackend.prepare
run_model = EdgecBackend.run_model
run_node = EdgecBackend.run_node
supports_device = EdgecBackend.supports_device
