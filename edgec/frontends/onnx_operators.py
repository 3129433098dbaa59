"""Selects how the operators of an ONNX graph are read, and rejects unknown ones."""

from __future__ import annotations

from pathlib import Path

from onnx import GraphProto, NodeProto

from edgec.errors import UnsupportedError
from edgec.frontends.onnx_file import (
    DOMAINS,
    location,
    needed_nodes,
    operator,
    subgraphs,
)
from edgec.frontends.onnx_functions import Functions, has_body
from edgec.frontends.onnx_loops import loop, scan
from edgec.ir import OpDef
from edgec.ir.opdef import by_name

_KNOWN_OPS_HINT = (
    "docs/supported-ops.md lists what edgec reads; "
    "replace the operator before exporting the model"
)
LOOPS = {"Loop": loop, "Scan": scan}
"""The functions that unroll loops, by operator."""
CONTROL_FLOW = ("If", *LOOPS)
CONTROL_FLOW_HINT = (
    "edgec compiles models without control flow: "
    "export it with fixed shapes, or fold it with onnxsim"
)


def check_operators(graph: GraphProto, path: Path, functions: Functions) -> None:
    """Raise UnsupportedError with all operators that edgec does not know.

    This comes before any other work. Constant expressions may have any operators.
    """
    unknown: dict[str, str] = {}
    constant = {t.name for t in graph.initializer} | {""}
    constant |= {t.values.name for t in graph.sparse_initializer}
    outputs = [o.name for o in graph.output]
    for number, node in needed_nodes(graph.node, outputs):
        # ONNX's reference computes it.
        if _is_constant(node, constant):
            constant.update(node.output)
            continue
        # Control flow is checked when it is read: its branch and trip count are known
        # then.
        if node.op_type in CONTROL_FLOW or _is_known(node, functions):
            continue
        unknown.setdefault(operator(node), location(number, node, path))
    if not unknown:
        return

    # All at once, so that a person need not try again for each.
    (name, at), *others = unknown.items()
    message = f"edgec does not know the ONNX operator {name}"
    if others:
        message += f" (nor {', '.join(other for other, _ in others)})"
    hint = CONTROL_FLOW_HINT if name in CONTROL_FLOW else _KNOWN_OPS_HINT
    raise UnsupportedError(message, at, hint)


def _is_constant(node: NodeProto, constant: set[str]) -> bool:
    """Return whether a node's results are constant.

    constant: the names of constants. Shape and Size depend on static shapes only.
    """
    if node.op_type in ("Shape", "Size"):
        return True
    return is_plain(node) and constant.issuperset(node.input)


def _is_known(node: NodeProto, functions: Functions) -> bool:
    """Return whether a node may be read, by its op or as composed of others."""
    if node.op_type == "Constant" or definition_of(node) is not None:
        return True
    return has_body(node, functions)


def definition_of(node: NodeProto) -> type[OpDef] | None:
    """Return the op that reads a node, None if there is none."""
    return by_name("onnx", node.op_type) if node.domain in DOMAINS else None


def is_plain(node: NodeProto) -> bool:
    """Return whether a node is a standard operator of its inputs alone.

    It then has no subgraphs, and does not make noise without inputs.
    """
    if node.domain not in DOMAINS:
        return False
    if not node.input and node.op_type != "Constant":
        return False
    return not subgraphs(node)
