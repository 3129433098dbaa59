"""What a model would be with the CPU alone, with the stock compiler, and with edgec:
the columns of `edgec explain`.
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
from edgec_partitioner.regions import Costs, Places, Region, cpu_ms, regions
from edgec_partitioner.source import ABORT, SourceOp, judge
from edgec_partitioner.stock import gives_up, stock_places
from edgec_partitioner.verdicts import Answer, Verdict, refusals

Basis = Literal["file", "int8"]
"""What the stock column is about: the file as it is, or the int8 file that the usual
converter would write of it.
"""


@dataclass(frozen=True)
class Column:
    """One way to run a model.

    Counts of operations and of multiply-accumulates; times are estimates in ms.

    Where the stock column is about an int8 file, what converts inputs and outputs is
    among the operations of no column. uncertain_ops: those of which the evidence does
    not say whether the compiler maps them.
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
        """The whole model, one piece after the other."""
        return self.tpu_ms + self.cpu_ms

    @property
    def tpu_ops_share(self) -> float:
        """Of the operations, 0 to 1."""
        return self.tpu_ops / self.ops if self.ops else 0.0

    @property
    def tpu_macs_share(self) -> float:
        """Of the multiply-accumulates, 0 to 1."""
        return self.tpu_macs / self.macs if self.macs else 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields and what follows from them."""
        shares = {
            "tpu_ops_share": self.tpu_ops_share,
            "tpu_macs_share": self.tpu_macs_share,
        }
        return {**self.__dict__, **shares, "est_ms": self.est_ms}


@dataclass(frozen=True)
class Stock:
    """What edgetpu_compiler alone would make of a model; every_set: with its option -a,
    which maps all sets.

    assumed: the file that it is given, in words. gives_up: why it would make nothing of
    it; or None.
    """

    basis: Basis
    assumed: str
    column: Column
    every_set: Column
    gives_up: str | None = None


@dataclass(frozen=True)
class StockComparison:
    """The columns. cpu_only: without an Edge TPU. stock: None where there is no Edge
    TPU, or nothing to compare.
    """

    cpu_only: Column
    stock: Stock | None
    edgec: Column

    def gain(self) -> dict[str, float] | None:
        """edgec against the stock compiler: differences of the shares, ms saved, and
        how many times as fast.
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
        """As docs/explain-schema.md says."""
        s = self.stock
        return {
            "basis": s.basis if s else None,
            "stock_assumed": s.assumed if s else None,
            "stock_gives_up": s.gives_up if s else None,
            "cpu_only": self.cpu_only.to_json(),
            "stock": s.column.to_json() if s else None,
            "stock_every_set": s.every_set.to_json() if s else None,
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
    """The column of a graph in regions. answers: what the rules say of its ops, where
    there is an Edge TPU.

    outside: ops that take time but do not count.
    """
    tpu = [r for r in parts if r.place == "edgetpu"]
    return Column(
        ops=sum(op not in outside for r in parts for op in r.ops),
        macs=sum(map(_macs, parts)),
        tpu_ops=sum(op not in outside for r in tpu for op in r.ops),
        tpu_macs=sum(map(_macs, tpu)),
        tpu_segments=len(tpu),
        uncertain_ops=sum(answer == "uncertain" for answer in answers.values()),
        tpu_ms=sum(Costs(link, cpu).tpu_ms(parts)) if link is not None else 0.0,
        cpu_ms=sum(cpu_ms(r, cpu) for r in parts if r.place == "cpu"),
    )


def _macs(region: Region) -> int:
    return sum(op.spec.macs(op) for op in region.ops)


def cpu_only(graph: Graph, cpu: CpuCost, outside: Set[Op] = frozenset()) -> Column:
    """Everything on the CPU; outside: as in `column`."""
    return column(
        regions(graph, dict.fromkeys(graph.ops, "cpu")),
        {},
        cpu.within(graph),
        None,
        outside,
    )


def uncounted(graph: Graph, stock: Stock | None) -> Set[Op]:
    """The ops that convert inputs and outputs, if those are outside of the stock
    column's file too.
    """
    if stock is not None and stock.basis == "int8":
        return borders(graph)
    return frozenset()


AS_IT_IS = "the file as it is"


def stock_of_graph(graph: Graph, cpu: CpuCost, link: Link, assumed: str) -> Stock:
    """Of an int8 graph that is what a converter would write (see converter.py), and
    `assumed` says which.

    What converts its inputs and outputs is no operator of the file. From and to float
    it is timed all the same, for edgec does it too; but nobody who holds images
    channels-last would transpose them. Where the evidence does not say whether an op
    maps, it is taken to: edgec is to gain nothing by our not knowing.
    """
    outside = borders(graph)
    cpu = cpu.within(graph)
    unpaid = sum(cpu.op_ms(op) for op in outside if isinstance(op.spec, Transpose))
    answers = {
        op: Verdict(refusals(op)).answer for op in graph.ops if op not in outside
    }

    def of(all_sets: bool) -> Column:
        places = stock_places(graph, all_sets, outside, optimistic=True)
        every = column(regions(graph, places), answers, cpu, link, outside)
        return replace(every, cpu_ms=every.cpu_ms - unpaid)

    reason = gives_up(op for op in graph.ops if op not in outside)
    return Stock("int8", assumed, of(False), of(True), reason)


def stock_of_file(
    operators: Sequence[SourceOperator], cpu: CpuCost, link: Link
) -> Stock:
    """Of a TFLite file as it is. One of the file's operators counts as one."""
    graph, owner = whole(operators)
    cpu = cpu.within(graph)

    def of(judged: Sequence[SourceOp]) -> Column:
        places: Places = {
            op: "edgetpu" if judged[i].stock == "mapped" else "cpu"
            for op, i in owner.items()
        }
        times = column(regions(graph, places), {}, cpu, link)
        taken = [s for s in judged if s.stock == "mapped"]
        return Column(
            ops=len(judged),
            macs=sum(s.macs for s in judged),
            tpu_ops=len(taken),
            tpu_macs=sum(s.macs for s in taken),
            tpu_segments=times.tpu_segments,
            uncertain_ops=sum(s.verdict == "uncertain" for s in judged),
            tpu_ms=times.tpu_ms,
            cpu_ms=times.cpu_ms,
        )

    judged = judge(operators)
    aborting = next((s for s in judged if s.rule == ABORT and s.verdict == "cpu"), None)
    if aborting:
        reason = f"operator {aborting.index}, {aborting.opcode}: {aborting.seen}"
    else:
        reason = None
    return Stock(
        "file", AS_IT_IS, of(judged), of(judge(operators, all_sets=True)), reason
    )


def whole(operators: Sequence[SourceOperator]) -> tuple[Graph, dict[Op, int]]:
    """The operators' own graphs as one, fit for estimates only, and whose (by place in
    `operators`) each op is.
    """
    graph = Graph("file")
    owner = dict[Op, int]()
    known: dict[str, Value] = {}
    for i, o in enumerate(operators):
        twin = {v: v for v in o.graph.values() if v.const is not None}
        for v in o.graph.inputs:
            if v.name not in known:
                known[v.name] = Value(v.name, v.type)
                graph.inputs.append(known[v.name])
            twin[v] = known[v.name]
        for v in o.graph.outputs:
            twin[v] = known.setdefault(v.name, Value(v.name, v.type))
        for op in o.graph.ops:
            inner = [
                twin.setdefault(v, Value(v.name, v.type))
                for v in (*op.inputs, *op.outputs)
            ]
            copy = Op(
                op.spec, inner[: len(op.inputs)], inner[len(op.inputs) :], op.source
            )
            graph.ops.append(copy)
            owner[copy] = i
    read = {v for op in graph.ops for v in op.inputs}
    graph.outputs = [v for op in graph.ops for v in op.outputs if v not in read]
    return graph, owner
