"""Reads an .onnx file as a Graph.

Shapes become static here, and every constant expression is computed at once.

Shape arithmetic (Shape, Gather, Concat, … on int64) has only constant inputs once the
model's inputs are frozen. It folds away node by node through the ops' own `ref`, so
that ops with a shape or axis as operand find a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.errors import EdgecError, InputError, UnsupportedError
from edgec.frontends.input_requests import end_at, fix_onnx
from edgec.frontends.onnx_attributes import (
    constant_array,
    default_values,
    evaluate,
    four_bit,
    in_known_type,
    read_array,
    read_attributes,
    read_sparse_array,
)
from edgec.frontends.onnx_file import (
    check,
    check_names,
    load,
    location,
    needed_nodes,
    operator,
    opset,
    reads,
    reason,
    stated_sides,
    subgraphs,
)
from edgec.frontends.onnx_functions import (
    Functions,
    body,
    bound,
    check_attributes,
    local_functions,
)
from edgec.frontends.onnx_interface import WIDTHS, check_output_type, input_type
from edgec.frontends.onnx_operators import (
    CONTROL_FLOW,
    CONTROL_FLOW_HINT,
    LOOPS,
    check_operators,
    definition_of,
    is_plain,
)
from edgec.frontends.onnx_quantized import expanded
from edgec.frontends.pt2 import SUFFIX as PT2
from edgec.frontends.pt2 import load as load_pt2
from edgec.ir import (
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
from edgec.ir.reading import ComputedError
from edgec.ops.cast import Cast
from edgec.ops.linear_quantization import restored
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Reshape

MAX_NESTED_CALLS = 32
"""The depth of functions in functions: ONNX has no recursion."""

_Inputs = Sequence[Value | None]
"""The inputs of a node, None for absent ones."""


def read_onnx(
    path: Path,
    input_shapes: Mapping[str, tuple[int, ...]],
    fixed: Mapping[str, Sequence[float]] = MappingProxyType({}),
    outputs: Sequence[str] = (),
) -> Graph:
    """Return the main graph of a file.

    input_shapes: freezes dynamic inputs by name; a dynamic leading batch is frozen to 1
    otherwise. fixed: inputs that become constants, outputs: in place of the file's own,
    as in `read_model`. Raises InputError for a damaged file, a dynamic input or a wrong
    name, UnsupportedError for features that edgec cannot read.
    """
    model = load_pt2(path) if path.suffix.lower() == PT2 else load(path)
    # Before the check: a fixed input may make an unknown operator unnecessary.
    fix_onnx(model.graph, input_shapes, fixed)
    if outputs:
        end_at(model.graph, outputs)
    return graph_of(model, path, input_shapes)


def graph_of(
    model: ModelProto, path: Path, input_shapes: Mapping[str, tuple[int, ...]]
) -> Graph:
    """Return the main graph of a model in memory; `path` is for messages."""
    check(model, path)
    # First, so that quantized operators count as the float ones they stand for.
    graph = expanded(model.graph)
    functions = local_functions(model)
    check_operators(graph, path, functions)
    sides = stated_sides(model)
    reader = _OnnxReader(graph, path, opset(model.opset_import), functions, sides)
    return reader.read(input_shapes)


@dataclass
class _OnnxReader:
    """One pass over the nodes, each after the nodes whose results it reads.

    Attributes:
        graph, path: the main graph and its file.
        opset: of the nodes that are read now.
        functions: the functions of the model.
        sides: the likely height and width of pictures.
        build: the graph under construction.
        values: the values by the names that the present nodes know.
        omitted: outputs that the op's reader does not compute, with a description.
        uint8: quantized values that are int8 here and uint8 in the file.
        four_bit: constants and inputs of 8 bits here and four in the file.
        needed: the names that nodes or outputs read.
        inside: the function calls around the present nodes, for messages.
    """

    graph: GraphProto
    path: Path
    opset: int
    functions: Functions
    sides: tuple[int, int]
    build: Builder = field(init=False)
    values: dict[str, Value] = field(default_factory=dict)
    omitted: dict[str, str] = field(default_factory=dict)
    uint8: set[Value] = field(default_factory=set)
    four_bit: set[Value] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.build = Builder(self.path.stem)

    def read(self, input_shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """Return the graph: inputs and constants, then nodes, then outputs."""
        check_names(input_shapes, [i.name for i in self.graph.input], self.path)

        # Old files list initializers among the inputs.
        initializers = {t.name for t in self.graph.initializer}
        for info in self.graph.input:
            if info.name not in initializers:
                self._input(info, input_shapes.get(info.name))
        self._body(self.graph)

        result = self.build.graph
        # An output may be an input as it came, and may be listed again.
        outputs = {v.name: v for v in result.inputs}
        for info in self.graph.output:
            if info.name not in outputs:
                outputs[info.name] = self._output(info)
            result.outputs.append(outputs[info.name])
        result.drop_unused()
        return result

    # ---- the interface
    # ----------------------------------------------------------------------------------
    def _input(self, info: onnx.ValueInfoProto, shape: tuple[int, ...] | None) -> None:
        """Define an input.

        A float of another width is cast to float32. shape: a shape for it.
        """
        name = info.name
        type_ = input_type(info, shape, f"input {name}, {self.path}", self.sides)
        # The caller gives the width of the file.
        value = self.build.input(name, type_)
        self.four_bit |= four_bit(value, info.type.tensor_type.elem_type)
        if type_.dtype not in WIDTHS.values():
            self._define(name, value)
            return
        self.build.source = name
        self.values[name] = self.build.add(Cast("float32"), [value], f"{name}_float32")

    def _output(self, info: onnx.ValueInfoProto) -> Value:
        """Return the value of an output, under its name and in its declared type."""
        name = info.name
        at = f"output {name}, {self.path}"
        value = self._value(name, at)
        self.build.source = name
        check_output_type(info, at)
        # Whether it was uint8 is known only here: inside, all are int8.
        if value in self.uint8 and value.type.quant is not None:
            return self._as_uint8(name, value, value.type.quant)

        width = WIDTHS.get(info.type.tensor_type.elem_type)
        if width is not None and value.type.dtype == "float32":
            return self._in_width(name, value, width)
        if value.name == name:
            return value
        if value.const is not None:
            return Value(name, value.type, value.const)
        # The same value under a second name (an Identity that a reader saw through).
        copy = self.build.add(Reshape(value.type.shape), [value], name)
        copy.name = name
        return copy

    def _in_width(self, name: str, value: Value, width: str) -> Value:
        """Return a float output in the file's width, under its name."""
        if value.const is not None:
            type_ = TensorType(value.type.shape, width)
            return Value(name, type_, value.const.astype(width))
        if value.name == name:
            value.name = self.build.name(f"{name}_float32")
        copy = self.build.add(Cast(width), [value], name)
        copy.name = name
        return copy

    def _as_uint8(self, name: str, value: Value, quant: Quant) -> Value:
        """Return a quantized output as the uint8 of the file."""
        if value.name == name:
            value.name = self.build.name(f"{name}_int8")
        self.build.source = name
        # The int8 of a uint8 is 128 less.
        zero_points = tuple(z + 128 for z in quant.zero_point)
        outer_quant = replace(quant, zero_point=zero_points)
        outer = Value(name, value.type.with_quant(outer_quant, "uint8"))
        self.build.write(Quantize("uint8"), [value], [outer])
        return outer

    def _body(self, graph: GraphProto) -> None:
        """Read the initializers, then the nodes that the graph's outputs need."""
        for tensor in graph.initializer:
            name = tensor.name
            array = read_array(tensor, f"initializer {name}, {self.path}")
            self._define(name, self.build.const(array, name))
            self.four_bit |= four_bit(self.values[name], tensor.data_type)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            array = read_sparse_array(sparse, f"initializer {name}, {self.path}")
            self._define(name, self.build.const(array, name))
        self._nodes(graph.node, [o.name for o in graph.output])

    def _nodes(self, nodes: Sequence[NodeProto], outputs: Sequence[str]) -> None:
        """Read the nodes that these outputs need."""
        # Nodes that nothing needs may be beyond edgec.
        numbered = needed_nodes(nodes, outputs)
        self.build.reserve(name for node in nodes for name in node.output)
        self.needed.update(outputs)
        for _, node in numbered:
            self.needed.update(reads(node))
        calls = list(reversed(self.inside))
        for number, node in numbered:
            place = location(number, node, self.path)
            self._node(node, " in ".join([place, *calls]))

    # ---- nodes
    # ----------------------------------------------------------------------------------
    def _node(self, node: NodeProto, at: str) -> None:
        """Read one node, and define its outputs. at: its place, for messages."""
        mark = len(self.build.graph.ops)
        inputs = [self._value(name, at) if name else None for name in node.input]
        if self.inside:
            # Ops of a function count as ops of the node that calls it.
            self.build.source = self.inside[0]
        else:
            self.build.source = node.name or next(iter(node.output), "")
        try:
            results = self._dispatched(node, inputs, at)
            self._fold_from(mark)
        except EdgecError:
            raise
        # A file that is not valid can fail in any op's reader.
        except Exception as e:
            raise self._unsupported(e, node, at) from e

        for i, name in enumerate(node.output):
            if name and i < len(results):
                self._define(name, results[i])
            # Only a read of the output is an error.
            elif name:
                self.omitted[name] = f"output {i} of {node.op_type}"

    def _dispatched(
        self, node: NodeProto, inputs: list[Value | None], at: str
    ) -> Sequence[Value]:
        """Return the results of control flow or of any other node."""
        check_attributes(node, self.opset, self.functions)
        if node.op_type == "If":
            return self._branch(node, inputs, at)
        if node.op_type in LOOPS:
            call = partial(self._trip, node)
            return LOOPS[node.op_type](self.build, node, inputs, call)
        return self._results(node, inputs, at)

    def _fold_from(self, mark: int) -> None:
        """Fold the ops of constant inputs from number `mark` on."""
        ops = self.build.graph.ops
        ops[mark:] = [op for op in ops[mark:] if not fold(op)]

    def _unsupported(self, e: Exception, node: NodeProto, at: str) -> UnsupportedError:
        """Return the error to raise for a failure of an op's reader."""
        hint = (
            "simplify the node before exporting; report it if onnxruntime runs "
            "this file"
        )
        if isinstance(e, ComputedError):
            # The message names the inputs that the values depend on.
            e.inputs = self.build.graph.inputs_behind(e.values)
            if node.op_type in CONTROL_FLOW:
                hint = self._control_flow_hint(e)
        return UnsupportedError(f"{node.op_type}: {reason(e)}", at, hint)

    def _control_flow_hint(self, e: ComputedError) -> str:
        """Return advice on control flow that depends on inputs.

        A single number among these may be always the same.
        """
        for v in self.build.graph.inputs:
            if v.name in e.inputs and v.type.size == 1:
                return f"--fix {v.name}=NUMBER if it is always the same"
        return CONTROL_FLOW_HINT

    def _results(
        self, node: NodeProto, inputs: list[Value | None], at: str
    ) -> Sequence[Value]:
        """Return the results of a node without control flow.

        The op that reads it gives them; else, on constants, ONNX's reference; else the
        nodes that it is composed of.
        """
        if node.op_type == "Constant":
            attributes = read_attributes(node, self.opset, at)
            value = self.build.const(constant_array(attributes), node.output[0])
            codes = (a.t.data_type for a in node.attribute)
            self.four_bit |= four_bit(value, *codes)
            return [value]
        definition = definition_of(node)
        # Shape arithmetic is evaluated even if no op reads its operators.
        constant = all(v is None or v.const is not None for v in inputs)
        by_reference = definition is None or definition.of_constants
        if constant and by_reference and is_plain(node):
            return self._evaluated(node, inputs)
        if definition is None:
            return self._composed(node, inputs, self._function(node, inputs))
        return self._by_op_or_body(definition, node, inputs, at)

    def _evaluated(self, node: NodeProto, inputs: _Inputs) -> Sequence[Value]:
        """Return the results of a node on constants, by ONNX's reference."""
        arrays = [v.const if v is not None else None for v in inputs]
        results: list[Value] = []
        for array in evaluate(node, arrays, self.opset):
            results.append(self.build.const(in_known_type(array), node.output[0]))
        return results

    def _by_op_or_body(
        self,
        definition: type[OpDef],
        node: NodeProto,
        inputs: list[Value | None],
        at: str,
    ) -> Sequence[Value]:
        """Return the results by the op that reads a node.

        If the op fails, or does not compute an output that is needed, the results come
        from the nodes that it is composed of.
        """
        ops = self.build.graph.ops
        mark = len(ops)
        try:
            results = self._by_its_op(definition, node, inputs, at)
        except Exception:
            function = self._function(node, inputs)
            if function is None:
                raise
            del ops[mark:]
            # If both fail, the error of the op's own reader is the more helpful one.
            with suppress(EdgecError):
                return self._composed(node, inputs, function)
            raise

        if self.needed.isdisjoint(node.output[len(results) :]):
            return results
        function = self._function(node, inputs)
        if function is None:
            return results
        del ops[mark:]
        return self._composed(node, inputs, function)

    def _by_its_op(
        self,
        definition: type[OpDef],
        node: NodeProto,
        inputs: list[Value | None],
        at: str,
    ) -> Sequence[Value]:
        """Return the results by the op that reads a node.

        The op works on quantized integers if it only moves them.
        """
        read = partial(self._read, definition, node, at=at)
        quantized = any(v is not None and v.type.is_quantized for v in inputs)
        if definition in (Quantize, Dequantize) or not quantized:
            return read(inputs)

        ops = self.build.graph.ops
        mark = len(ops)
        results = read(inputs)
        if all(op.spec.quant is QuantRule.SAME for op in ops[mark:]):
            if any(v in self.uint8 for v in inputs if v is not None):
                self.uint8.update(v for v in results if v.type.is_quantized)
            return results
        # An op that computes on the integers themselves must have those of the file.
        del ops[mark:]
        return read([v and restored(self.build, v, self.uint8) for v in inputs])

    def _read(
        self,
        definition: type[OpDef],
        node: NodeProto,
        inputs: list[Value | None],
        at: str,
    ) -> Sequence[Value]:
        """Return the results that an op's reader gives for a node."""
        attributes = Attributes(
            read_attributes(node, self.opset, at),
            default_values(node.op_type, self.opset),
        )
        # The number of outputs up to the last needed one.
        count = 1
        for i, name in enumerate(node.output):
            if name in self.needed:
                count = max(count, i + 1)
        request = OnnxNode(
            node.op_type,
            node.output[0],
            attributes,
            inputs,
            count,
            self.opset,
            self.build,
            self.uint8,
            self.four_bit,
        )
        results = definition.from_onnx(request)
        # An attribute that the reader has not asked for may change the result.
        attributes.check()
        return [results] if isinstance(results, Value) else results

    def _function(self, node: NodeProto, inputs: _Inputs) -> FunctionProto | None:
        """Return the function that a node stands for, None if it has none."""
        types = [None if v is None else v.type for v in inputs]
        return body(node, self.functions, self.opset, types, self.path)

    def _composed(
        self,
        node: NodeProto,
        inputs: _Inputs,
        function: FunctionProto | None,
    ) -> Sequence[Value]:
        """Return the results of the nodes of a function for one call.

        Raises ValueError without a function.
        """
        if function is None:
            raise ValueError(f"edgec does not know the ONNX operator {operator(node)}")
        if len(self.inside) >= MAX_NESTED_CALLS:
            raise ValueError("functions call each other without end")
        name = node.name or node.output[0]
        # The body of a loop has no operator set of its own.
        version = opset(function.opset_import, default=self.opset)
        with self._scope(f"{name} ({node.op_type})", version):
            # The prefix keeps the names of several calls apart.
            prefix = self.build.name(f"{name}/")
            nodes = bound(function, node, prefix, self.opset)
            for formal, value in zip(function.input, inputs, strict=False):
                if value is not None:
                    self.values[prefix + formal] = value

            outputs = self._needed_outputs(node, function)
            self._nodes(nodes, [prefix + formal for formal in outputs])
            results: list[Value] = []
            for formal in function.output:
                if formal in outputs:
                    results.append(self.values[prefix + formal])
                else:
                    results.append(self._placeholder(prefix + formal))
            return results

    def _needed_outputs(self, node: NodeProto, function: FunctionProto) -> list[str]:
        """Return the outputs of a function that a call needs, by their formal names.

        The next trip of a loop needs all of them.
        """
        if node.op_type in LOOPS:
            return list(function.output)
        pairs = zip(function.output, node.output, strict=False)
        return [formal for formal, actual in pairs if actual in self.needed]

    def _trip(
        self, node: NodeProto, function: FunctionProto, inputs: Sequence[Value]
    ) -> Sequence[Value]:
        """Return the results of one trip of a loop."""
        call = NodeProto(op_type=node.op_type, name=node.name or node.output[0])
        # A trip is a call of the body, under the name of the loop.
        call.input.extend(v.name for v in inputs)
        mark = len(self.build.graph.ops)
        results = self._composed(call, inputs, function)
        self._fold_from(mark)
        return results

    def _placeholder(self, name: str) -> Value:
        """Return a value in place of an output that nothing reads."""
        return self.build.const(np.zeros(0, np.float32), name)

    @contextmanager
    def _scope(self, call: str, version: int) -> Iterator[None]:
        """Provide names, an operator set and a place for the nodes of a function.

        They end with the block.
        """
        values = self.values
        omitted = self.omitted
        outer_opset = self.opset
        self.values = dict(values)
        self.omitted = dict(omitted)
        self.opset = version
        self.inside.append(call)
        try:
            yield
        finally:
            self.values = values
            self.omitted = omitted
            self.opset = outer_opset
            self.inside.pop()

    def _branch(self, node: NodeProto, inputs: _Inputs, at: str) -> list[Value]:
        """Return the results of the branch that a constant condition takes.

        Exporters leave such conditions around shape arithmetic.
        """
        condition = inputs[0]
        if condition is None or condition.const is None:
            message = "edgec compiles models without control flow: the condition"
            values = [] if condition is None else [condition]
            raise ComputedError(message, *values)
        branch = "then_branch" if condition.const.item() else "else_branch"
        graph = subgraphs(node)[branch]

        outside = dict(self.values)
        self._body(graph)
        results = [self._value(output.name, at) for output in graph.output]
        # The branch's names end with it, so that its results take the node's names.
        self.values = outside
        return results

    # ---- names
    # ----------------------------------------------------------------------------------
    def _define(self, name: str, value: Value) -> None:
        """Bind a name of the file; a value that edgec made takes it over."""
        if name in self.values or name in self.omitted:
            hint = "export the model again: the file is not valid"
            raise InputError(f"two nodes write {name}", str(self.path), hint)
        # A value that has a name of the file keeps it.
        named = self.values.get(value.name) is value
        if not named and value not in self.build.graph.inputs:
            value.name = name
        self.values[name] = value

    def _value(self, name: str, at: str) -> Value:
        """Return the value of a name.

        Raises UnsupportedError for one that edgec does not compute, InputError for an
        unknown one.
        """
        if name in self.omitted:
            message = f"{self.omitted[name]} ({name}) is read; edgec cannot compute it"
            hint = "export a model in which nothing reads that output"
            raise UnsupportedError(message, at, hint)
        if name not in self.values:
            hint = "the file is damaged or cut short: export it again"
            raise InputError(f"{name} is read before anything writes it", at, hint)
        return self.values[name]
