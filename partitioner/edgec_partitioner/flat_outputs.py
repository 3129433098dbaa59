"""Outputs of Edge TPU segments without the padding of their channels.

The Edge TPU pads the channels of an output to a multiple of 4: a picture of 3 channels
is read back with a third more bytes than it has, a mask of 1 channel with four times as
many, and reading back is the slow side of a link. A RESHAPE on the Edge TPU that makes
the columns a part of the channels, [.., h, w, c] to [.., h, w * c], leaves nothing or
little to pad; the RESHAPE back is a view on the CPU. An output that a QUANTIZE turns
into the uint8 of the file becomes flat before the QUANTIZE, as int8.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from edgec.ir import Graph, Op, TensorType, Value
from edgec.ir.graph import Names
from edgec.ir.rewrite import Rewriter
from edgec.ops.shape import Reshape
from edgec_partitioner.cost import padded_bytes
from edgec_partitioner.legalize import Applied
from edgec_partitioner.legalize._moves import maps
from edgec_partitioner.legalize.large_reshape import part_count, reshape_parts
from edgec_partitioner.regions import Costs, Region

NAME = "flat_outputs"

LEAST_SAVING_MS = 0.1
"""The least saving by one output. It pays for the instructions of a dozen operations,
and for a CPU segment of its own for the RESHAPE back.
"""


def flatten(
    graph: Graph, region: Region, costs: Costs, refused: Collection[str]
) -> dict[str, Applied]:
    """Give the outputs of an Edge TPU region a flat form where that pays.

    Return a record of each, by the result of its RESHAPE back. The graph is edited in
    place. An output of the network keeps its name; the op that made it gets another
    one for it.

    refused: first outputs of the ops that the compiler refused. An output with such an
    op in its flat form stays as it is.
    """
    records: dict[str, Applied] = {}
    for v in region.outputs:
        if _saving_ms(v, costs) < LEAST_SAVING_MS or _is_refused(v, refused):
            continue
        form = _flat_form(_inside(graph, v))
        if form is None:
            continue
        name = v.name
        back, added = _flatten(graph, v, region, form)
        names_of_ops = tuple(op.output.name for op in added)
        records[back.name] = Applied(NAME, name, added[0].source, names_of_ops)
    return records


def _saving_ms(v: Value, costs: Costs) -> float:
    """Return the time that the flat form of an output saves on the link."""
    if v.type.rank < 2:
        return 0.0
    flat = Value("flat", v.type.with_shape(_flat_shape(v.type)))
    saved = padded_bytes(v) - padded_bytes(flat)
    return costs.transfer_ms(0, saved)


def _flat_shape(t: TensorType) -> tuple[int, ...]:
    """Return the shape of a tensor with its last two dimensions as one."""
    *outer, columns, channels = t.shape
    return (*outer, columns * channels)


def _is_refused(v: Value, refused: Collection[str]) -> bool:
    """Return whether the compiler refused an op of the flat form of an output."""
    return any(name.startswith(_flat_name(v.name)) for name in refused)


def _flat_name(name: str) -> str:
    return f"{name}_flat"


@dataclass(frozen=True)
class _FlatForm:
    """How the Edge TPU makes the flat form of an output.

    Attributes:
        shape: the shape of the flat form.
        parts: the number of parts in which the RESHAPE maps.
    """

    shape: tuple[int, ...]
    parts: int


def _inside(graph: Graph, v: Value) -> Value:
    """Return the value to flatten for an output of a region.

    Of a uint8 output it is the int8 value before it: no op moves elements of uint8, which
    exists at the graph's border alone.
    """
    return graph.producers()[v].inputs[0] if v.type.dtype == "uint8" else v


def _flat_form(wide: Value) -> _FlatForm | None:
    """Return the flat form of a value; None if no RESHAPE to it maps."""
    shape = _flat_shape(wide.type)
    flat = Value("flat", wide.type.with_shape(shape))
    reshape = Op(Reshape(shape), [wide], [flat])
    parts = 1 if maps(reshape) else part_count(reshape)
    return None if parts is None else _FlatForm(shape, parts)


def _flatten(
    graph: Graph, wide: Value, region: Region, form: _FlatForm
) -> tuple[Value, list[Op]]:
    """Let readers outside of a region read a value of its own by way of a flat form.

    Return the value that they read, and the ops that were added to the region.
    """
    names = Names(v.name for v in graph.values())
    inside = _inside(graph, wide)
    flat_type = inside.type.with_shape(form.shape)
    flat = Value(names.new(_flat_name(wide.name)), flat_type)
    back = Value(names.new(f"{wide.name}_wide"), wide.type)
    _read_instead(graph, wide, back, region.ops)

    producer = graph.producers()[wide]
    reshape = Op(Reshape(flat_type.shape), [inside], [flat], producer.source)
    new_ops = [reshape]
    crossing = flat
    if inside is not wide:
        crossing = Value(
            names.new(f"{flat.name}_uint8"), wide.type.with_shape(form.shape)
        )
        new_ops.append(Op(producer.spec, [flat], [crossing], producer.source))
    view = Op(Reshape(wide.type.shape), [crossing], [back], producer.source)
    behind = graph.ops.index(producer) + 1
    before = {*graph.ops, view}
    graph.ops[behind:behind] = [*new_ops, view]
    if form.parts > 1:
        reshape_parts(Rewriter(graph), reshape, form.parts)
    # Nothing reads the wide uint8 any more.
    graph.drop_unused()
    return back, [op for op in graph.ops if op not in before]


def _read_instead(
    graph: Graph, old: Value, new: Value, except_by: Sequence[Op]
) -> None:
    """Let all ops but some, and the caller, read another value."""
    keeping = set(except_by)
    for op in graph.ops:
        if op not in keeping:
            op.inputs = [new if v is old else v for v in op.inputs]
    if old in graph.outputs:
        graph.outputs = [new if v is old else v for v in graph.outputs]
        # Outputs of the graph keep their names.
        old.name, new.name = new.name, old.name
