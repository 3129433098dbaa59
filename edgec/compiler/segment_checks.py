"""The comparison of segments with `interp`, and its tolerances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from edgec_partitioner.segments import Segment

from edgec.ir import Array, Graph, Value, interp
from edgec.measure.distance import distance, root_mean_square
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.softmax import Softmax
from edgec.quantize.observe.verification import SegmentCheck

FLOAT_TOLERANCE = 1e-4
"""The allowed error of a float output, as a part of its range.

C and numpy add float32 in different orders.
"""
ROUNDING_MARGIN = 4.0
"""Allowed error beyond FLOAT_TOLERANCE, in multiples of the graph's rounding error."""
WORST_TOLERANCE = 1e-2
"""The largest allowed error of any float output, as a part of its range."""
MIXED_TOLERANCE = 0.02
"""The allowed RMS error, as a part of the range, if int8 ops read floats.

The last bit of a float decides between two integer steps there. A few such decisions
move a network's output by as much as quantization does, and single elements by all of
their range; some samples have many of them and others none. So such a segment is also
compared op by op (`op_by_op`).
"""
WORST_MIXED_TOLERANCE = 0.25
"""The largest allowed RMS error of a mixed segment, as a part of the range."""
FLOAT16_TOLERANCE = 0.02
"""The allowed RMS error of an output that is computed with float16, as a part of its
range.

The sums of kernels are rounded to float16 on the way, those of `interp` at the end. Each
op is compared by itself as well (`op_by_op`).
"""
PERTURBATIONS = 4
"""Graphs with other last bits that show how far the output of a mixed graph moves."""
POSITIONS = ("int32", "int64")
"""Types of positions in a tensor."""
INT8_STEPS = 255
"""The range of an int8 tensor, in steps."""


class SegmentChecker:
    """Compares the results of segments with `interp`.

    Attributes:
        ends_litert: the segments of which LiteRT cannot run what was run so far
    """

    def __init__(self) -> None:
        self.ends_litert: set[str] = set()
        # Results of `interp` by graph, which lives as long as its segment, and inputs.
        self._wanted: dict[tuple[int, tuple[bytes, ...]], dict[str, Array]] = {}
        self._checks: dict[tuple[str, str], SegmentCheck] = {}

    def __call__(
        self,
        s: Segment,
        tensor: Callable[[str], Array],
        how: str,
        keep: Callable[[Value, Array], None] | None = None,
    ) -> None:
        """Check one inference of a segment.

        tensor: returns an input or output of the segment, by name. how: the executor of
        the segment. keep: receives the values of `interp`, if it runs.
        """
        inputs = {v.name: tensor(v.name) for v in s.graph.inputs}
        # C, TFLite and the emulated board often have the same inputs: `interp` is slow.
        key = id(s.graph), tuple(x.tobytes() for x in inputs.values())
        if key not in self._wanted:
            self._wanted[key] = interp(s.graph, inputs, self.observer(s, keep))

        # A model whose outputs are its inputs has a segment without outputs.
        worst = SegmentCheck(s.name, s.place, how, 0.0, 0.0)
        checks = []
        for name, want in self._wanted[key].items():
            error, limit = output_error(s.graph, inputs, name, tensor(name), want)
            checks.append(SegmentCheck(s.name, s.place, how, error, limit))
        self.add([max(checks, key=lambda c: c.beyond, default=worst)])

    def observer(
        self, s: Segment, keep: Callable[[Value, Array], None] | None = None
    ) -> Callable[[Value, Array], None]:
        """Return an observer of `interp` that notes what ends LiteRT.

        keep: another observer.
        """
        functions: dict[Value, Softmax] = {}
        for op in s.graph.ops:
            if isinstance(op.spec, Softmax):
                functions[op.inputs[0]] = op.spec

        def observe(v: Value, array: Array) -> None:
            """Note a segment, and pass the value on."""
            if v in functions and functions[v].ends_litert(array, v.type):
                self.ends_litert.add(s.name)
            if keep is not None:
                keep(v, array)

        return observe

    def add(self, checks: Sequence[SegmentCheck]) -> None:
        """Take in the checks of one more sample, at most one of a segment and executor."""
        for check in checks:
            key = check.segment, check.how
            before = self._checks.get(key, replace(check, samples=0))
            worst = max(before, check, key=lambda c: c.beyond)
            self._checks[key] = replace(worst, samples=before.samples + 1)

    def worst(self) -> tuple[SegmentCheck, ...]:
        """Return the check furthest beyond its limit, for each segment and way."""
        return tuple(self._checks.values())


def output_error(
    graph: Graph, inputs: Mapping[str, Array], name: str, got: Array, want: Array
) -> tuple[float, float]:
    """Return how far an output of a graph is from `interp`, and how far it may be."""
    is_float = want.dtype.kind == "f"
    if computes_float16(graph) and (is_float or selects_by_floats(graph)):
        # Of two nearly equal scores the other one may come first.
        selects = selects_by_floats(graph)
        limit = WORST_MIXED_TOLERANCE if selects else FLOAT16_TOLERANCE
        return root_mean_square(got, want), limit * _range_in_steps(want)

    error = distance(got, want)
    # A float that differs in its last bit may round to the next integer step.
    has_float = any(v.type.np_dtype.kind == "f" for op in graph.ops for v in op.outputs)
    usual = FLOAT_TOLERANCE if is_float else float(has_float)
    if error <= usual or not decides_by_floats(graph):
        if is_float:
            return error, float_limit(graph, inputs, name, want, error)
        return error, usual

    return amplified_error(graph, inputs, name, got, want)


def computes_float16(graph: Graph) -> bool:
    """Return whether any op computes with float16."""
    outputs = (v for op in graph.ops for v in op.outputs)
    return any(v.type.dtype == "float16" for v in outputs)


def amplified_error(
    graph: Graph, inputs: Mapping[str, Array], name: str, got: Array, want: Array
) -> tuple[float, float]:
    """Return the RMS error of an output of a graph that amplifies the last bit of a
    float, and its limit.

    It is the mean instead of the worst element: a few decisions may move single
    elements by all of their range.
    """
    unit = _range_in_steps(want)
    moved = 0.0
    for seed in range(PERTURBATIONS):
        perturbed = _perturbed(graph, inputs, name, seed)
        moved = max(moved, root_mean_square(perturbed, want))
    limit = max(MIXED_TOLERANCE * unit, ROUNDING_MARGIN * moved)
    return root_mean_square(got, want), min(limit, WORST_MIXED_TOLERANCE * unit)


def _range_in_steps(want: Array) -> float:
    """Return the range of an output in the unit of its distance."""
    if want.dtype.kind == "f":
        return 1.0
    # Class numbers use little of their type's range, quantized values all of it.
    if want.dtype.itemsize > 1:
        return float(np.ptp(want)) if want.size else 0.0
    return float(INT8_STEPS)


def decides_by_floats(graph: Graph) -> bool:
    """Return whether the last bit of a float decides between results far apart."""
    return rounds_floats(graph) or selects_by_floats(graph)


def selects_by_floats(graph: Graph) -> bool:
    """Return whether ops read positions that were chosen by the order of floats.

    The last bit decides which of two nearly equal scores is the higher one, and so the
    row in which a box of a detector stands.
    """
    computed: set[Value] = set()
    chosen: set[Value] = set()
    for op in graph.ops:
        if any(v in chosen for v in op.inputs):
            return True
        for v in op.outputs:
            if v.type.np_dtype.kind == "f":
                computed.add(v)
            elif v.type.dtype in POSITIONS and op.inputs[0] in computed:
                chosen.add(v)
    return False


def rounds_floats(graph: Graph) -> bool:
    """Return whether integer ops read results of float ops, rounded."""
    computed: set[Value] = set()
    rounded: set[Value] = set()
    for op in graph.ops:
        # An int8 value as a float is exact: quantizing it again changes nothing.
        if isinstance(op.spec, Dequantize):
            continue
        if any(v in rounded for v in op.inputs):
            return True
        for v in op.outputs:
            if v.type.np_dtype.kind == "f":
                computed.add(v)
            elif isinstance(op.spec, Quantize) and op.inputs[0] in computed:
                rounded.add(v)
    return False


def float_limit(
    graph: Graph, inputs: Mapping[str, Array], name: str, want: Array, error: float
) -> float:
    """Return how far a float output may be off, as a part of its range.

    It is FLOAT_TOLERANCE, or more if the graph itself amplifies rounding, as some
    networks do on some inputs.
    """
    # The rounding error costs another run of `interp`, so only a suspect pays for it.
    if error <= FLOAT_TOLERANCE:
        return FLOAT_TOLERANCE
    amplified = ROUNDING_MARGIN * rounding_error(graph, inputs, name, want)
    return max(FLOAT_TOLERANCE, min(amplified, WORST_TOLERANCE))


def rounding_error(
    graph: Graph, inputs: Mapping[str, Array], name: str, want: Array
) -> float:
    """Return how far output `name` moves when every float constant changes by one ulp.

    This is backward error analysis (Wilkinson 1963): sums in another order give the
    exact results of slightly other weights.
    """
    return distance(_perturbed(graph, inputs, name), want)


def _perturbed(
    graph: Graph, inputs: Mapping[str, Array], name: str, seed: int = 0
) -> Array:
    """Return output `name` with every float constant moved by one ulp, up or down."""
    twin = graph.copy()
    # A fixed seed: the same inputs give the same verdict.
    rng = np.random.default_rng(seed)
    for v in twin.constants():
        if v.const is not None and v.type.np_dtype.kind == "f":
            toward = rng.choice([-np.inf, np.inf], v.const.shape)
            v.const = np.nextafter(v.const, toward.astype(v.const.dtype))
    return interp(twin, inputs)[name]
