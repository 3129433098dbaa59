"""What a change of the model would gain that lets the Edge TPU take refused ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgec.ir import Op, Refusal
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.greedy import connected
from edgec_partitioner.partition import WORTHWHILE, Partition
from edgec_partitioner.regions import Costs, regions
from edgec_partitioner.verdicts import Place


def reason_of(kind: str, refusal: Refusal) -> tuple[str, str]:
    """Return the reason of a refused op: its rule, and what the rule is about.

    Ops with equal reasons are told and mended together. kind: the kind of the op.
    """
    # A region that is not worth its transfers is one group whatever its kinds.
    return refusal.rule, refusal.seen if refusal.rule == WORTHWHILE else kind


def gains(parts: Partition, cpu: CpuCost) -> dict[tuple[str, str], float]:
    """Return the most that mending each reason would gain of an inference, in ms.

    It is by the estimate, and only of reasons that a change of the model removes. An op
    may cut the network, so it can gain more than its own time on the CPU: transfers and
    what the cut left there. Ops beside it that can be mended count as mended.
    """
    if parts.link is None:
        return {}
    places: dict[Op, Place] = {}
    for region in parts.regions:
        places |= dict.fromkeys(region.ops, region.place)
    groups: dict[tuple[str, str], list[Op]] = {}
    movable: list[Op] = []
    for op in parts.graph.ops:
        refusals = parts.verdicts[op].refusals
        if not refusals or places[op] == "edgetpu":
            continue
        first = refusals[0]
        if first.fix:
            groups.setdefault(reason_of(op.kind, first), []).append(op)
        if first.fix or first.rule == WORTHWHILE:
            movable.append(op)

    costs = Costs(parts.link, cpu)
    start_ms = costs.total_ms(regions(parts.graph, places))

    def saved_ms(ops: Iterable[Op]) -> float:
        moved = places | dict.fromkeys(ops, "edgetpu")
        return start_ms - costs.total_ms(regions(parts.graph, moved))

    # Of two neighbours that cut the network neither gains anything alone.
    together: dict[Op, Sequence[Op]] = {}
    for neighbours in connected(movable, parts.graph.producers()):
        together |= dict.fromkeys(neighbours, neighbours)
    result: dict[tuple[str, str], float] = {}
    for reason, ops in groups.items():
        beside = dict.fromkeys(near for op in ops for near in together[op])
        own_ms = sum(cpu.op_ms(op) for op in ops)
        result[reason] = max(own_ms, saved_ms(ops), saved_ms(beside))
    return result
