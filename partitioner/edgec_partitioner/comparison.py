"""A model with the CPU alone, with the stock compiler, and with edgec.

These are the columns of `edgec explain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

from edgec.ir import Graph, Op, Value
from edgec.ir.source import SourceOperator
from edgec.ops.shape import Transpose
from edgec_partitioner.converter import borders
from edgec_partitioner.cost import Link
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.regions import Costs, Region, cpu_ms, regions
from edgec_partitioner.source import ABORT, SourceOp, judge
from edgec_partitioner.stock import gives_up, stock_places
from edgec_partitioner.verdicts import Answer, Place, Verdict, refusals

Basis = Literal["file", "int8"]
"""The subject of the stock column: the file as it is, or the int8 file that the usual
converter would write.
"""


@dataclass(frozen=True)
class Column:
    """One way to run a model.

    If the stock column is about an int8 file, no column counts the conversions of
    inputs and outputs among the operations.

    Attributes:
        ops, macs: operations and multiply-accumulates of the model.
        tpu_ops, tpu_macs: operations and multiply-accumulates on the Edge TPU.
        tpu_segments: the number of Edge TPU segments.
        uncertain_ops: operations without evidence for or against a mapping.
        tpu_ms, cpu_ms: the estimated time on either processor.
    """

    ops: int
    macs: int
    tpu_ops: int
    tpu_macs: int
    tpu_segments: int
    uncertain_ops: int
    tpu_ms: float
    cpu_ms: float

    @property
    def est_ms(self) -> float:
        """The estimated time of the whole model, one piece after the other."""
        return self.tpu_ms + self.cpu_ms

    @property
    def tpu_ops_share(self) -> float:
        """The share of the operations on the Edge TPU, 0 to 1."""
        return self.tpu_ops / self.ops if self.ops else 0.0

    @property
    def tpu_macs_share(self) -> float:
        """The share of the multiply-accumulates on the Edge TPU, 0 to 1."""
        return self.tpu_macs / self.macs if self.macs else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the fields, the shares and the time of the whole model."""
        shares = {
            "tpu_ops_share": self.tpu_ops_share,
            "tpu_macs_share": self.tpu_macs_share,
        }
        return {**self.__dict__, **shares, "est_ms": self.est_ms}


@dataclass(frozen=True)
class Stock:
    """A model with edgetpu_compiler alone.

    Attributes:
        basis: the file that it is given.
        assumed: the same, in words.
        column: the result.
        every_set: the result with its option -a, which maps all sets.
        gives_up: why it would give up the whole file; None if it would not.
    """

    basis: Basis
    assumed: str
    column: Column
    every_set: Column
    gives_up: str | None = None


@dataclass(frozen=True)
class StockComparison:
    """The columns of a model.

    Attributes:
        cpu_only: without an Edge TPU.
        stock: with the stock compiler; None without an Edge TPU, or without a file to
            compare.
        edgec: with edgec.
    """

    cpu_only: Column
    stock: Stock | None
    edgec: Column

    def gain(self) -> dict[str, float] | None:
        """Return the gain of edgec over the stock compiler.

        These are the differences of the shares, the ms saved, and the speedup. None
        without the stock compiler.
        """
        if self.stock is None:
            return None
        old = self.stock.column
        new = self.edgec
        return {
            "tpu_ops_share": new.tpu_ops_share - old.tpu_ops_share,
            "tpu_macs_share": new.tpu_macs_share - old.tpu_macs_share,
            "saved_ms": old.est_ms - new.est_ms,
            "speedup": old.est_ms / new.est_ms if new.est_ms else 1.0,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the object described in docs/explain-schema.md."""
        stock = self.stock
        return {
            "basis": stock.basis if stock else None,
            "stock_assumed": stock.assumed if stock else None,
            "stock_gives_up": stock.gives_up if stock else None,
            "cpu_only": self.cpu_only.to_json(),
            "stock": stock.column.to_json() if stock else None,
            "stock_every_set": stock.every_set.to_json() if stock else None,
            "edgec": self.edgec.to_json(),
            "gain": self.gain(),
        }


def column(
    parts: Sequence[Region],
    answers: Mapping[Op, Answer],
    cpu: CpuCost,
    link: Link | None,
    outside: Set[Op] = frozenset(),
) -> Column:
    """Return the column of a graph in regions.

    answers: the answer of the rules for each op, if there is an Edge TPU. outside: ops
    that take time but do not count.
    """
    on_tpu = [r for r in parts if r.place == "edgetpu"]
    on_cpu = [r for r in parts if r.place == "cpu"]
    uncertain = [op for op, answer in answers.items() if answer == "uncertain"]
    tpu_ms = 0.0
    if link is not None:
        # Without a link there are no Edge TPU regions.
        tpu_ms = sum(Costs(link, cpu).tpu_ms(parts))
    return Column(
        ops=_count(parts, outside),
        macs=sum(map(_macs, parts)),
        tpu_ops=_count(on_tpu, outside),
        tpu_macs=sum(map(_macs, on_tpu)),
        tpu_segments=len(on_tpu),
        uncertain_ops=len(uncertain),
        tpu_ms=tpu_ms,
        cpu_ms=sum(cpu_ms(r, cpu) for r in on_cpu),
    )


def _count(parts: Sequence[Region], outside: Set[Op]) -> int:
    """Return the number of ops of some regions, without those of `outside`."""
    return sum(op not in outside for region in parts for op in region.ops)


def _macs(region: Region) -> int:
    return sum(op.spec.macs(op) for op in region.ops)


def cpu_only(graph: Graph, cpu: CpuCost, outside: Set[Op] = frozenset()) -> Column:
    """Return the column of a graph on the CPU alone.

    outside: ops that take time but do not count.
    """
    # One CPU region, with what fusion saves.
    parts = regions(graph, dict.fromkeys(graph.ops, "cpu"))
    return column(parts, {}, cpu.within(graph), None, outside)


def uncounted(graph: Graph, stock: Stock | None) -> Set[Op]:
    """Return the ops that convert inputs and outputs, if no column counts them.

    That is so if the stock column's file does not contain them.
    """
    if stock is not None and stock.basis == "int8":
        return borders(graph)
    return frozenset()


AS_IT_IS = "the file as it is"


def stock_of_graph(graph: Graph, cpu: CpuCost, link: Link, assumed: str) -> Stock:
    """Return the stock column of an int8 graph, as a converter would write it.

    See converter.py; `assumed` names the converter. The conversions of its inputs and
    outputs are no operators of the file. Those from and to float are timed all the
    same, for edgec does them too; but nobody with channels-last images would transpose
    them. Ops without evidence for or against are taken to map: edgec is to gain nothing
    by a lack of knowledge.
    """
    outside = borders(graph)
    inside = [op for op in graph.ops if op not in outside]
    cpu = cpu.within(graph)
    # `outside` has conversions and transposes; edgec does not need the latter.
    transposes = [op for op in outside if isinstance(op.spec, Transpose)]
    transpose_ms = sum(cpu.op_ms(op) for op in transposes)
    answers = {op: Verdict(refusals(op)).answer for op in inside}

    def result(all_sets: bool) -> Column:
        places = stock_places(graph, all_sets, outside, optimistic=True)
        timed = column(regions(graph, places), answers, cpu, link, outside)
        return replace(timed, cpu_ms=timed.cpu_ms - transpose_ms)

    return Stock("int8", assumed, result(False), result(True), gives_up(inside))


def stock_of_file(
    operators: Sequence[SourceOperator], cpu: CpuCost, link: Link
) -> Stock:
    """Return the stock column of a TFLite file as it is.

    One of the file's operators counts as one operation.
    """
    graph, owner = whole(operators)
    cpu = cpu.within(graph)

    def result(verdicts: Sequence[SourceOp]) -> Column:
        mapped = [s for s in verdicts if s.stock == "mapped"]
        places: dict[Op, Place] = {}
        for op, i in owner.items():
            places[op] = "edgetpu" if verdicts[i].stock == "mapped" else "cpu"
        times = column(regions(graph, places), {}, cpu, link)
        return Column(
            ops=len(verdicts),
            macs=sum(s.macs for s in verdicts),
            tpu_ops=len(mapped),
            tpu_macs=sum(s.macs for s in mapped),
            tpu_segments=times.tpu_segments,
            uncertain_ops=sum(s.verdict == "uncertain" for s in verdicts),
            tpu_ms=times.tpu_ms,
            cpu_ms=times.cpu_ms,
        )

    verdicts = judge(operators)
    # The option -a changes the places, not the verdicts.
    every_set = result(judge(operators, all_sets=True))
    return Stock("file", AS_IT_IS, result(verdicts), every_set, _abort_reason(verdicts))


def _abort_reason(verdicts: Sequence[SourceOp]) -> str | None:
    """Return why the stock compiler gives up a file, None if it does not."""
    for s in verdicts:
        if s.rule == ABORT and s.verdict == "cpu":
            return f"operator {s.index}, {s.opcode}: {s.seen}"
    return None


def whole(operators: Sequence[SourceOperator]) -> tuple[Graph, dict[Op, int]]:
    """Return the operators' own graphs as one graph, fit for estimates only.

    The second result is the place in `operators` that each op comes from.
    """
    graph = Graph("file")
    owner: dict[Op, int] = {}
    by_name: dict[str, Value] = {}
    for i, operator in enumerate(operators):
        for op in _joined(graph, operator.graph, by_name):
            graph.ops.append(op)
            owner[op] = i

    read = {v for op in graph.ops for v in op.inputs}
    for op in graph.ops:
        graph.outputs += [v for v in op.outputs if v not in read]
    return graph, owner


def _joined(graph: Graph, part: Graph, by_name: dict[str, Value]) -> list[Op]:
    """Return copies of the ops of one operator's graph.

    They read and write the values of `by_name`, by which operators exchange tensors. A
    tensor without producer so far becomes an input of `graph`.
    """
    twin = {v: v for v in part.values() if v.const is not None}
    for v in part.inputs:
        if v.name not in by_name:
            by_name[v.name] = Value(v.name, v.type)
            graph.inputs.append(by_name[v.name])
        twin[v] = by_name[v.name]
    for v in part.outputs:
        # A later operator reads the same value by its name.
        twin[v] = by_name.setdefault(v.name, Value(v.name, v.type))

    def copies(values: Sequence[Value]) -> list[Value]:
        return [twin.setdefault(v, Value(v.name, v.type)) for v in values]

    return [
        Op(op.spec, copies(op.inputs), copies(op.outputs), op.source) for op in part.ops
    ]
