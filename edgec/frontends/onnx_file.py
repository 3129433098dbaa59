"""What is in an .onnx file: the parsed model, its names, which nodes are needed and in
which order, static shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    external_data_helper,
)

from edgec.errors import InputError, UnsupportedError, did_you_mean

MIN_OPSET = 7
DOMAINS = ("", "ai.onnx")
"""Names of the default operator set."""
_DAMAGED = (
    "the file is damaged or cut short, or it is no ONNX model: copy or export it again"
)


def load(path: Path) -> ModelProto:
    """The parsed file with its external data. Raises InputError."""
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except Exception as e:  # protobuf's own errors differ between its implementations
        raise InputError(
            f"{path.name} cannot be read as ONNX ({type(e).__name__}: {e})",
            str(path),
            _DAMAGED,
        ) from e
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InputError(f"{path.name} holds no ONNX graph", str(path), _DAMAGED)
    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as e:
        hint = f"put the weights' file, as the exporter wrote it, next to {path.name}"
        raise InputError(
            f"the external data of {path.name} cannot be read: {_first_line(e)}",
            str(path),
            hint,
        ) from e
    return model


def check(model: ModelProto, path: Path) -> None:
    """Raise InputError for names that are no text, UnsupportedError for an operator set
    that is too old.
    """
    if not all(isinstance(text, str) for text in _texts(model.graph)):
        raise InputError(
            f"{path.name} holds names that are no text", str(path), _DAMAGED
        )
    version = opset(model.opset_import)
    if version < MIN_OPSET:
        hint = "convert it with onnx.version_converter.convert_version(model, 13)"
        raise UnsupportedError(
            f"{path.name} uses opset {version}; edgec reads {MIN_OPSET} and up",
            str(path),
            hint,
        )


def opset(imports: Sequence[onnx.OperatorSetIdProto], default: int = 1) -> int:
    """The version of the default operator set."""
    return max(
        (int(o.version) for o in imports if o.domain in DOMAINS), default=default
    )


def _texts(graph: GraphProto) -> Iterator[object]:
    """All names; protobuf gives bytes for what is not UTF-8."""
    for node in graph.node:
        yield from (
            node.name,
            node.op_type,
            node.domain,
            *node.input,
            *node.output,
            *(a.name for a in node.attribute),
        )
    for named in (*graph.input, *graph.output, *graph.initializer):
        yield named.name


def type_name(element_type: int) -> str:
    """ONNX's name of an element type."""
    names: dict[int, str] = {v: k.lower() for k, v in TensorProto.DataType.items()}
    return names.get(element_type, f"number {element_type}")


def _first_line(e: Exception) -> str:
    return str(e).strip().split("\n")[0] or type(e).__name__


def operator(node: NodeProto) -> str:
    """The operator of a node, with its domain unless that is the default one."""
    return node.op_type if node.domain in DOMAINS else f"{node.domain}:{node.op_type}"


def location(number: int, node: NodeProto, path: Path) -> str:
    """Where a node is, for messages."""
    return f"node {node.name or f'number {number}'} ({node.op_type}), {path}"


def subgraphs(node: NodeProto) -> dict[str, GraphProto]:
    """The graphs that a node carries, by attribute."""
    return {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node and the graphs in it read."""
    yield from node.input
    for graph in subgraphs(node).values():
        yield from (name for inner in graph.node for name in reads(inner))
        yield from (output.name for output in graph.output)


def needed_nodes(
    nodes: Sequence[NodeProto], outputs: Sequence[str]
) -> list[tuple[int, NodeProto]]:
    """The nodes that the outputs depend on, with their numbers, each after those whose
    results it reads.

    The order is the file's where that is such a one. In a circle of nodes each stays
    where the file has it.
    """
    writers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in node.output:
            writers.setdefault(name, []).append(number)
    writers.pop("", None)
    sources = {
        n: {w for name in reads(node) for w in writers.get(name, ())}
        for n, node in enumerate(nodes)
    }
    todo = [w for name in outputs for w in writers.get(name, ())]
    needed = set[int]()
    while todo:
        number = todo.pop()
        if number not in needed:
            needed.add(number)
            todo += sources[number]
    return [(n, nodes[n]) for n in _sorted({n: sources[n] for n in sorted(needed)})]


def _sorted(sources: Mapping[int, set[int]]) -> list[int]:
    """Numbers after those that they depend on, else in their order."""
    if all(source < n for n, some in sources.items() for source in some):
        return list(sources)
    waits = {n: len(some) for n, some in sources.items()}
    readers: dict[int, list[int]] = {}
    for n, some in sources.items():
        for source in some:
            readers.setdefault(source, []).append(n)
    ready = [n for n, count in waits.items() if not count]
    found = list[int]()
    heapify(ready)
    while ready:
        found.append(heappop(ready))
        for n in readers.get(found[-1], ()):
            waits[n] -= 1
            if not waits[n]:
                heappush(ready, n)
    return [*found, *(n for n in sources if n not in set(found))]


def check_names(
    given: Mapping[str, tuple[int, ...]], names: Sequence[str], path: Path
) -> None:
    """Raise InputError for a shape that is given of an input that is not there."""
    for name in given:
        if name not in names:
            what = f"the model has no input {name}{did_you_mean(name, names)}"
            raise InputError(what, str(path), f"its inputs: {', '.join(names)}")


def static_shape(
    name: str, dims: list[Any] | None, given: tuple[int, ...] | None, at: str
) -> tuple[int, ...]:
    """The declared shape, its dynamic dimensions taken from `given`; a dynamic leading
    one is 1 unless given.

    A declared 0 is 0 (no elements), as onnxruntime has it; `given` may say otherwise,
    since some exporters write so what is dynamic.
    """
    if dims is None:
        if given is None:
            raise _not_static(name, "unknown", (1, 3, 224, 224), at)
        return given
    shape = [_size(d) for d in dims]
    text = "[" + ", ".join(_dims_text(dims)) + "]"
    if given is None:
        if len(shape) > 1 and shape[0] is None:
            shape[0] = 1
        if None in shape:
            raise _not_static(
                name, text, tuple(224 if d is None else d for d in shape), at
            )
        return tuple(d for d in shape if d is not None)
    fits = len(given) == len(shape) and all(
        d == g or (not d and g > 0) for d, g in zip(shape, given, strict=True)
    )
    if not fits:
        what = (
            f"input {name} has the shape {text} in the file, "
            f"which {list(given)} does not fit"
        )
        raise InputError(
            what, at, "give a shape of that rank that keeps its static dimensions"
        )
    return given


def _not_static(name: str, text: str, example: tuple[int, ...], at: str) -> InputError:
    hint = f"freeze it, for instance --input-shape {name}={'x'.join(map(str, example))}"
    return InputError(f"input {name} has the dynamic shape {text}", at, hint)


def _size(d: Any) -> int | None:
    """Of a dimension, None where it is dynamic."""
    return int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else None


def _dims_text(dims: Sequence[Any]) -> Iterator[str]:
    for d in dims:
        size = _size(d)
        yield d.dim_param or "?" if size is None else str(size)
