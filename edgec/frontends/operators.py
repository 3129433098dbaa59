"""The operators of a .tflite file one by one, each as a small graph of its own: the
file as it is, to be judged.
"""

from __future__ import annotations

from pathlib import Path

from edgec.errors import EdgecError, InputError
from edgec.frontends.tflite import TfliteBuilder, add_opaque, add_operator
from edgec.frontends.tflite_file import FileOperator, TfliteFile, damage_told
from edgec.ir import Graph, TensorType, Value
from edgec.ir.source import SourceOperator

_ORDER = "the file is damaged, or its converter is: convert the model again"


def read_operators(path: Path) -> tuple[SourceOperator, ...]:
    """Every operator of the main subgraph, in order; what edgec cannot read is opaque.

    Raises InputError for a damaged file alone.
    """
    with damage_told(path):
        return operators_of(TfliteFile.load(path, any_type=True))


def operators_of(file: TfliteFile) -> tuple[SourceOperator, ...]:
    """`read_operators` of what is loaded already, with any element type."""
    _check_order(file)
    found: dict[int, TensorType] = {}
    return tuple(_operator(file, i, o, found) for i, o in enumerate(file.operators()))


def _check_order(file: TfliteFile) -> None:
    """Raise InputError for an operator that reads what only a later one, or itself,
    writes.
    """
    writer = {i: n for n, o in enumerate(file.operators()) for i in o.outputs}
    for n, o in enumerate(file.operators()):
        for i in o.inputs:
            if i >= 0 and writer.get(i, -1) >= n:
                raise InputError(
                    f"tensor {file.name(i)} is read before anything writes it",
                    o.at,
                    _ORDER,
                )


def _operator(
    file: TfliteFile, index: int, o: FileOperator, found: dict[int, TensorType]
) -> SourceOperator:
    """`found` holds the types of the tensors written so far: a file may leave
    dimensions open that inputs decide.
    """
    try:
        graph = _alone(file, o, found)
    except Exception as e:  # whatever is odd about an operator, TFLite may still run it
        graph = _alone(
            file,
            o,
            found,
            e.what
            if isinstance(e, EdgecError)
            else f"{o.name}: {type(e).__name__}: {e}",
        )
    found |= {i: v.type for i, v in zip(o.outputs, graph.outputs, strict=True)}
    reads = tuple(i for i in o.inputs if i >= 0 and not file.has_data(i))
    names = tuple(file.name(i) for i in o.outputs)
    return SourceOperator(
        index, o.opcode, o.builtin, o.version, reads, o.outputs, names, graph
    )


def _alone(
    file: TfliteFile, o: FileOperator, found: dict[int, TensorType], why_not: str = ""
) -> Graph:
    """The graph of one operator; one that cannot be read is opaque, there for its types
    and without constants.
    """
    build = TfliteBuilder(o.name)
    values: dict[int, Value] = {}
    for i in o.inputs:
        if i < 0 or i in values or file.is_variable(i):
            continue
        if not file.has_data(i):
            values[i] = build.declared(file, i)
            values[i].type = found.get(i, values[i].type)
            build.graph.inputs.append(values[i])
        elif not why_not:
            values[i] = build.constant(file, i)
    inputs = [values.get(i) for i in o.inputs]
    outputs = [build.declared(file, i) for i in o.outputs]
    build.graph.outputs = outputs
    if why_not:
        add_opaque(build, o, inputs, outputs, why_not)
    else:
        add_operator(build, o, inputs, outputs)
    return build.graph
