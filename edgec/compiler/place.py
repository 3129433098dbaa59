"""Where the ops of a graph run on a target, and what that costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from edgec_devices.boards import Target
from edgec_partitioner.choice import Wishes
from edgec_partitioner.comparison import column
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import Partition, partition
from edgec_partitioner.regions import Region
from edgec_partitioner.segments import segment

from edgec.compiler.optimise import disabled, simplify
from edgec.emit.tflite import write_tflite
from edgec.errors import InputError
from edgec.ir import Graph, Op, Refusal, Value
from edgec.options.compile import Options
from edgec.quantize.float_ops.limits import Price, Pricer
from edgec.quantize.select.apply import QuantizedModel
from edgec.toolchain.edgetpu.own import OwnRunner

_MIN_SHARE_CHANGE = 0.0005
"""The smallest change of the Edge TPU's part of the MACs that is reported."""
_MIN_TIME_CHANGE = 0.005
"""The smallest slowdown that is reported, as a part of the time."""


def place(graph: Graph, target: Target, wishes: Wishes) -> Partition:
    """Split a graph into segments for a target."""
    coral = target.board.coral if target.coral else None
    return partition(graph, coral, cpu_cost(target), wishes)


def wishes_of(options: Options) -> Wishes:
    """Return the wishes of a person about the Edge TPU's share."""
    _, rewrites_off = disabled(options.disable)
    everything = options.edgetpu == "all"
    return Wishes(options.optimistic, rewrites_off, everything=everything)


def cpu_cost(target: Target) -> CpuCost:
    """Return the cost model of the CPU on a target's board."""
    return CpuCost.of(target.board)


def pricer(target: Target, wishes: Wishes, passes_off: Collection[str]) -> Pricer:
    """Return a function that estimates the cost of a quantized graph on a target."""

    def price(graph: Graph) -> Price:
        # Candidates are priced as they would be compiled: simplified, on a copy, since
        # the passes change a graph in place.
        simplified = simplify(graph.copy(), passes_off)
        parts = place(simplified, target, wishes)
        cpu = cpu_cost(target).within(parts.graph)
        estimate = column(parts.regions, {}, cpu, parts.link)
        has_edgetpu = parts.link is not None
        tpu_share = estimate.tpu_macs_share if has_edgetpu else None
        return Price(estimate.est_ms, tpu_share)

    return price


def costs(result: QuantizedModel) -> Iterator[str]:
    """Yield a note if the candidate that was kept costs more than the guard.

    It costs more if it has less on the Edge TPU, or is slower.
    """
    if result.prices is None:
        return
    first_price, price = result.prices
    name = result.candidate.name
    first = result.trials[0]
    db = {trial.name: trial.db for trial in result.trials}
    gain_db = db[name] - first.db
    time = (
        f"an estimated {price.ms:.2f} ms in place of {first_price.ms:.2f}, "
        f"and buys {gain_db:.1f} dB"
    )

    # One note is enough: what leaves the Edge TPU is the reason for the time too.
    share = price.tpu_share
    first_share = first_price.tpu_share
    if (
        share is not None
        and first_share is not None
        and share <= first_share - _MIN_SHARE_CHANGE
    ):
        shares = (
            f"keeps {share:.1%} of the MACs on the Edge TPU, "
            f"{first.name} would keep {first_share:.1%}"
        )
        yield f"{name} {shares}: it costs {time} on held-back samples"
    elif price.ms > first_price.ms * (1 + _MIN_TIME_CHANGE):
        yield f"{name} takes {time} over {first.name} on held-back samples"


def unwritten(graph: Graph) -> Mapping[str, Refusal]:
    """Return the refusals of the ops of which edgec writes no program for the Edge TPU
    (`--edgetpu-compiler own`), by their results.
    """
    reasons = {op: _not_written(op) for op in graph.ops}
    # Conversions before and after a layer cost nothing in its program.
    border = {v for op, why in reasons.items() if not why for v in _ends(op)}
    for op in (*graph.ops, *reversed(graph.ops)):
        if reasons[op] and _changes_type_alone(op) and border.intersection(_ends(op)):
            reasons[op] = ""
            border.update(_ends(op))
    rule = "edgec writes programs of int8 fully connected layers alone"
    return {
        op.outputs[0].name: Refusal("own program", rule, why, "use edgetpu_compiler")
        for op, why in reasons.items()
        if why
    }


def _not_written(op: Op) -> str:
    """Return why edgec writes no program of an op by itself; "" if it does."""
    if op.kind != "fully_connected" or not op.outputs[0].type.is_quantized:
        return f"it is a {op.kind} with results of {op.outputs[0].type.dtype}"
    inputs = tuple(v for v in op.inputs if v.const is None)
    alone = segment("seg0", Region("edgetpu", (op,), inputs, tuple(op.outputs)))
    try:
        OwnRunner().compile({alone.name: write_tflite(alone.in_tflite)})
    except InputError as e:
        return e.what
    return ""


def _ends(op: Op) -> tuple[Value, Value]:
    """Return the first input and the first output of an op."""
    return op.inputs[0], op.outputs[0]


def _changes_type_alone(op: Op) -> bool:
    """Return whether an op makes uint8 of int8 or the reverse, which the chip does not
    see.
    """
    ends = [v.type for v in (op.inputs[0], op.outputs[0])]
    if op.kind != "quantize" or not all(t.is_quantized for t in ends):
        return False
    first, last = ((t.scale, t.zero_point + 128 * (t.dtype == "int8")) for t in ends)
    return first == last


def left_in_float(result: QuantizedModel) -> Mapping[str, Refusal]:
    """Return the refusals of the ops that stay float for accuracy, by their results.

    A person, or a person's limits, wanted these ops in float.
    """
    why = "left in float32, so that the model keeps its accuracy"
    fix = "allow it to lose more (--accuracy), or leave it out of --float-ops"
    meaning = "what int8 would hurt too much stays float32"
    refusal = Refusal("precision", meaning, why, fix)
    return dict.fromkeys(result.float_ops, refusal)
