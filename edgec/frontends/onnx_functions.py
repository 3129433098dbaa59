"""Operators that are made of others: functions of a model, those by which ONNX defines
an operator, and those that are not in the standard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

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

from edgec.frontends.onnx_contrib import contributed, is_contributed
from edgec.frontends.onnx_file import DOMAINS
from edgec.ir import TensorType
from edgec.ir.attributes import unread

_WITHOUT_READER = ("Constant", "If", "Loop", "Scan")

Functions = Mapping[tuple[str, str], FunctionProto]
"""The functions that a model brings, by domain and name."""


def local_functions(model: ModelProto) -> Functions:
    """The functions of a model file."""
    return {(f.domain, f.name): f for f in model.functions}


def has_body(node: NodeProto, functions: Functions) -> bool:
    """Whether a node's operator may be made of others."""
    if (node.domain, node.op_type) in functions:
        return True
    return is_contributed(node) or any(
        s.has_function or s.has_context_dependent_function for s in _schemas(node)
    )


def body(
    node: NodeProto,
    functions: Functions,
    opset: int,
    types: Sequence[TensorType | None],
) -> FunctionProto | None:
    """The function that a node stands for, None where it has none. types: of its
    inputs, None for absent ones.
    """
    if (node.domain, node.op_type) in functions:
        return functions[node.domain, node.op_type]
    if is_contributed(node):
        return contributed(node, [t.shape if t else () for t in types])
    try:  # of another domain the newest
        schema = defs.get_schema(
            node.op_type, opset if node.domain in DOMAINS else 1000, _domain(node)
        )
    except defs.SchemaError:  # an operator that this opset does not have
        return None
    if any(a.name not in schema.attributes for a in node.attribute):
        return None  # the body would ignore it
    if schema.has_context_dependent_function:
        text = _of_context(schema, node, opset, types)
    else:
        text = b""
    # a later body of the same version of the operator will do
    if not text and schema.has_function:
        versions = schema.function_opset_versions
        found = schema.get_function_with_opset_version(
            max([v for v in versions if v <= opset] or versions[:1])
        )
        text = found.SerializeToString() if isinstance(found, FunctionProto) else found
    return FunctionProto.FromString(text) if text else None


def _of_context(
    schema: defs.OpSchema,
    node: NodeProto,
    opset: int,
    types: Sequence[TensorType | None],
) -> bytes:
    """The body that a schema builds for a node; not every form of a node has one."""
    given = []
    for t in types:
        made = TypeProto()
        if t is not None:
            made.tensor_type.elem_type = np_dtype_to_tensor_dtype(t.np_dtype)
            made.tensor_type.shape.dim.extend(
                TensorShapeProto.Dimension(dim_value=d) for d in t.shape
            )
        given.append(made.SerializeToString())
    versions = schema.context_dependent_function_opset_versions
    if node.domain in DOMAINS:
        versions = [v for v in versions if v <= opset]
    if not versions:
        return b""
    latest = max(versions)
    text = node.SerializeToString()
    return bytes(
        schema.get_context_dependent_function_with_opset_version(latest, text, given)
    )


def _domain(node: NodeProto) -> str:
    return "" if node.domain in DOMAINS else node.domain


def _schemas(node: NodeProto) -> list[defs.OpSchema]:
    return [
        s for s in _every_schema().get(node.op_type, ()) if s.domain == _domain(node)
    ]


@cache
def _every_schema() -> dict[str, list[defs.OpSchema]]:
    found: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault(schema.name, []).append(schema)
    return found


def defaults(node: NodeProto, opset: int) -> dict[str, AttributeProto]:
    """The attributes that a standard operator has where a node leaves them out."""
    try:
        schema = defs.get_schema(
            node.op_type, opset if node.domain in DOMAINS else 1000, _domain(node)
        )
    except defs.SchemaError:
        return {}
    return {
        n: a.default_value for n, a in schema.attributes.items() if a.default_value.name
    }


def check_attributes(node: NodeProto, opset: int, functions: Functions) -> None:
    """Raise ValueError for an attribute that a node is not to have, where no op's
    reader would see that: of a function of the model, of constants and control flow.
    Also where it has one twice.
    """
    names = [a.name for a in node.attribute]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"the attribute {twice} is given twice")
    function = functions.get((node.domain, node.op_type))
    if function is not None:
        known = {*function.attribute, *(a.name for a in function.attribute_proto)}
    elif node.op_type in _WITHOUT_READER and node.domain in DOMAINS:
        known = {*defs.get_schema(node.op_type, opset).attributes}
    else:
        return
    if unknown := next((a for a in node.attribute if a.name not in known), None):
        raise unread(unknown.name, get_attribute_value(unknown))


def bound(
    function: FunctionProto, node: NodeProto, prefix: str, opset: int
) -> list[NodeProto]:
    """The nodes of a function for one call: attributes filled in, names with a prefix,
    absent inputs left out.
    """
    given = (
        defaults(node, opset)
        | {a.name: a for a in function.attribute_proto}
        | {a.name: a for a in node.attribute}
    )
    present = [
        name for name, actual in zip(function.input, node.input, strict=False) if actual
    ]
    absent = {*function.input} - {*present}
    inner = {
        *function.input,
        *(name for n in _nested(function.node) for name in n.output),
    }
    rename = {
        name: "" if name in absent else prefix + name for name in inner | {""}
    } | {"": ""}
    return [_bound(n, given, rename) for n in function.node]


def _nested(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    found: list[NodeProto] = []
    for node in nodes:
        found.append(node)
        for a in node.attribute:
            found += _nested(a.g.node) if a.type == AttributeProto.GRAPH else ()
    return found


def _bound(
    node: NodeProto, given: Mapping[str, AttributeProto], rename: Mapping[str, str]
) -> NodeProto:
    twin = NodeProto(
        op_type=node.op_type, domain=node.domain, name=node.name, overload=node.overload
    )
    twin.input.extend(rename.get(name, name) for name in node.input)
    twin.output.extend(rename.get(name, name) for name in node.output)
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in given:
                made = twin.attribute.add()
                made.CopyFrom(given[a.ref_attr_name])
                made.name = a.name
            continue
        made = twin.attribute.add()
        made.CopyFrom(a)
        if a.type == AttributeProto.GRAPH:
            made.g.CopyFrom(_bound_graph(a.g, given, rename))
    return twin


def _bound_graph(
    graph: GraphProto, given: Mapping[str, AttributeProto], rename: Mapping[str, str]
) -> GraphProto:
    twin = GraphProto()
    twin.CopyFrom(graph)
    del twin.node[:]
    twin.node.extend(_bound(n, given, rename) for n in graph.node)
    for named in (*twin.input, *twin.output, *twin.initializer):
        named.name = rename.get(named.name, named.name)
    return twin
