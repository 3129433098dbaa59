"""The contents of an .onnx file: the parsed model, its names, nodes and static shapes.

Nodes are selected and ordered by the outputs that need them.
"""

from __future__ import annotations

import re
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
USUAL_SIDES = (224, 224)
"""Height and width of pictures for an example."""
_IMGSZ = re.compile(r"\[([1-9]\d{0,4}), ?([1-9]\d{0,4})\]")
"""A list of height and width."""
_DAMAGED = "the file is damaged or cut short, or it is not an ONNX model: copy or export it again"


def load(path: Path) -> ModelProto:
    """Return the parsed file with its external data.

    External data are the weights of large models, in files of their own. Raises
    InputError.
    """
    at = str(path)
    try:
        model = onnx.load(at, format="protobuf", load_external_data=False)
    # Protobuf's own errors differ between its implementations.
    except Exception as e:
        message = f"{path.name} cannot be read as ONNX ({type(e).__name__}: {e})"
        raise InputError(message, at, _DAMAGED) from e
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InputError(f"{path.name} holds no ONNX graph", at, _DAMAGED)

    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as e:
        message = f"the external data of {path.name} cannot be read: {_first_line(e)}"
        hint = f"put the weights' file, as the exporter wrote it, next to {path.name}"
        raise InputError(message, at, hint) from e
    return model


def check(model: ModelProto, path: Path) -> None:
    """Raise an error for a file that edgec cannot read.

    That is InputError for names that are no text, UnsupportedError for an operator set
    that is too old.
    """
    if not all(isinstance(text, str) for text in _texts(model.graph)):
        message = f"{path.name} holds names that are not text"
        raise InputError(message, str(path), _DAMAGED)
    version = opset(model.opset_import)
    if version < MIN_OPSET:
        message = f"{path.name} uses opset {version}; edgec reads {MIN_OPSET} and up"
        hint = "convert it with onnx.version_converter.convert_version(model, 13)"
        raise UnsupportedError(message, str(path), hint)


def opset(imports: Sequence[onnx.OperatorSetIdProto], default: int = 1) -> int:
    """Return the version of the default operator set."""
    # A file may import the default set under both of its names.
    versions = [int(o.version) for o in imports if o.domain in DOMAINS]
    return max(versions, default=default)


def _texts(graph: GraphProto) -> Iterator[object]:
    """Yield all names; protobuf gives bytes for text that is not UTF-8."""
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
    """Return ONNX's name of an element type."""
    names: dict[int, str] = {v: k.lower() for k, v in TensorProto.DataType.items()}
    return names.get(element_type, f"number {element_type}")


def _first_line(e: Exception) -> str:
    return str(e).strip().split("\n")[0] or type(e).__name__


def operator(node: NodeProto) -> str:
    """Return the operator of a node, with its domain unless it is the default one."""
    return node.op_type if node.domain in DOMAINS else f"{node.domain}:{node.op_type}"


def location(number: int, node: NodeProto, path: Path) -> str:
    """Return the place of a node, for messages."""
    return f"node {node.name or f'number {number}'} ({node.op_type}), {path}"


def subgraphs(node: NodeProto) -> dict[str, GraphProto]:
    """Return the graphs in the attributes of a node, by attribute."""
    return {a.name: a.g for a in node.attribute if a.type == AttributeProto.GRAPH}


def reads(node: NodeProto) -> Iterator[str]:
    """Yield the names that a node and the graphs in it read."""
    yield from node.input
    for graph in subgraphs(node).values():
        for inner in graph.node:
            yield from reads(inner)
        for output in graph.output:
            yield output.name


def needed_nodes(
    nodes: Sequence[NodeProto], outputs: Sequence[str]
) -> list[tuple[int, NodeProto]]:
    """Return the nodes that the outputs depend on, with their numbers.

    Each comes after the nodes whose results it reads. The order is the file's if that
    is valid. In a circle of nodes each stays where the file has it.
    """
    # A damaged file may have several writers of one name.
    writers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in node.output:
            writers.setdefault(name, []).append(number)
    # The name of an absent output.
    writers.pop("", None)

    sources: dict[int, set[int]] = {}
    for number, node in enumerate(nodes):
        sources[number] = set()
        for name in reads(node):
            sources[number].update(writers.get(name, ()))

    waiting: list[int] = []
    for name in outputs:
        waiting += writers.get(name, ())
    needed: set[int] = set()
    # A search backwards from the outputs.
    while waiting:
        number = waiting.pop()
        if number not in needed:
            needed.add(number)
            waiting += sources[number]
    ordered = _sorted({n: sources[n] for n in sorted(needed)})
    return [(n, nodes[n]) for n in ordered]


def _sorted(sources: Mapping[int, set[int]]) -> list[int]:
    """Return numbers after the numbers they depend on, else in ascending order.

    This is Kahn's algorithm with a heap. Numbers in a circle come last.
    """
    if all(max(before, default=-1) < n for n, before in sources.items()):
        return list(sources)

    missing: dict[int, int] = {}
    dependents: dict[int, list[int]] = {}
    for n, before in sources.items():
        missing[n] = len(before)
        for source in before:
            dependents.setdefault(source, []).append(n)

    ready = [n for n, count in missing.items() if count == 0]
    heapify(ready)
    ordered: list[int] = []
    while ready:
        source = heappop(ready)
        ordered.append(source)
        for n in dependents.get(source, ()):
            missing[n] -= 1
            if missing[n] == 0:
                heappush(ready, n)
    placed = set(ordered)
    return [*ordered, *(n for n in sources if n not in placed)]


def check_names(
    shapes: Mapping[str, tuple[int, ...]], names: Sequence[str], path: Path
) -> None:
    """Raise InputError for the shape of an unknown input.

    shapes: shapes by the name of the input. names: of the model's inputs.
    """
    for name in shapes:
        if name in names:
            continue
        message = f"the model has no input {name}{did_you_mean(name, names)}"
        raise InputError(message, str(path), f"its inputs: {', '.join(names)}")


def stated_sides(model: ModelProto) -> tuple[int, int]:
    """Return height and width of the pictures that a model was trained with.

    Ultralytics' exporter states them as `imgsz`; without that, the usual ones.
    """
    for p in model.metadata_props:
        if p.key == "imgsz" and (match := _IMGSZ.fullmatch(p.value)):
            return int(match[1]), int(match[2])
    return USUAL_SIDES


def static_shape(
    name: str,
    dims: list[Any] | None,
    given: tuple[int, ...] | None,
    at: str,
    sides: tuple[int, int] = USUAL_SIDES,
) -> tuple[int, ...]:
    """Return the declared shape, with its dynamic dimensions from `given`.

    A dynamic leading dimension is 1 without `given`. A declared 0 is 0 (no elements),
    as in onnxruntime; `given` may overrule it, since some exporters write dynamic
    dimensions so. sides: height and width for an example. Raises InputError.
    """
    if dims is None:
        if given is None:
            raise _not_static(name, "unknown", (1, 3, *sides), at)
        return given
    shape = [_size(d) for d in dims]
    text = f"[{', '.join(_dims_text(dims))}]"
    if given is not None:
        if not _fits(given, shape):
            message = (
                f"input {name} has the shape {text} in the file, "
                f"which {list(given)} does not fit"
            )
            hint = "give a shape of that rank that keeps its static dimensions"
            raise InputError(message, at, hint)
        return given

    # A vector's only dimension is not a batch.
    if len(shape) > 1 and shape[0] is None:
        shape[0] = 1
    if None in shape:
        # The last two dimensions of a picture are its sides.
        usual = [sides[0]] * (len(shape) - 2) + [*sides][-len(shape) :]
        example = tuple(
            u if d is None else d for d, u in zip(shape, usual, strict=True)
        )
        raise _not_static(name, text, example, at)
    return tuple(d for d in shape if d is not None)


def _fits(given: tuple[int, ...], declared: Sequence[int | None]) -> bool:
    """Return whether a given shape keeps the static dimensions of a declared one."""
    if len(given) != len(declared):
        return False
    pairs = zip(declared, given, strict=True)
    # A declared 0 counts as dynamic here.
    return all(d == g or (not d and g > 0) for d, g in pairs)


def _not_static(name: str, text: str, example: tuple[int, ...], at: str) -> InputError:
    """Return the error for a dynamic shape."""
    sizes = "x".join(map(str, example))
    hint = f"freeze it, for instance --input-shape {name}={sizes}"
    return InputError(f"input {name} has the dynamic shape {text}", at, hint)


def _size(d: Any) -> int | None:
    """Return the size of a dimension, None if it is dynamic."""
    if d.HasField("dim_value") and d.dim_value >= 0:
        return int(d.dim_value)
    return None


def _dims_text(dims: Sequence[Any]) -> Iterator[str]:
    """Yield the size of each dimension, or its name, or a question mark."""
    for d in dims:
        size = _size(d)
        if size is not None:
            yield str(size)
        else:
            yield d.dim_param or "?"


def reason(e: Exception) -> str:
    """Return the message of an error of an op's reader."""
    if isinstance(e, KeyError):
        return f"has no {e}"
    return str(e) if isinstance(e, ValueError) else f"{type(e).__name__} {e}".strip()
