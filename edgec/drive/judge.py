"""How near to `interp` code must run, and whether segments do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from edgec_partitioner.segments import Segment

from edgec.ir import Array, Graph, Value, interp
from edgec.quantize.verification import SegmentCheck

FLOAT_TOLERANCE = 1e-4
"""Of the output's range: C and numpy add float32 in different orders."""
ROUNDING_MARGIN = 4.0
WORST_TOLERANCE = 1e-2
"""Beyond FLOAT_TOLERANCE, so many times the graph's own rounding error is allowed, and never more than this."""


class Judge:
    """Compares what segments gave with `interp`, which runs once for the same inputs of a segment."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[str, tuple[bytes, ...]], dict[str, Array]] = {}
        self._checks: dict[tuple[str, str], SegmentCheck] = {}

    def __call__(
        self, s: Segment, tensor: Callable[[str], Array], how: str, keep: Callable[[Value, Array], None] | None = None
    ) -> None:
        """Judge one inference of a segment. tensor: any that it read or wrote, by name. keep: gets what `interp`
        computes, where it has to.
        """
        inputs = {v.name: tensor(v.name) for v in s.graph.inputs}
        key = s.name, tuple(x.tobytes() for x in inputs.values())
        if key not in self._wanted:
            self._wanted[key] = interp(s.graph, inputs, keep)
        has_float = any(v.type.dtype == "float32" for op in s.graph.ops for v in op.outputs)
        found = []
        for name, want in self._wanted[key].items():
            error = distance(tensor(name), want)
            # a float that differs in its last bit may round to the next integer step
            limit = 1.0 if has_float else 0.0
            if want.dtype.kind == "f":
                limit = float_limit(s.graph, inputs, name, want, error)
            found.append(SegmentCheck(s.name, s.place, how, error, limit))
        old = self._checks.get((s.name, how))
        samples = 1 + (old.samples if old else 0)
        worst = max([*found, *([old] if old else [])], key=lambda c: c.error - c.limit)
        self._checks[s.name, how] = replace(worst, samples=samples)

    def worst(self) -> tuple[SegmentCheck, ...]:
        """For each segment and way of running it: the check that is furthest beyond its limit, of all samples."""
        return tuple(self._checks.values())


def float_limit(graph: Graph, inputs: Mapping[str, Array], name: str, want: Array, error: float) -> float:
    """FLOAT_TOLERANCE, or more where the graph itself makes more of rounding: some networks do on some inputs."""
    if error <= FLOAT_TOLERANCE:
        return FLOAT_TOLERANCE
    return max(FLOAT_TOLERANCE, min(ROUNDING_MARGIN * rounding_error(graph, inputs, name, want), WORST_TOLERANCE))


def rounding_error(graph: Graph, inputs: Mapping[str, Array], name: str, want: Array) -> float:
    """How far output `name` moves from `want` when every float constant changes by one unit in its last place.

    That is backward error analysis: sums in another order give what slightly other weights would have given.
    """
    twin, rng = graph.copy(), np.random.default_rng(0)
    for v in twin.constants():
        if v.const is not None and v.type.dtype == "float32":
            toward = rng.choice([-np.inf, np.inf], v.const.shape).astype(np.float32)
            v.const = np.nextafter(v.const, toward)
    return distance(interp(twin, inputs)[name], want)


def distance(got: Array, want: Array) -> float:
    """The largest difference: in steps for integers, as a part of the range of `want` for floats; NaN never agrees."""
    if want.dtype.kind != "f":
        return float(np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0))
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0
    w, g = want[finite].astype(np.float64), got[finite].astype(np.float64)
    span = max(float(w.max() - w.min()), float(np.abs(w).max()), 1e-30)
    return float(np.abs(g - w).max()) / span
