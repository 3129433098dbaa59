"""An .onnx file as a Graph.

Shapes become static here, and whatever is constant is computed at once.

Shape arithmetic (Shape, Gather, Concat, … on int64) has only constant inputs once the
model's inputs are frozen, so it folds away node by node through the ops' own `ref`, and
the ops that need a constant shape or axis find one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    numpy_helper,
)

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.errors import EdgecError, InputError, UnsupportedError
from edgec.frontends.asked import end_at, fix_onnx
from edgec.frontends.onnx_file import (
    DOMAINS,
    check,
    check_names,
    load,
    location,
    needed_nodes,
    operator,
    opset,
    reads,
    static_shape,
    subgraphs,
    type_name,
)
from edgec.frontends.onnx_functions import (
    Functions,
    body,
    bound,
    check_attributes,
    has_body,
    local_functions,
)
from edgec.frontends.onnx_loops import loop, scan
from edgec.frontends.onnx_quantized import expanded
from edgec.frontends.pt2 import SUFFIX as PT2
from edgec.frontends.pt2 import load as load_pt2
from edgec.ir import (
    Array,
    Builder,
    Graph,
    OnnxNode,
    OpDef,
    Quant,
    QuantRule,
    TensorType,
    Value,
    fold,
)
from edgec.ir.attributes import Attributes
from edgec.ir.opdef import by_name
from edgec.ir.reading import ComputedError
from edgec.ops.cast import ONNX_TYPES, Cast
from edgec.ops.linear_quantization import restored
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Reshape

_KNOWN_OPS_HINT = (
    "docs/supported-ops.md lists what edgec reads; "
    "replace the "
    "operator before exporting the model"
)
_LOOPS = {"Loop": loop, "Scan": scan}
_CONTROL_FLOW = ("If", *_LOOPS)
_CONTROL_FLOW_HINT = (
    "edgec compiles models without control flow: "
    "export it with "
    "fixed shapes, or fold it with onnxsim"
)
_DEEPEST = 32
"""Functions in functions: ONNX has no recursion."""

_WIDTHS = {TensorProto.FLOAT16: "float16", TensorProto.DOUBLE: "float64"}
"""Floats that are float32 inside, and as the file has them at the border."""


def read_onnx(
    path: Path,
    input_shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, Sequence[float]] = MappingProxyType({}),
    outputs: Sequence[str] = (),
) -> Graph:
    """Read the main graph; `input_shapes` freezes dynamic inputs by name, and a dynamic
    leading batch is frozen to 1.

    fixed: inputs that are constants, outputs: in place of the file's own, as in
    `read_model`. Raises InputError for a damaged file, a dynamic input or a wrong name,
    UnsupportedError for what edgec cannot read.
    """
    model = load_pt2(path) if path.suffix.lower() == PT2 else load(path)
    fix_onnx(model.graph, input_shapes, fixed)
    if outputs:
        end_at(model.graph, outputs)
    return graph_of(model, path, input_shapes)


def graph_of(
    model: ModelProto, path: Path, input_shapes: Mapping[str, tuple[int, ...]]
) -> Graph:
    """The same of a model in memory; `path` is what messages name."""
    check(model, path)
    graph = expanded(model.graph)
    functions = local_functions(model)
    _check_operators(graph, path, functions)
    return _OnnxReader(graph, path, opset(model.opset_import), functions).read(
        input_shapes
    )


def _check_operators(graph: GraphProto, path: Path, functions: Functions) -> None:
    """Name every operator that edgec does not know at once, before any work is done;
    constants may come of any.
    """
    unknown: dict[str, str] = {}
    constant = {t.name for t in graph.initializer} | {""}
    for number, node in needed_nodes(graph.node, [o.name for o in graph.output]):
        # its branch is looked at when it is read, and how often a loop goes too
        decided = node.op_type in _LOOPS or node.op_type == "If"
        if node.op_type in ("Shape", "Size") or (
            _is_plain(node) and constant.issuperset(node.input)
        ):
            constant.update(node.output)
        elif not decided and not _is_known(node, functions):
            unknown.setdefault(operator(node), location(number, node, path))
    if unknown:
        (name, at), *others = unknown.items()
        also = f" (nor {', '.join(n for n, _ in others)})" if others else ""
        hint = _CONTROL_FLOW_HINT if name in _CONTROL_FLOW else _KNOWN_OPS_HINT
        raise UnsupportedError(
            f"edgec does not know the ONNX operator {name}{also}", at, hint
        )


def _is_known(node: NodeProto, functions: Functions) -> bool:
    """Whether a node may be read, by its op or as others."""
    return (
        node.op_type == "Constant"
        or _definition(node) is not None
        or has_body(node, functions)
    )


def _definition(node: NodeProto) -> type[OpDef] | None:
    """The op that reads this node."""
    return by_name("onnx", node.op_type) if node.domain in DOMAINS else None


def _is_plain(node: NodeProto) -> bool:
    """A standard operator of its inputs alone: without subgraphs, and not one that
    makes noise out of nothing.
    """
    return (
        node.domain in DOMAINS
        and (node.input or node.op_type == "Constant")
        and not subgraphs(node)
    )


def _is_read(element_type: int) -> bool:
    """Whether a tensor at the border may have this type; 0 is none."""
    return element_type in (0, *ONNX_TYPES) and element_type != TensorProto.BFLOAT16


def _reason(e: Exception) -> str:
    if isinstance(e, KeyError):
        return f"has no {e}"
    return str(e) if isinstance(e, ValueError) else f"{type(e).__name__} {e}".strip()


def _evaluate(
    node: NodeProto, inputs: Sequence[Array | None], version: int
) -> list[Array]:
    """The results of a standard operator on constants, by ONNX's own reference."""
    from onnx.reference import ReferenceEvaluator

    feeds = {
        name: a for name, a in zip(node.input, inputs, strict=True) if a is not None
    }
    ends = (
        [onnx.ValueInfoProto(name=n) for n in names if n]
        for names in (feeds, node.output)
    )
    graph = onnx.helper.make_graph([node], "constant", *ends)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", version)]
    )
    return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]


@dataclass
class _OnnxReader:
    """One pass over the nodes, each after those whose results it reads.

    opset: of the nodes that are read now. values, omitted: of the names that they know.
    inside: the functions around them, for messages.
    """

    graph: GraphProto
    path: Path
    opset: int
    functions: Functions
    build: Builder = field(init=False)
    values: dict[str, Value] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)
    """Outputs that the op's reader does not give, and the node they belong to."""
    uint8: set[Value] = field(default_factory=set)
    """Quantized values that are int8 here and uint8 in the file."""
    needed: set[str] = field(default_factory=set)
    """Names that nodes or outputs read."""
    inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.build = Builder(self.path.stem)

    def read(self, input_shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """Constants and inputs, then nodes, then outputs."""
        if self.graph.sparse_initializer:
            raise UnsupportedError(
                "sparse initializers are not read",
                str(self.path),
                "export dense weights",
            )
        constants = {t.name: t for t in self.graph.initializer}
        inputs = [i for i in self.graph.input if i.name not in constants]
        check_names(input_shapes, [i.name for i in self.graph.input], self.path)
        for info in inputs:
            self._input(info, input_shapes.get(info.name))
        self._body(self.graph)
        result = self.build.graph
        for info in self.graph.output:
            result.outputs.append(self._output(info))
        result.drop_unused()
        return result

    # ---- the border
    # ----------------------------------------------------------------------------------
    def _input(self, info: onnx.ValueInfoProto, given: tuple[int, ...] | None) -> None:
        """Define an input; a float of another width is float32 from the first op on."""
        type_ = self._input_type(info, given)
        value = self.build.input(info.name, type_)
        if type_.dtype in _WIDTHS.values():
            self.build.source = info.name
            self.values[info.name] = self.build.add(
                Cast("float32"), [value], f"{info.name}_float32"
            )
        else:
            self._define(info.name, value)

    def _input_type(
        self, info: onnx.ValueInfoProto, given: tuple[int, ...] | None
    ) -> TensorType:
        """The static type of an input."""
        at = f"input {info.name}, {self.path}"
        if info.type.WhichOneof("value") != "tensor_type":
            raise UnsupportedError(
                f"input {info.name} is no tensor",
                at,
                "export a model whose inputs are tensors",
            )
        tensor = info.type.tensor_type
        if tensor.elem_type == 0 or not _is_read(tensor.elem_type):
            what = (
                f"input {info.name} has elements of type {type_name(tensor.elem_type)}"
            )
            raise UnsupportedError(what, at, "export the model as float32")
        dims = list(tensor.shape.dim) if tensor.HasField("shape") else None
        dtype = _WIDTHS.get(tensor.elem_type, ONNX_TYPES[tensor.elem_type])
        return TensorType(static_shape(info.name, dims, given, at), dtype)

    def _output(self, info: onnx.ValueInfoProto) -> Value:
        """The value that the graph returns under this name."""
        name, at = info.name, f"output {info.name}, {self.path}"
        value = self._value(name, at)
        self.build.source = name
        # of one that is known, too
        if info.type.WhichOneof("value") not in (None, "tensor_type"):
            raise UnsupportedError(
                f"output {name} is no tensor",
                at,
                "export a model whose outputs are tensors",
            )
        if not _is_read(info.type.tensor_type.elem_type):
            what = (
                f"output {name} has elements of type "
                f"{type_name(info.type.tensor_type.elem_type)}"
            )
            raise UnsupportedError(what, at, "export the model as float32")
        if value in self.uint8 and value.type.quant is not None:
            return self._as_uint8(name, value, value.type.quant)
        width = _WIDTHS.get(info.type.tensor_type.elem_type)
        if width is not None and value.type.dtype == "float32":
            if value.const is not None:
                return Value(
                    name, TensorType(value.type.shape, width), value.const.astype(width)
                )
            if value.name == name:
                value.name = self.build.name(f"{name}_float32")
            else:
                value.name = value.name
            copy = self.build.add(Cast(width), [value], name)
        elif value.name == name:
            return value
        elif value.const is not None:
            return Value(name, value.type, value.const)
        else:
            # the same value under a second name (an Identity that a reader saw
            # through): a copy with that name
            copy = self.build.add(Reshape(value.type.shape), [value], name)
        copy.name = name
        return copy

    def _as_uint8(self, name: str, value: Value, quant: Quant) -> Value:
        """A quantized output as the file has it."""
        if value.name == name:
            value.name = self.build.name(f"{name}_int8")
        self.build.source = name
        zeros = tuple(z + 128 for z in quant.zero_point)
        outer = Value(
            name, value.type.with_quant(replace(quant, zero_point=zeros), "uint8")
        )
        self.build.write(Quantize("uint8"), [value], [outer])
        return outer

    def _body(self, graph: GraphProto) -> None:
        """Initializers, then the nodes that its outputs need."""
        for tensor in graph.initializer:
            name = tensor.name
            self._define(
                name,
                self.build.const(
                    self._array(tensor, f"initializer {name}, {self.path}"), name
                ),
            )
        self._nodes(graph.node, [o.name for o in graph.output])

    def _nodes(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> None:
        """The nodes that these outputs need."""
        kept = needed_nodes(nodes, outputs)
        self.build.reserve(name for node in nodes for name in node.output)
        self.needed.update(outputs, *(reads(node) for _, node in kept))
        for number, node in kept:
            self._node(
                node,
                " in ".join(
                    [location(number, node, self.path), *reversed(self.inside)]
                ),
            )

    # ---- nodes
    # ----------------------------------------------------------------------------------
    def _node(self, node: NodeProto, at: str) -> None:
        mark = len(self.build.graph.ops)
        inputs = [self._value(name, at) if name else None for name in node.input]
        if self.inside:
            self.build.source = self.inside[0]
        else:
            self.build.source = node.name or next(iter(node.output), "")
        try:
            results: Sequence[Value]
            check_attributes(node, self.opset, self.functions)
            if node.op_type == "If":
                results = self._branch(node, inputs, at)
            elif node.op_type in _LOOPS:
                results = _LOOPS[node.op_type](
                    self.build, node, inputs, partial(self._trip, node)
                )
            else:
                results = self._results(node, inputs, at)
            ops = self.build.graph.ops
            ops[mark:] = [op for op in ops[mark:] if not fold(op)]
        except EdgecError:
            raise
        except Exception as e:  # a file that is not valid can fail in any op's reader
            if isinstance(e, ComputedError):
                e.inputs = self.build.graph.inputs_behind(e.values)
            hint = (
                "simplify the node before exporting; report it if onnxruntime runs "
                "this file"
            )
            if isinstance(e, ComputedError) and node.op_type in _CONTROL_FLOW:
                numbers = [
                    v.name
                    for v in self.build.graph.inputs
                    if v.name in e.inputs and v.type.size == 1
                ]
                if numbers:
                    hint = f"--fix {numbers[0]}=NUMBER if it is always the same"
                else:
                    hint = _CONTROL_FLOW_HINT
            raise UnsupportedError(f"{node.op_type}: {_reason(e)}", at, hint) from e
        for i, name in enumerate(node.output):
            if name and i < len(results):
                self._define(name, results[i])
            elif name:
                self.omitted[name] = f"output {i} of {node.op_type}"

    def _results(
        self, node: NodeProto, inputs: list[Value | None], at: str
    ) -> Sequence[Value]:
        """By the op that reads it; else, on constants, by ONNX's reference; else as the
        nodes that it is made of.
        """
        if node.op_type == "Constant":
            return [
                self.build.const(_constant(self._attributes(node, at)), node.output[0])
            ]
        definition = _definition(node)
        mark = len(self.build.graph.ops)
        constant = all(v is None or v.const is not None for v in inputs) and _is_plain(
            node
        )
        if constant and (definition is None or definition.of_constants):
            results = _evaluate(
                node, [v.const if v is not None else None for v in inputs], self.opset
            )
            return [self.build.const(_known_type(a), node.output[0]) for a in results]
        if definition is None:
            return self._made_of(node, inputs, self._function(node, inputs))
        try:
            found = self._by_its_op(definition, node, inputs, at)
        except Exception:
            function = self._function(node, inputs)
            if function is None:
                raise
            del self.build.graph.ops[mark:]
            # else what its own reader says is nearer to the matter
            with suppress(EdgecError):
                return self._made_of(node, inputs, function)
            raise
        if self.needed.intersection(node.output[len(found) :]):
            function = self._function(node, inputs)
        else:
            function = None
        if function is None:
            return found
        del self.build.graph.ops[mark:]
        return self._made_of(node, inputs, function)

    def _by_its_op(
        self,
        definition: type[OpDef],
        node: NodeProto,
        inputs: list[Value | None],
        at: str,
    ) -> Sequence[Value]:
        """By the op that reads it: on quantized integers where it only moves them, else
        on those of the file.
        """
        ops = self.build.graph.ops
        read = partial(self._read, definition, node, at=at)
        if definition in (Quantize, Dequantize) or not any(
            v and v.type.is_quantized for v in inputs
        ):
            return read(inputs)
        mark = len(ops)
        results = read(inputs)
        if all(op.spec.quant is QuantRule.SAME for op in ops[mark:]):
            if self.uint8.intersection(v for v in inputs if v is not None):
                self.uint8.update(v for v in results if v.type.is_quantized)
            return results
        # what computes on the integers themselves must have those of the file
        del ops[mark:]
        return read([v and restored(self.build, v, self.uint8) for v in inputs])

    def _read(
        self,
        definition: type[OpDef],
        node: NodeProto,
        inputs: list[Value | None],
        at: str,
    ) -> Sequence[Value]:
        attributes = Attributes(
            self._attributes(node, at), _defaults(node.op_type, self.opset)
        )
        count = max(
            (i + 1 for i, name in enumerate(node.output) if name in self.needed),
            default=1,
        )
        read = OnnxNode(
            node.op_type,
            node.output[0],
            attributes,
            inputs,
            count,
            self.opset,
            self.build,
            self.uint8,
        )
        given = definition.from_onnx(read)
        attributes.check()
        return [given] if isinstance(given, Value) else given

    def _function(
        self, node: NodeProto, inputs: Sequence[Value | None]
    ) -> FunctionProto | None:
        return body(
            node,
            self.functions,
            self.opset,
            [None if v is None else v.type for v in inputs],
        )

    def _made_of(
        self,
        node: NodeProto,
        inputs: Sequence[Value | None],
        function: FunctionProto | None,
    ) -> Sequence[Value]:
        """The results of the nodes of a function."""
        if function is None:
            raise ValueError(f"edgec does not know the ONNX operator {operator(node)}")
        if len(self.inside) >= _DEEPEST:
            raise ValueError("functions call each other without end")
        name = node.name or node.output[0]
        # a loop's body has none
        version = opset(function.opset_import, default=self.opset)
        with self._scope(f"{name} ({node.op_type})", version):
            prefix = self.build.name(f"{name}/")
            nodes = bound(function, node, prefix, self.opset)
            for formal, value in zip(function.input, inputs, strict=False):
                if value is not None:
                    self.values[prefix + formal] = value
            asked = zip(function.output, node.output, strict=False)
            wanted = [
                prefix + formal for formal, actual in asked if actual in self.needed
            ]
            if node.op_type in _LOOPS:
                wanted = [prefix + formal for formal in function.output]
            else:
                wanted = wanted
            self._nodes(nodes, wanted)
            return [
                self.values[prefix + n]
                if prefix + n in wanted
                else self._none(prefix + n)
                for n in function.output
            ]

    def _trip(
        self, node: NodeProto, function: FunctionProto, inputs: Sequence[Value]
    ) -> Sequence[Value]:
        """One trip of a loop."""
        call = NodeProto(op_type=node.op_type, name=node.name or node.output[0])
        call.input.extend(v.name for v in inputs)
        mark = len(self.build.graph.ops)
        results = self._made_of(call, inputs, function)
        ops = self.build.graph.ops
        ops[mark:] = [op for op in ops[mark:] if not fold(op)]
        return results

    def _none(self, name: str) -> Value:
        """What stands for an output that nothing reads."""
        return self.build.const(np.zeros(0, np.float32), name)

    @contextmanager
    def _scope(self, call: str, version: int) -> Iterator[None]:
        """Names, an operator set and a place in messages that end with a function."""
        outside = self.values, self.omitted, self.opset
        self.values, self.omitted, self.opset = (
            dict(self.values),
            dict(self.omitted),
            version,
        )
        self.inside.append(call)
        try:
            yield
        finally:
            self.values, self.omitted, self.opset = outside
            self.inside.pop()

    def _branch(
        self, node: NodeProto, inputs: Sequence[Value | None], at: str
    ) -> list[Value]:
        """The results of the branch that a constant condition takes; exporters leave
        such around shape arithmetic.
        """
        condition = inputs[0]
        if condition is None or condition.const is None:
            raise ComputedError(
                "edgec compiles models without control flow: the condition",
                *filter(None, [condition]),
            )
        graph = subgraphs(node)[
            "then_branch" if condition.const.item() else "else_branch"
        ]
        outside = dict(self.values)
        self._body(graph)
        results = [self._value(output.name, at) for output in graph.output]
        # the branch's names end with it, so that its results take those of the node
        self.values = outside
        return results

    def _define(self, name: str, value: Value) -> None:
        """Bind a name of the file; a value that edgec made takes it over."""
        if name in self.values or name in self.omitted:
            raise InputError(
                f"two nodes write {name}",
                str(self.path),
                "export the model again: the file is not valid",
            )
        if (
            self.values.get(value.name) is not value
            and value not in self.build.graph.inputs
        ):
            value.name = name
        self.values[name] = value

    def _value(self, name: str, at: str) -> Value:
        if name in self.omitted:
            raise UnsupportedError(
                f"{self.omitted[name]} ({name}) is read, which edgec does not compute",
                at,
            )
        if name not in self.values:
            hint = "the file is damaged or cut short: export it again"
            raise InputError(f"{name} is read before anything writes it", at, hint)
        return self.values[name]

    # ---- attributes and tensors
    # ----------------------------------------------------------------------------------
    def _attributes(self, node: NodeProto, at: str) -> dict[str, Any]:
        kinds = _kinds(node.op_type, self.opset)
        for a in node.attribute:
            if a.type != kinds.get(a.name, a.type):
                kind, wanted = (
                    AttributeProto.AttributeType.Name(t)
                    for t in (a.type, kinds[a.name])
                )
                raise ValueError(
                    f"the attribute {a.name} is of type {kind}, where ONNX has {wanted}"
                )
        return {a.name: self._attribute(a, at) for a in node.attribute}

    def _attribute(self, a: AttributeProto, at: str) -> Any:
        """An attribute as Python has it; a tensor as an array of the IR's types."""
        if a.type == AttributeProto.TENSOR:
            return self._array(a.t, at)
        if a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            raise ValueError(
                f"the subgraph {a.name} is control flow, "
                "and edgec compiles straight-line models"
            )
        return _plain(a)

    def _array(self, tensor: TensorProto, at: str) -> Array:
        """The elements of a tensor, cast to the IR's type."""
        if tensor.data_type not in ONNX_TYPES:
            what = (
                f"tensor {tensor.name} has elements of type "
                f"{type_name(tensor.data_type)}"
            )
            raise UnsupportedError(what, at, "export it as float32")
        try:
            return np.asarray(numpy_helper.to_array(tensor)).astype(
                ONNX_TYPES[tensor.data_type]
            )
        except (ValueError, TypeError) as e:
            raise InputError(
                f"tensor {tensor.name} is damaged: {e}",
                at,
                "copy or export the file again",
            ) from e


def _plain(a: AttributeProto) -> Any:
    """A number, a text or a list of them."""
    value = onnx.helper.get_attribute_value(a)
    if value is None:
        raise ValueError(f"the attribute {a.name} has no value")
    return value.decode() if isinstance(value, bytes) else value


def _schema(op_type: str, opset: int) -> Any:
    """Of an operator; None where this opset does not have it."""
    try:
        return onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


@cache
def _kinds(op_type: str, opset: int) -> Mapping[str, int]:
    """The types of the attributes."""
    schema = _schema(op_type, opset)
    if schema is None:
        return {}
    return {n: a.type.value for n, a in schema.attributes.items()}


@cache
def _defaults(op_type: str, opset: int) -> Mapping[str, Any]:
    """What ONNX's schema says of attributes that a node leaves out."""
    schema = _schema(op_type, opset)
    if schema is None:
        return {}
    return {
        n: _plain(a.default_value)
        for n, a in schema.attributes.items()
        if a.default_value.name
    }


def _known_type(array: Array) -> Array:
    """An array of one of the IR's types."""
    return array.astype(ONNX_TYPES[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)])


def _constant(attrs: Mapping[str, Any]) -> Array:
    """The array of a Constant node, which has one of several attributes."""
    for name, dtype in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
    ):
        if name in attrs:
            return np.array(attrs[name], dtype)
    if "value_ints" in attrs:
        return np.array(attrs["value_ints"], np.int64)
    value: Array = attrs["value"]
    return value
