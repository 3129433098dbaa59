"""Operators that are composed of others.

These are functions of a model, operators that ONNX defines by a function, and operators
outside of the standard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorShapeProto,
    TypeProto,
    defs,
)
from onnx.helper import get_attribute_value, np_dtype_to_tensor_dtype

from edgec.errors import InputError
from edgec.frontends.onnx_contrib import contributed, is_contributed
from edgec.frontends.onnx_file import DOMAINS
from edgec.frontends.onnx_file import opset as opset_of
from edgec.ir import TensorType
from edgec.ir.attributes import unread

_WITHOUT_READER = ("Constant", "If", "Loop", "Scan")
"""Operators whose attributes are not checked by the reader of an op."""

NEWEST_VERSION = 1000
"""A version above all of the operator sets: the schema is then the newest one."""

Functions = Mapping[tuple[str, str], FunctionProto]
"""The functions that a model contains, by domain and name."""


def local_functions(model: ModelProto) -> Functions:
    """Return the functions of a model file."""
    return {(f.domain, f.name): f for f in model.functions}


def has_body(node: NodeProto, functions: Functions) -> bool:
    """Return whether a node's operator may be composed of others."""
    if (node.domain, node.op_type) in functions:
        return True
    if is_contributed(node):
        return True
    return any(
        schema.has_function or schema.has_context_dependent_function
        for schema in _schemas(node)
    )


def body(
    node: NodeProto,
    functions: Functions,
    opset: int,
    types: Sequence[TensorType | None],
    path: Path,
) -> FunctionProto | None:
    """Return the function that a node stands for, None if it has none.

    types: of its inputs, None for absent ones. path: of the file, for messages. Raises
    InputError for a function that contradicts the operator set of its caller.
    """
    if (node.domain, node.op_type) in functions:
        function = functions[node.domain, node.op_type]
        _check_operator_set(function, opset, path)
        return function
    if is_contributed(node):
        return contributed(node, types)

    schema = _schema_of(node, opset)
    if schema is None:
        return None
    # The body would ignore an attribute that the schema does not have.
    if any(a.name not in schema.attributes for a in node.attribute):
        return None
    text = b""
    if schema.has_context_dependent_function:
        text = _context_dependent(schema, node, opset, types)
    if not text and schema.has_function:
        text = _fixed_body(schema, opset)
    return FunctionProto.FromString(text) if text else None


def _check_operator_set(function: FunctionProto, opset: int, path: Path) -> None:
    """Raise InputError if a function of a model has an operator set of its own.

    ONNX allows another version than that of the caller, `opset`, as long as it has the
    same operators.
    """
    function_opset = opset_of(function.opset_import, default=opset)
    if function_opset == opset:
        return
    for node in _nested(function.node):
        schemas = [_schema_of(node, version) for version in (function_opset, opset)]
        if node.domain in DOMAINS and not _is_same_operator(node, *schemas):
            message = (
                f"the function {function.name} is of operator set {function_opset} and its caller "
                f"of {opset}, which have different operators {node.op_type}"
            )
            hint = "export the model with one operator set"
            raise InputError(message, f"function {function.name}, {path}", hint)


def _is_same_operator(
    node: NodeProto, a: defs.OpSchema | None, b: defs.OpSchema | None
) -> bool:
    """Return whether two versions of a node's operator compute the same.

    Then its inputs and attributes mean the same; types may differ.
    """
    if a is None or b is None:
        return a is b
    if a.since_version == b.since_version:
        return True
    if any(g.name not in s.attributes for g in node.attribute for s in (a, b)):
        return False
    for name in {*a.attributes} & {*b.attributes}:
        default_a = a.attributes[name].default_value
        default_b = b.attributes[name].default_value
        if default_a.SerializeToString() != default_b.SerializeToString():
            return False

    # What the inputs in use are called.
    count = len(node.input)
    names = [[given.name for given in s.inputs[:count]] for s in (a, b)]
    return names[0] == names[1]


def _schema_of(node: NodeProto, opset: int) -> defs.OpSchema | None:
    """Return the schema of a node's operator, None if this opset does not have it.

    Of other domains than the default one it is the newest.
    """
    version = opset if node.domain in DOMAINS else NEWEST_VERSION
    try:
        return defs.get_schema(node.op_type, version, _domain(node))
    except defs.SchemaError:
        return None


def _fixed_body(schema: defs.OpSchema, opset: int) -> bytes:
    """Return the serialized function of a schema, the newest up to this opset.

    If all are newer, a later function of the same version of the operator will do.
    """
    versions = schema.function_opset_versions
    usable = [v for v in versions if v <= opset] or versions[:1]
    function = schema.get_function_with_opset_version(max(usable))
    if isinstance(function, FunctionProto):
        return bytes(function.SerializeToString())
    return bytes(function)


def _context_dependent(
    schema: defs.OpSchema,
    node: NodeProto,
    opset: int,
    types: Sequence[TensorType | None],
) -> bytes:
    """Return the serialized function that a schema builds for a node.

    Not every form of a node has one; the result is then empty.
    """
    versions = schema.context_dependent_function_opset_versions
    if node.domain in DOMAINS:
        versions = [v for v in versions if v <= opset]
    if not versions:
        return b""
    latest = max(versions)
    text = node.SerializeToString()
    input_types = [_type_proto(t).SerializeToString() for t in types]
    return bytes(
        schema.get_context_dependent_function_with_opset_version(
            latest, text, input_types
        )
    )


def _type_proto(type_: TensorType | None) -> TypeProto:
    """Return the ONNX form of a type, an empty one for an absent input."""
    proto = TypeProto()
    if type_ is not None:
        tensor = proto.tensor_type
        tensor.elem_type = np_dtype_to_tensor_dtype(type_.np_dtype)
        for size in type_.shape:
            tensor.shape.dim.append(TensorShapeProto.Dimension(dim_value=size))
    return proto


def _domain(node: NodeProto) -> str:
    return "" if node.domain in DOMAINS else node.domain


def _schemas(node: NodeProto) -> list[defs.OpSchema]:
    """Return the schemas of a node's operator, of all versions."""
    domain = _domain(node)
    # A later version may have a function where the present one has none.
    schemas = _every_schema().get(node.op_type, ())
    return [schema for schema in schemas if schema.domain == domain]


@cache
def _every_schema() -> dict[str, list[defs.OpSchema]]:
    """Return all schemas of all versions, by the operator's name."""
    by_name: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        by_name.setdefault(schema.name, []).append(schema)
    return by_name


def defaults(node: NodeProto, opset: int) -> dict[str, AttributeProto]:
    """Return the default attributes of a node's operator.

    They hold where a node leaves them out.
    """
    schema = _schema_of(node, opset)
    if schema is None:
        return {}
    result: dict[str, AttributeProto] = {}
    for name, attribute in schema.attributes.items():
        # Without a name, there is no default.
        if attribute.default_value.name:
            result[name] = attribute.default_value
    return result


def check_attributes(node: NodeProto, opset: int, functions: Functions) -> None:
    """Raise ValueError for an attribute that a node repeats or must not have.

    The second is checked only if no op's reader would do so: for functions of the
    model, constants and control flow.
    """
    names = [a.name for a in node.attribute]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the attribute {name} is given twice")

    function = functions.get((node.domain, node.op_type))
    if function is not None:
        attributes = {*function.attribute, *(a.name for a in function.attribute_proto)}
    elif node.op_type in _WITHOUT_READER and node.domain in DOMAINS:
        attributes = {*defs.get_schema(node.op_type, opset).attributes}
    else:
        return
    for a in node.attribute:
        if a.name not in attributes:
            raise unread(a.name, get_attribute_value(a))


def bound(
    function: FunctionProto, node: NodeProto, prefix: str, opset: int
) -> list[NodeProto]:
    """Return the nodes of a function for one call.

    Attributes are filled in, names have a prefix, and absent inputs are left out.
    """
    attributes = defaults(node, opset)
    attributes |= {a.name: a for a in function.attribute_proto}
    # The call's own attributes overrule the defaults.
    attributes |= {a.name: a for a in node.attribute}

    names = {*function.input}
    for inner in _nested(function.node):
        names.update(inner.output)
    rename = {name: prefix + name for name in names}
    # An input is absent if the call has no name for it, or fewer inputs.
    present = zip(function.input, node.input, strict=False)
    passed = {formal for formal, actual in present if actual}
    for formal in function.input:
        if formal not in passed:
            rename[formal] = ""
    rename[""] = ""
    return [_bound(inner, attributes, rename) for inner in function.node]


def _nested(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Return the nodes, and the nodes of the graphs in them.

    Those are the branches of If and the bodies of loops.
    """
    result: list[NodeProto] = []
    for node in nodes:
        # Names inside of subgraphs are names of the function too.
        result.append(node)
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                result += _nested(a.g.node)
    return result


def _bound(
    node: NodeProto, attributes: Mapping[str, AttributeProto], rename: Mapping[str, str]
) -> NodeProto:
    """Return a node of a function with renamed values and filled in attributes.

    attributes: of the call, by name.
    """
    twin = NodeProto(
        op_type=node.op_type, domain=node.domain, name=node.name, overload=node.overload
    )
    twin.input.extend(rename.get(name, name) for name in node.input)
    twin.output.extend(rename.get(name, name) for name in node.output)
    for a in node.attribute:
        # A reference to an attribute of the call; an absent one stays absent.
        source = attributes.get(a.ref_attr_name) if a.ref_attr_name else a
        if source is None:
            continue
        copy = twin.attribute.add()
        copy.CopyFrom(source)
        # A reference has a name of its own.
        copy.name = a.name
        if not a.ref_attr_name and a.type == AttributeProto.GRAPH:
            copy.g.CopyFrom(_bound_graph(a.g, attributes, rename))
    return twin


def _bound_graph(
    graph: GraphProto,
    attributes: Mapping[str, AttributeProto],
    rename: Mapping[str, str],
) -> GraphProto:
    """Return a graph inside of a function with renamed values.

    attributes: of the call, by name.
    """
    twin = GraphProto()
    twin.CopyFrom(graph)
    del twin.node[:]
    for node in graph.node:
        twin.node.append(_bound(node, attributes, rename))
    for named in (*twin.input, *twin.output, *twin.initializer):
        named.name = rename.get(named.name, named.name)
    return twin
