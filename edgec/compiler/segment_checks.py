"""How near to `interp` code must run, and whether segments do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from edgec_partitioner.segments import Segment

from edgec.comparing.distance import distance, root_mean_square
from edgec.ir import Array, Graph, Value, interp
from edgec.ops.quantize import Dequantize, Quantize
from edgec.quantize.observe.verification import SegmentCheck

FLOAT_TOLERANCE = 1e-4
"""Of the output's range: C and numpy add float32 in different orders."""
ROUNDING_MARGIN = 4.0
WORST_TOLERANCE = 1e-2
"""Beyond FLOAT_TOLERANCE, so many times the graph's own rounding error is allowed, and
never more than this.
"""
MIXED_TOLERANCE = 0.02
WORST_MIXED_TOLERANCE = 0.25
"""The same where int8 ops read what float ops computed, of the root mean square: a last
bit decides between two steps, and a few such decisions move a network's output by as
much as quantization does, single elements by all of their range; on some samples there
are many of them and on others none. So such a segment is also compared op by op
(`op_by_op`).
"""
_TRIALS = 4
_STEPS = 255


class SegmentChecker:
    """Compares what segments gave with `interp`, which runs once for the same inputs of
    a segment.
    """

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, tuple[bytes, ...]], dict[str, Array]] = {}
        self._checks: dict[tuple[str, str], SegmentCheck] = {}

    def __call__(
        self,
        s: Segment,
        tensor: Callable[[str], Array],
        how: str,
        keep: Callable[[Value, Array], None] | None = None,
    ) -> None:
        """Judge one inference of a segment. tensor: any that it read or wrote, by name.
        keep: gets what `interp` computes, where it has to.
        """
        inputs = {v.name: tensor(v.name) for v in s.graph.inputs}
        key = s.name, tuple(x.tobytes() for x in inputs.values())
        if key not in self._wanted:
            self._wanted[key] = interp(s.graph, inputs, keep)
        found = []
        for name, want in self._wanted[key].items():
            error, limit = _error(s.graph, inputs, name, tensor(name), want)
            found.append(SegmentCheck(s.name, s.place, how, error, limit))
        # one without outputs is of a model whose outputs are its inputs
        self.add(
            [
                max(
                    found,
                    key=lambda c: c.beyond,
                    default=SegmentCheck(s.name, s.place, how, 0.0, 0.0),
                )
            ]
        )

    def add(self, checks: Sequence[SegmentCheck]) -> None:
        """Take in checks of one more sample, one of a segment and way at most."""
        for check in checks:
            old = self._checks.get(
                (check.segment, check.how), replace(check, samples=0)
            )
            self._checks[check.segment, check.how] = replace(
                max(old, check, key=lambda c: c.beyond), samples=old.samples + 1
            )

    def worst(self) -> tuple[SegmentCheck, ...]:
        """For each segment and way of running it: the check that is furthest beyond its
        limit, of all samples.
        """
        return tuple(self._checks.values())


def _error(
    graph: Graph, inputs: Mapping[str, Array], name: str, got: Array, want: Array
) -> tuple[float, float]:
    """How far an output of a segment is from what `interp` computes, and how far it may
    be.
    """
    error = distance(got, want)
    is_float = want.dtype.kind == "f"
    # a float that differs in its last bit may round to the next integer step
    has_float = any(v.type.dtype == "float32" for op in graph.ops for v in op.outputs)
    usual = FLOAT_TOLERANCE if is_float else float(has_float)
    if error <= usual or not rounds_floats(graph):
        return error, float_limit(
            graph, inputs, name, want, error
        ) if is_float else usual
    unit = 1 if is_float else _STEPS
    moved = max(
        root_mean_square(_rounded(graph, inputs, name, seed), want)
        for seed in range(_TRIALS)
    )
    limit = min(
        max(MIXED_TOLERANCE * unit, ROUNDING_MARGIN * moved),
        WORST_MIXED_TOLERANCE * unit,
    )
    return root_mean_square(got, want), limit


def rounds_floats(graph: Graph) -> bool:
    """Whether ops that compute with integers read, rounded, what float ops of the graph
    computed.
    """
    exact = {
        v for op in graph.ops if isinstance(op.spec, Dequantize) for v in op.outputs
    }
    computed = {
        v for op in graph.ops for v in op.outputs if v.type.dtype == "float32"
    } - exact
    rounded = {
        v
        for op in graph.ops
        if isinstance(op.spec, Quantize) and op.inputs[0] in computed
        for v in op.outputs
    }
    return any(
        not isinstance(op.spec, Dequantize) and v in rounded
        for op in graph.ops
        for v in op.inputs
    )


def float_limit(
    graph: Graph, inputs: Mapping[str, Array], name: str, want: Array, error: float
) -> float:
    """FLOAT_TOLERANCE, or more where the graph itself makes more of rounding: some
    networks do on some inputs.
    """
    if error <= FLOAT_TOLERANCE:
        return FLOAT_TOLERANCE
    return max(
        FLOAT_TOLERANCE,
        min(
            ROUNDING_MARGIN * rounding_error(graph, inputs, name, want), WORST_TOLERANCE
        ),
    )


def rounding_error(
    graph: Graph, inputs: Mapping[str, Array], name: str, want: Array
) -> float:
    """How far output `name` moves from `want` when every float constant changes by one
    unit in its last place.

    That is backward error analysis: sums in another order give what slightly other
    weights would have given.
    """
    return distance(_rounded(graph, inputs, name), want)


def _rounded(
    graph: Graph, inputs: Mapping[str, Array], name: str, seed: int = 0
) -> Array:
    """Output `name` with every float constant changed by one unit in its last place."""
    twin = graph.copy()
    rng = np.random.default_rng(seed)
    for v in twin.constants():
        if v.const is not None and v.type.dtype == "float32":
            toward = rng.choice([-np.inf, np.inf], v.const.shape).astype(np.float32)
            v.const = np.nextafter(v.const, toward)
    return interp(twin, inputs)[name]
