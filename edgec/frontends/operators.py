"""The operators of a .tflite file one by one, each as a small graph of its own.

They are the file as it is, for the support rules.
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
    """Return every operator of the main subgraph, in order.

    An operator that edgec cannot read is opaque. Raises InputError for a damaged file
    alone.
    """
    with damage_told(path):
        return operators_of(TfliteFile.load(path, any_type=True))


def operators_of(file: TfliteFile) -> tuple[SourceOperator, ...]:
    """Return every operator of a loaded file, in order.

    The file must accept any element type.
    """
    _check_order(file)
    written: dict[int, TensorType] = {}
    result: list[SourceOperator] = []
    for i, o in enumerate(file.operators()):
        result.append(_operator(file, i, o, written))
    return tuple(result)


def _check_order(file: TfliteFile) -> None:
    """Raise InputError for an operator that reads a result of itself or a later one."""
    # TFLite runs operators in the order of the file.
    writer: dict[int, int] = {}
    for n, o in enumerate(file.operators()):
        writer |= dict.fromkeys(o.outputs, n)
    for n, o in enumerate(file.operators()):
        for i in o.inputs:
            if i >= 0 and writer.get(i, -1) >= n:
                message = f"tensor {file.name(i)} is read before anything writes it"
                raise InputError(message, o.at, _ORDER)


def _operator(
    file: TfliteFile, index: int, o: FileOperator, written: dict[int, TensorType]
) -> SourceOperator:
    """Return one operator, and add its results to `written`.

    `written` has the types of the tensors so far: a file may leave dimensions open, and
    the inputs decide them.
    """
    try:
        graph = _alone(file, o, written)
    except EdgecError as e:
        graph = _alone(file, o, written, e.what)
    # TFLite may still run an operator with whatever oddity.
    except Exception as e:
        why_not = f"{o.name}: {type(e).__name__}: {e}"
        graph = _alone(file, o, written, why_not)

    for i, v in zip(o.outputs, graph.outputs, strict=True):
        written[i] = v.type
    return SourceOperator(
        index,
        o.opcode,
        o.builtin,
        o.version,
        tuple(i for i in o.inputs if i >= 0 and not file.has_data(i)),
        o.outputs,
        tuple(file.name(i) for i in o.outputs),
        graph,
    )


def _alone(
    file: TfliteFile, o: FileOperator, written: dict[int, TensorType], why_not: str = ""
) -> Graph:
    """Return the graph of one operator.

    why_not: why it cannot be read. It is then opaque, with types but without constants.
    """
    build = TfliteBuilder(o.name)
    values: dict[int, Value] = {}
    for i in o.inputs:
        if i < 0 or i in values or file.is_variable(i):
            continue
        if not file.has_data(i):
            v = build.declared(file, i)
            # The type that the producer has inferred, with open dimensions decided.
            v.type = written.get(i, v.type)
            build.graph.inputs.append(v)
            values[i] = v
        # An opaque operator needs no constants: only its types count.
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
