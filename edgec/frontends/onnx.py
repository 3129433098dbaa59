"""An .onnx file as a Graph. Shapes become static here, and whatever is constant is computed at once.

Shape arithmetic (Shape, Gather, Concat, … on int64) has only constant inputs once the model's inputs are frozen, so it
folds away node by node through the ops' own `ref`, and the ops that need a constant shape or axis find one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, external_data_helper, numpy_helper

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.errors import EdgecError, InputError, UnsupportedError, did_you_mean
from edgec.frontends.onnx_quantized import expanded
from edgec.ir import Array, Builder, Graph, OnnxNode, OpDef, Quant, QuantRule, TensorType, Value, fold
from edgec.ir.attributes import Attributes
from edgec.ir.opdef import by_name
from edgec.ops.cast import ONNX_TYPES
from edgec.ops.linear_quantization import restored
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Reshape

MIN_OPSET = 7
_DOMAINS = ("", "ai.onnx")
_KNOWN_OPS_HINT = "docs/supported-ops.md lists what edgec reads; replace the operator before exporting the model"
_CONTROL_FLOW = ("If", "Loop", "Scan")
_CONTROL_FLOW_HINT = "edgec compiles models without control flow: export it with fixed shapes, or fold it with onnxsim"

_INPUT_TYPES = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64)


def read_onnx(path: Path, input_shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    """Read the main graph; `input_shapes` freezes dynamic inputs by name, and a dynamic leading batch is frozen to 1.

    Raises InputError for a damaged file, a dynamic input or a wrong name, UnsupportedError for what edgec cannot read.
    """
    model = _load(path)
    opset = _opset(model, path)
    graph = expanded(model.graph)
    _check_operators(graph, path)
    return _Reader(graph, path, opset).read(input_shapes)


def _load(path: Path) -> ModelProto:
    """The parsed file with its external data."""
    damaged = "the file is damaged or cut short, or it is no ONNX model: copy or export it again"
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except Exception as e:  # protobuf's own errors differ between its implementations
        raise InputError(f"{path.name} cannot be read as ONNX ({type(e).__name__}: {e})", str(path), damaged) from e
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InputError(f"{path.name} holds no ONNX graph", str(path), damaged)
    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as e:
        hint = f"put the weights' file, as the exporter wrote it, next to {path.name}"
        raise InputError(f"the external data of {path.name} cannot be read: {_first_line(e)}", str(path), hint) from e
    if not all(isinstance(text, str) for text in _texts(model.graph)):
        raise InputError(f"{path.name} holds names that are no text", str(path), damaged)
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    return model


def _texts(graph: GraphProto) -> Iterator[object]:
    """All names; protobuf gives bytes for what is not UTF-8."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
    for named in (*graph.input, *graph.output, *graph.initializer):
        yield named.name


def _type_name(element_type: int) -> str:
    names: dict[int, str] = {v: k.lower() for k, v in TensorProto.DataType.items()}
    return names.get(element_type, f"number {element_type}")


def _reason(e: Exception) -> str:
    if isinstance(e, KeyError):
        return f"has no {e}"
    return str(e) if isinstance(e, ValueError) else f"{type(e).__name__} {e}".strip()


def _first_line(e: Exception) -> str:
    return str(e).strip().split("\n")[0] or type(e).__name__


def _opset(model: ModelProto, path: Path) -> int:
    """The version of the default operator set."""
    version = max((int(o.version) for o in model.opset_import if o.domain in _DOMAINS), default=1)
    if version < MIN_OPSET:
        hint = "convert it with onnx.version_converter.convert_version(model, 13)"
        raise UnsupportedError(f"{path.name} uses opset {version}; edgec reads {MIN_OPSET} and up", str(path), hint)
    return version


def _check_operators(graph: GraphProto, path: Path) -> None:
    """Name every operator that edgec does not know at once, before any work is done; constants may come of any."""
    unknown: dict[str, str] = {}
    constant = {t.name for t in graph.initializer} | {""}
    for number, node in _needed_nodes(graph):
        decided = node.op_type == "If" and constant.issuperset(node.input)  # its branch is looked at when it is read
        if node.op_type in ("Shape", "Size") or (_is_plain(node) and constant.issuperset(node.input)):
            constant.update(node.output)
        elif not decided and node.op_type != "Constant" and _definition(node) is None:
            name = node.op_type if node.domain in _DOMAINS else f"{node.domain}:{node.op_type}"
            unknown.setdefault(name, _location(number, node, path))
    if unknown:
        (name, at), *others = unknown.items()
        also = f" (nor {', '.join(n for n, _ in others)})" if others else ""
        hint = _CONTROL_FLOW_HINT if name in _CONTROL_FLOW else _KNOWN_OPS_HINT
        raise UnsupportedError(f"edgec does not know the ONNX operator {name}{also}", at, hint)


def _definition(node: NodeProto) -> type[OpDef] | None:
    """The op that reads this node."""
    return by_name("onnx", node.op_type) if node.domain in _DOMAINS else None


def _is_plain(node: NodeProto) -> bool:
    """A standard operator of its inputs alone: without subgraphs, and not one that makes noise out of nothing."""
    return node.domain in _DOMAINS and (node.input or node.op_type == "Constant") and not _subgraphs(node)


def _subgraphs(node: NodeProto) -> dict[str, GraphProto]:
    """The graphs that a node carries, by attribute."""
    return {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}


def _reads(node: NodeProto) -> Iterator[str]:
    """The names that a node and the graphs in it read."""
    yield from node.input
    for graph in _subgraphs(node).values():
        yield from (name for inner in graph.node for name in _reads(inner))
        yield from (output.name for output in graph.output)


def _evaluate(node: NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """The results of a standard operator on constants (Where, Equal and the like), by ONNX's own reference."""
    from onnx.reference import ReferenceEvaluator

    feeds = {name: a for name, a in zip(node.input, inputs, strict=True) if a is not None}
    ends = ([onnx.ValueInfoProto(name=n) for n in names if n] for names in (feeds, node.output))
    graph = onnx.helper.make_graph([node], "constant", *ends)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]


def _location(number: int, node: NodeProto, path: Path) -> str:
    return f"node {node.name or f'number {number}'} ({node.op_type}), {path}"


@dataclass
class _Reader:
    """One pass over the nodes, in the file's (topological) order."""

    graph: GraphProto
    path: Path
    opset: int
    build: Builder = field(init=False)
    values: dict[str, Value] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)
    """Outputs that the op's reader does not give, and the node they belong to."""
    uint8: set[Value] = field(default_factory=set)
    """Quantized values that are int8 here and uint8 in the file."""

    def __post_init__(self) -> None:
        self.build = Builder(self.path.stem)

    def read(self, input_shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """Constants and inputs, then nodes, then outputs."""
        if self.graph.sparse_initializer:
            raise UnsupportedError("sparse initializers are not read", str(self.path), "export dense weights")
        constants = {t.name: t for t in self.graph.initializer}
        inputs = [i for i in self.graph.input if i.name not in constants]
        _check_names(input_shapes, [i.name for i in inputs], self.path)
        for info in inputs:
            self._define(info.name, self.build.input(info.name, self._input_type(info, input_shapes.get(info.name))))
        self._body(self.graph)
        result = self.build.graph
        for info in self.graph.output:
            result.outputs.append(self._output(info.name))
        result.drop_unused()
        return result

    # ---- the border -----------------------------------------------------------------------------------------------
    def _input_type(self, info: onnx.ValueInfoProto, given: tuple[int, ...] | None) -> TensorType:
        """The static type of an input."""
        at = f"input {info.name}, {self.path}"
        if info.type.WhichOneof("value") != "tensor_type":
            raise UnsupportedError(f"input {info.name} is no tensor", at, "export a model whose inputs are tensors")
        tensor = info.type.tensor_type
        if tensor.elem_type not in _INPUT_TYPES:
            what = f"input {info.name} has elements of type {_type_name(tensor.elem_type)}"
            raise UnsupportedError(what, at, "export the model as float32")
        dims = list(tensor.shape.dim) if tensor.HasField("shape") else None
        return TensorType(_static_shape(info.name, dims, given, at), ONNX_TYPES[tensor.elem_type])

    def _output(self, name: str) -> Value:
        """The value that the graph returns under this name."""
        value = self._value(name, f"output {name}, {self.path}")
        if value in self.uint8 and value.type.quant is not None:
            return self._as_uint8(name, value, value.type.quant)
        if value.name == name:
            return value
        # the same value under a second name (an Identity that a reader saw through): a copy with that name
        self.build.source = name
        if value.const is not None:
            return Value(name, value.type, value.const)
        copy = self.build.add(Reshape(value.type.shape), [value], name)
        copy.name = name
        return copy

    def _as_uint8(self, name: str, value: Value, quant: Quant) -> Value:
        """A quantized output as the file has it."""
        if value.name == name:
            value.name = self.build.name(f"{name}_int8")
        self.build.source = name
        zeros = tuple(z + 128 for z in quant.zero_point)
        outer = Value(name, value.type.with_quant(replace(quant, zero_point=zeros), "uint8"))
        self.build.write(Quantize("uint8"), [value], [outer])
        return outer

    def _body(self, graph: GraphProto) -> None:
        """Initializers, then the nodes that its outputs need."""
        for tensor in graph.initializer:
            name = tensor.name
            self._define(name, self.build.const(self._array(tensor, f"initializer {name}, {self.path}"), name))
        self.build.reserve(name for node in graph.node for name in node.output)
        for number, node in _needed_nodes(graph):
            self._node(node, _location(number, node, self.path))

    # ---- nodes ----------------------------------------------------------------------------------------------------
    def _node(self, node: NodeProto, at: str) -> None:
        mark = len(self.build.graph.ops)
        inputs = [self._value(name, at) if name else None for name in node.input]
        self.build.source = node.name or next(iter(node.output), "")
        try:
            if node.op_type == "If":
                results: Sequence[Value] = self._branch(node, inputs, at)
            else:
                attrs = {a.name: self._attribute(a, at) for a in node.attribute}
                results = self._results(node, attrs, inputs)
            ops = self.build.graph.ops
            ops[mark:] = [op for op in ops[mark:] if not fold(op)]
        except EdgecError:
            raise
        except Exception as e:  # a file that is not valid can fail in any op's reader
            hint = "simplify the node before exporting; report it if onnxruntime runs this file"
            raise UnsupportedError(f"{node.op_type}: {_reason(e)}", at, hint) from e
        for i, name in enumerate(node.output):
            if name and i < len(results):
                self._define(name, results[i])
            elif name:
                self.omitted[name] = f"output {i} of {node.op_type}"

    def _results(self, node: NodeProto, attrs: dict[str, Any], inputs: list[Value | None]) -> Sequence[Value]:
        if node.op_type == "Constant":
            return [self.build.const(_constant(attrs), node.output[0])]
        definition, name = _definition(node), node.output[0]
        if definition is None:
            results = _evaluate(node, [v.const if v is not None else None for v in inputs], self.opset)
            return [self.build.const(_known_type(a), name) for a in results]
        if definition in (Quantize, Dequantize) or not any(v and v.type.is_quantized for v in inputs):
            return self._read(definition, node, attrs, inputs)
        ops = self.build.graph.ops
        mark = len(ops)
        results = self._read(definition, node, attrs, inputs)
        if all(op.spec.quant is QuantRule.SAME for op in ops[mark:]):
            if self.uint8.intersection(v for v in inputs if v is not None):
                self.uint8.update(v for v in results if v.type.is_quantized)
            return results
        del ops[mark:]  # what computes on the integers themselves must have those of the file
        plain = [v and restored(self.build, v, self.uint8) for v in inputs]
        return self._read(definition, node, attrs, plain)

    def _read(
        self, definition: type[OpDef], node: NodeProto, attrs: dict[str, Any], inputs: list[Value | None]
    ) -> Sequence[Value]:
        """What the op's reader makes of a node."""
        attributes = Attributes(attrs, _defaults(node.op_type, self.opset))
        read = OnnxNode(
            node.op_type, node.output[0], attributes, inputs, len(node.output), self.opset, self.build, self.uint8
        )
        given = definition.from_onnx(read)
        attributes.check()
        return [given] if isinstance(given, Value) else given

    def _branch(self, node: NodeProto, inputs: Sequence[Value | None], at: str) -> list[Value]:
        """The results of the branch that a constant condition takes; exporters leave such around shape arithmetic."""
        condition = inputs[0]
        if condition is None or condition.const is None:
            raise ValueError("the condition is computed at run time; edgec compiles models without control flow")
        graph = _subgraphs(node)["then_branch" if condition.const.item() else "else_branch"]
        _check_operators(graph, self.path)
        outside = dict(self.values)
        self._body(graph)
        results = [self._value(output.name, at) for output in graph.output]
        self.values = outside  # the branch's names end with it, so that its results take those of the node
        return results

    def _define(self, name: str, value: Value) -> None:
        """Bind a name of the file; a value that edgec made takes it over."""
        if name in self.values or name in self.omitted:
            raise InputError(f"two nodes write {name}", str(self.path), "export the model again: the file is not valid")
        if self.values.get(value.name) is not value:
            value.name = name
        self.values[name] = value

    def _value(self, name: str, at: str) -> Value:
        if name in self.omitted:
            raise UnsupportedError(f"{self.omitted[name]} ({name}) is read, which edgec does not compute", at)
        if name not in self.values:
            hint = "the file is damaged or its nodes are out of order: export it again"
            raise InputError(f"{name} is read before anything writes it", at, hint)
        return self.values[name]

    # ---- attributes and tensors -------------------------------------------------------------------------------------
    def _attribute(self, a: AttributeProto, at: str) -> Any:
        """An attribute as Python has it; a tensor as an array of the IR's types."""
        if a.type == AttributeProto.TENSOR:
            return self._array(a.t, at)
        if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ValueError(f"the subgraph {a.name} is control flow, and edgec compiles straight-line models")
        return _plain(a)

    def _array(self, tensor: TensorProto, at: str) -> Array:
        """The elements of a tensor, cast to the IR's type."""
        if tensor.data_type not in ONNX_TYPES:
            what = f"tensor {tensor.name} has elements of type {_type_name(tensor.data_type)}"
            raise UnsupportedError(what, at, "export it as float32")
        try:
            return np.asarray(numpy_helper.to_array(tensor)).astype(ONNX_TYPES[tensor.data_type])
        except (ValueError, TypeError) as e:
            raise InputError(f"tensor {tensor.name} is damaged: {e}", at, "copy or export the file again") from e


def _plain(a: AttributeProto) -> Any:
    """A number, a text or a list of them."""
    value = onnx.helper.get_attribute_value(a)
    return value.decode() if isinstance(value, bytes) else value


@cache
def _defaults(op_type: str, opset: int) -> Mapping[str, Any]:
    """What ONNX's schema says of attributes that a node leaves out."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:  # an operator that this opset does not have
        return {}
    return {n: _plain(a.default_value) for n, a in schema.attributes.items() if a.default_value.name}


def _known_type(array: Array) -> Array:
    """An array of one of the IR's types."""
    return array.astype(ONNX_TYPES[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)])


def _constant(attrs: Mapping[str, Any]) -> Array:
    """The array of a Constant node, which has one of several attributes."""
    for name, dtype in (("value_float", "float32"), ("value_floats", "float32"), ("value_int", "int64")):
        if name in attrs:
            return np.array(attrs[name], dtype)
    if "value_ints" in attrs:
        return np.array(attrs["value_ints"], np.int64)
    value: Array = attrs["value"]
    return value


def _needed_nodes(graph: GraphProto) -> list[tuple[int, NodeProto]]:
    """The nodes that the outputs depend on, with their numbers."""
    needed = {o.name for o in graph.output}
    kept: list[tuple[int, NodeProto]] = []
    for number in reversed(range(len(graph.node))):
        node = graph.node[number]
        if any(name in needed for name in node.output):
            kept.append((number, node))
            needed.update(_reads(node))
    return kept[::-1]


def _check_names(given: Mapping[str, tuple[int, ...]], names: Sequence[str], path: Path) -> None:
    for name in given:
        if name not in names:
            what = f"the model has no input {name}{did_you_mean(name, names)}"
            raise InputError(what, str(path), f"its inputs: {', '.join(names)}")


def _static_shape(name: str, dims: list[Any] | None, given: tuple[int, ...] | None, at: str) -> tuple[int, ...]:
    """The declared shape, its dynamic dimensions taken from `given`; a dynamic leading one is 1 unless given."""
    if dims is None:
        if given is None:
            raise _not_static(name, "unknown", (1, 3, 224, 224), at)
        return given
    shape = [int(d.dim_value) if d.dim_value > 0 else None for d in dims]
    text = "[" + ", ".join(_dims_text(dims)) + "]"
    if given is None:
        if len(shape) > 1 and shape[0] is None:
            shape[0] = 1
        if None in shape:
            raise _not_static(name, text, tuple(224 if d is None else d for d in shape), at)
        return tuple(d for d in shape if d is not None)
    fits = len(given) == len(shape) and all(d in (None, g) and g > 0 for d, g in zip(shape, given, strict=True))
    if not fits:
        what = f"input {name} has the shape {text} in the file, which {list(given)} does not fit"
        raise InputError(what, at, "give a shape of that rank that keeps its static dimensions")
    return given


def _not_static(name: str, text: str, example: tuple[int, ...], at: str) -> InputError:
    hint = f"freeze it, for instance --input-shape {name}={'x'.join(map(str, example))}"
    return InputError(f"input {name} has the dynamic shape {text}", at, hint)


def _dims_text(dims: Sequence[Any]) -> Iterator[str]:
    for d in dims:
        yield str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?"
