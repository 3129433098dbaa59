"""Partitions graphs for boards with an Edge TPU: the segments must compute what the graph
does, with any of the smaller interfaces, by `interp`, as .tflite and as C.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations

import numpy as np
from edgec_partitioner.choice import INTERFACES, Wishes
from edgec_partitioner.cost import LINKS
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import Partition, partition
from edgec_partitioner.rounding import as_tflite

from benchmarks.fuzzing.ways import Trial, by_c
from edgec.compiler.optimise import simplify
from edgec.compiler.segment_checks import SegmentChecker
from edgec.emit.tflite import write_tflite
from edgec.ir import Array, Graph, Op, Refusal, interp
from edgec.ops.uint8 import needs_uint8
from edgec.passes.pipeline import optimize
from edgec.quantize import is_quantized, quantize
from tests.harness import NO_REFERENCE, run_tflite
from tests.schedule.runner import PORTS

_REFUSAL = Refusal("edgetpu_compiler", "drawn", "drawn", None)
_CLOCKS_GHZ = (1e-3, 1e-3, 0.1, 1.8)
"""Clocks of a CPU so slow that the Edge TPU runs all that it can, and of faster ones."""
_CALIBRATED = ("conv2d", "depthwise_conv2d", "fully_connected")
"""Float graphs with such an op are quantized first."""


def by_edgetpu(trials: Sequence[Trial]) -> list[list[str]]:
    """Return the failures of each trial; the C of all segments is one program."""
    wrong: list[list[str]] = []
    segments: list[list[Trial]] = []
    for trial in trials:
        segments.append([])
        try:
            wrong.append(list(_placed(trial, segments[-1])))
        except Exception as e:
            wrong.append([f"{type(e).__name__}: {str(e)[:400]}"])
    found = iter(by_c([s for some in segments for s in some]))
    for why, some in zip(wrong, segments, strict=True):
        for segment in some:
            why += [f"{segment.graph.name} as C: {w}" for w in next(found)]
    return wrong


def _placed(trial: Trial, segments: list[Trial]) -> Iterator[str]:
    """Yield the failures of a graph's segments, and add those for C to a list."""
    graph, inputs = _lowered(trial)
    if graph is None:
        return
    with np.errstate(all="ignore"):
        want = interp(as_tflite(graph), inputs)
    ends = [(v.name, v.type) for v in graph.outputs]
    parts = None
    flat: list[str] = []
    for disabled in _subsets(INTERFACES):
        parts = _partition(graph, trial, disabled)
        without = f"without {', '.join(disabled) or 'nothing'}"
        if [(v.name, v.type) for v in parts.graph.outputs] != ends:
            yield f"{without}: the outputs are others"
        flat = []
        values = _chained(parts, inputs, flat)
        for name, y in want.items():
            if not np.array_equal(values[name], y, equal_nan=y.dtype.kind == "f"):
                yield f"{without}: {name} of the segments is not that of the graph"
    assert parts is not None
    for s in parts.segments:
        if s.place != "edgetpu":
            continue
        given = {v.name: values[v.name] for v in s.graph.inputs}
        if max(len(s.graph.inputs), len(s.graph.outputs)) <= PORTS:
            segments.append(Trial(s.graph, given, trial.manner))
        if s.name not in flat:
            yield from _as_tflite(s.graph, given, values)


def _lowered(trial: Trial) -> tuple[Graph | None, Mapping[str, Array]]:
    """Return the graph that a compile partitions, with inputs; None if it is float."""
    graph = optimize(trial.graph.copy())
    inputs = {v.name: trial.inputs[v.name] for v in graph.inputs}
    if not is_quantized(graph):
        if graph.state or not any(op.kind in _CALIBRATED for op in graph.ops):
            return None, inputs
        if not all(np.isfinite(a).all() for a in trial.values.values()):
            return None, inputs
        graph = simplify(quantize(graph, [inputs]), ())
    return graph, inputs


def _partition(graph: Graph, trial: Trial, disabled: Collection[str]) -> Partition:
    """Return the segments for a board.

    Some ops are refused for the Edge TPU, drawn by their names, so that they are refused in
    a smaller graph too.
    """
    seed = zlib.crc32(f"{trial.graph.name} {trial.manner}".encode())
    rng = np.random.default_rng(seed)
    share = rng.choice([0.0, 0.0, 0.1, 0.3])
    refused: dict[str, Refusal] = {}
    for op in graph.ops:
        name = op.outputs[0].name
        if zlib.crc32(f"{seed} {name}".encode()) / 2**32 < share:
            refused[name] = _REFUSAL
    wishes = Wishes(
        optimistic=bool(rng.random() < 0.2),
        disabled=disabled,
        refused=refused,
        everything=bool(rng.random() < 0.2),
    )
    link = str(rng.choice(sorted(LINKS)))
    return partition(graph, link, CpuCost(float(rng.choice(_CLOCKS_GHZ))), wishes)


def _chained(
    parts: Partition, inputs: Mapping[str, Array], flat: list[str]
) -> dict[str, Array]:
    """Return the values between segments; add segments that end LiteRT to a list."""
    values = dict(inputs)
    with np.errstate(all="ignore"):
        for s in parts.segments:
            checker = SegmentChecker()
            given = {v.name: values[v.name] for v in s.graph.inputs}
            values.update(interp(s.graph, given, checker.observer(s)))
            flat += checker.ends_litert
    return values


def _as_tflite(
    graph: Graph, inputs: Mapping[str, Array], values: Mapping[str, Array]
) -> Iterator[str]:
    """Yield the failures of the .tflite file of an Edge TPU segment."""
    empty = any(v.type.size == 0 for v in graph.values())
    if empty or (needs_uint8(graph) and any(map(_is_of_int8, graph.ops))):
        return
    write_tflite(graph)
    if any(op.kind in NO_REFERENCE for op in graph.ops):
        return
    try:
        got = run_tflite(graph, inputs)
    except RuntimeError as e:
        if "failed to invoke" not in str(e):
            raise
        return  # LiteRT refuses some numbers, such as a negative one below a root
    for v in graph.outputs:
        if not np.array_equal(got[v.name], values[v.name]):
            yield f"{graph.name} as TFLite: {v.name} is not that of interp"


def _is_of_int8(op: Op) -> bool:
    """Return whether TFLite has no such op of uint8."""
    by_channel = any(
        v.type.quant is not None and v.type.quant.axis is not None and v.type.rank > 1
        for v in op.inputs
    )
    return by_channel or op.kind == "squared_difference"


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield all subsets, the empty one last."""
    sizes = range(len(names), -1, -1)
    return chain.from_iterable(combinations(names, n) for n in sizes)
