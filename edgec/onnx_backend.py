"""edgec behind the `onnx.backend` interface, so that ONNX's own test suite, or anything
else that knows it, drives it:

    import edgec.onnx_backend as backend
    outputs = backend.prepare(model, "CPU").run([x])

Device "CPU" is the generated C, compiled for this machine; "INTERP" is the numpy
interpreter. What edgec cannot do is an `EdgecError`. Shapes are those of the inputs of
a run. An input on whose elements a shape hangs, or that an operator needs when it is
compiled, counts as a constant of the run that gives it: another run with other elements
compiles anew.
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


@dataclass(frozen=True)
class Specialised:
    """A model for certain inputs: of these types, some with these bytes. graph: what
    `interp` runs. constants: by name, inputs that are none of the graph's own.
    """

    graph: Graph
    types: Mapping[str, tuple[tuple[int, ...], str]]
    constants: Mapping[str, bytes]

    def fits(self, feeds: Mapping[str, Array]) -> bool:
        """Whether it is for these inputs."""
        return _types(feeds) == self.types and all(
            feeds[n].tobytes() == c for n, c in self.constants.items()
        )


class Prepared(BackendRep):  # type: ignore[misc]
    """A model that can be run.

    Graphs are made and compiled when inputs with new shapes, or constants, come.
    """

    def __init__(self, model: ModelProto, device: str, cc: str | None = None) -> None:
        self._model = model
        self._device = device
        self._cc = cc
        given = {t.name for t in model.graph.initializer}
        self._inputs = [i for i in model.graph.input if i.name not in given]
        self._made: list[tuple[Specialised, Run]] = []

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """One inference. inputs: arrays in the order of the model's inputs, by name, or
        the only one.

        Returns the outputs in order, which can be had by name too. Raises EdgecError.
        """
        feeds = self._by_name(inputs)
        special, run = next(
            (made for made in self._made if made[0].fits(feeds)), None
        ) or self._make(feeds)
        found = run({v.name: feeds[v.name] for v in special.graph.inputs}, None)
        names = [o.name for o in self._model.graph.output]
        outputs: tuple[Any, ...] = namedtupledict("Outputs", names)(
            *(found[n] for n in names)
        )
        return outputs

    def specialised(self, feeds: Mapping[str, Array]) -> Specialised:
        """The optimised graph for these inputs. Raises EdgecError."""
        model = self._model
        constants = list[str]()
        while True:
            shapes = {n: a.shape for n, a in feeds.items() if n not in constants}
            try:
                graph = checked(
                    graph_of(
                        model, Path(f"{model.graph.name or 'model'}.onnx"), shapes
                    ),
                    Path("model.onnx"),
                )
                graph = optimize(graph)
                if self._device == "CPU":
                    _check(graph)
                return Specialised(
                    graph, _types(feeds), {n: feeds[n].tobytes() for n in constants}
                )
            except UnsupportedError as e:
                needed = _inputs_behind(e) - {*constants}
                if not needed:
                    raise
                constants += sorted(needed)
                model = _with_constants(self._model, {n: feeds[n] for n in constants})

    def _make(self, feeds: Mapping[str, Array]) -> tuple[Specialised, Run]:
        special = self.specialised(feeds)
        by_numpy = self._device == "INTERP"
        run: Run
        if by_numpy:
            run = partial(interp, special.graph)
        else:
            run = NativeGraph(special.graph, native_compiler(self._cc))
        self._made.append((special, run))
        return self._made[-1]

    def _by_name(self, inputs: Any) -> dict[str, Array]:
        names = [i.name for i in self._inputs]
        if isinstance(inputs, Mapping):
            found = {n: np.asarray(inputs[n]) for n in names if n in inputs}
        else:
            listed = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            found = {n: np.asarray(a) for n, a in zip(names, listed, strict=False)}
        if len(found) < len(names) or (
            len(inputs) > len(names) and isinstance(inputs, (list, tuple))
        ):
            raise InputError(
                f"the model takes the inputs {', '.join(names)}",
                "run",
                "give an array for each",
            )
        return found


class EdgecBackend(Backend):  # type: ignore[misc]
    """The functions of this module, as ONNX's test runner takes them."""

    @classmethod
    def is_compatible(
        cls, model: ModelProto, device: str = "CPU", **kwargs: Any
    ) -> bool:
        """Whether edgec takes the model, as far as can be told without inputs."""
        try:
            cls.prepare(model, device, **kwargs)
        except EdgecError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """The model, ready to be run.

        Raises EdgecError for one whose inputs have static shapes and that is refused.

        cc: a C compiler of this machine instead of zig.
        """
        if not cls.supports_device(device):
            raise InputError(
                f"there is no device {device}",
                "prepare",
                f"give {' or '.join(_DEVICES)}",
            )
        ready = Prepared(model, device.split(":")[0], **kwargs)
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
        """`prepare` and `run` at once."""
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
        """One operator on these inputs, in the order of the node's or by name.
        opset_version: default, the newest.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [n for n in node.input if n]
        listed = [inputs[n] for n in names] if isinstance(inputs, Mapping) else inputs
        arrays = {n: np.asarray(a) for n, a in zip(names, listed, strict=True)}
        ins = [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for n, a in arrays.items()
        ]
        outs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = onnx.helper.make_graph([node], node.op_type, ins, outs)
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)]
        )
        return cls.run_model(model, list(arrays.values()), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """ "CPU" and "INTERP"; with or without a number behind a colon."""
        return device.split(":")[0] in _DEVICES


def _types(feeds: Mapping[str, Array]) -> dict[str, tuple[tuple[int, ...], str]]:
    return {n: (a.shape, str(a.dtype)) for n, a in feeds.items()}


def _is_static(info: onnx.ValueInfoProto) -> bool:
    """Whether an input is a tensor of a known shape."""
    return info.type.HasField("tensor_type") and all(
        d.HasField("dim_value") for d in info.type.tensor_type.shape.dim
    )


def _check(graph: Graph) -> None:
    """Raise UnsupportedError for what has no C, which knows the inputs behind it."""
    try:
        check_kernels(graph)
    except UnsupportedError as e:
        if isinstance(e.__cause__, ComputedError):
            e.__cause__.inputs = graph.inputs_behind(e.__cause__.values)
        raise


def _inputs_behind(e: BaseException) -> set[str]:
    """The model's inputs on which the values hang that would have to be constant."""
    found: BaseException | None = e
    while found is not None and not isinstance(found, ComputedError):
        found = found.__cause__
    return {*found.inputs} if isinstance(found, ComputedError) else set()


def _with_constants(model: ModelProto, arrays: Mapping[str, Array]) -> ModelProto:
    """The model with these of its inputs as constants."""
    twin = ModelProto()
    twin.CopyFrom(model)
    left = [i for i in twin.graph.input if i.name not in arrays]
    del twin.graph.input[:]
    twin.graph.input.extend(left)
    twin.graph.initializer.extend(
        numpy_helper.from_array(a, n) for n, a in arrays.items()
    )
    return twin


is_compatible = EdgecBackend.is_compatible
prepare = EdgecBackend.prepare
run_model = EdgecBackend.run_model
run_node = EdgecBackend.run_node
supports_device = EdgecBackend.supports_device
