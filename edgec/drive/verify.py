"""The check after each compile: every segment against `interp`, the whole against the model as the file has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from edgec_partitioner.segments import Segment
from edgec_partitioner.source import judge
from edgec_runtime import Bundle, Session
from edgec_runtime.cache import extract

from edgec.frontends.operators import read_operators
from edgec.ir import Array, Graph, interp
from edgec.quantize.accuracy import Agreement, compare

FLOAT_TOLERANCE = 1e-4
"""Of the output's range: C and numpy add float32 in different orders."""
ROUNDING_MARGIN = 4.0
WORST_TOLERANCE = 1e-2
"""Beyond FLOAT_TOLERANCE, so many times the graph's own rounding error is allowed, and never more than this."""


@dataclass(frozen=True)
class SegmentCheck:
    """How far one way of running a segment is from `interp`, over all samples and outputs.

    error: the largest difference, in steps for integers, as a part of the output's range for floats. limit: the largest
    that is allowed.
    """

    segment: str
    place: str
    how: str
    error: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether it agrees."""
        return self.error <= self.limit


@dataclass(frozen=True)
class Verification:
    """All that was checked. `whole` compares each output with the model before quantization."""

    samples: int
    source: str
    segments: tuple[SegmentCheck, ...]
    whole: Mapping[str, Agreement]
    quantized: bool
    failures: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether the bundle may be written."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "samples": self.samples,
            "source": self.source,
            "quantized": self.quantized,
            "segments": [asdict(c) for c in self.segments],
            "whole": {name: a.as_dict() for name, a in self.whole.items()},
        }


def verify_bundle(
    bundle: Bundle,
    segments: Sequence[Segment],
    original: Graph,
    samples: Sequence[Mapping[str, Array]],
    source: str,
    min_cosine: float | None,
    optimistic: bool = False,
) -> Verification:
    """Run the bundle on the samples in every way that this machine can, and compare.

    original: the graph as imported. source: where the samples are from, for the report. min_cosine: how like `original`
    a model that edgec quantized must be; None for one that it did not, which must agree within rounding. optimistic:
    Edge TPU segments may hold operators of which it is not known whether they map.
    """
    checks: list[SegmentCheck] = []
    with Session(bundle, tpu="c") as session:
        outputs = [_run(session, segments, sample, "C", checks) for sample in samples]
    if any(s.place == "edgetpu" for s in segments):
        with Session(bundle, tpu="interpreter") as session:
            for sample in samples:
                _run(session, [s for s in segments if s.place == "edgetpu"], sample, "TFLite", checks)
    merged = _worst(checks)
    wanted = [interp(original, sample) for sample in samples]
    whole = compare(zip(wanted, outputs, strict=True))
    failures = [
        f"{c.segment} as {c.how} is {c.error:.3g} from interp, {c.limit:.3g} allowed" for c in merged if not c.ok
    ]
    failures += _unmapped(bundle, segments, optimistic)
    if min_cosine is not None:
        low = [(n, a.cosine) for n, a in whole.items() if not a.cosine >= min_cosine]
        failures += [f"output {n} has cosine {c:.8g} with the float model, {min_cosine} needed" for n, c in low]
    else:
        for sample, got, want in zip(samples, outputs, wanted, strict=True):
            failures += _unlike(original, sample, got, want)
    return Verification(len(samples), source, tuple(merged), whole, min_cosine is not None, tuple(failures))


def _run(
    session: Session, segments: Sequence[Segment], sample: Mapping[str, Array], how: str, checks: list[SegmentCheck]
) -> dict[str, Array]:
    """One inference; each segment is judged on the very inputs that it got."""
    outputs = session.run(sample)
    for s in segments:
        inputs = {v.name: session.tensor(v.name) for v in s.graph.inputs}
        wanted = interp(s.graph, inputs)
        has_float = any(v.type.dtype == "float32" for op in s.graph.ops for v in op.outputs)
        for name, want in wanted.items():
            got = session.tensor(name)
            error = distance(got, want)
            # a float that differs in its last bit may round to the next integer step
            limit = 1.0 if has_float else 0.0
            if want.dtype.kind == "f":
                limit = _float_limit(s.graph, inputs, name, want, error)
            checks.append(SegmentCheck(s.name, s.place, how, error, limit))
    return outputs


def _unmapped(bundle: Bundle, segments: Sequence[Segment], optimistic: bool) -> Iterator[str]:
    """What the support rules say against the emitted segments, read back as edgetpu_compiler will read them."""
    for s in segments:
        if s.place == "edgetpu":
            for o in judge(read_operators(extract(bundle, f"segments/{s.name}.tflite"))):
                if o.verdict == "cpu" or (o.verdict == "uncertain" and not optimistic):
                    yield f"operator {o.index} of {s.name} ({o.opcode}) would not map: {o.rule}: {o.seen}"


def _float_limit(graph: Graph, inputs: Mapping[str, Array], name: str, want: Array, error: float) -> float:
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


def _worst(checks: Sequence[SegmentCheck]) -> list[SegmentCheck]:
    """One row per segment and way of running it: the check that is furthest beyond its limit."""
    rows: dict[tuple[str, str], SegmentCheck] = {}
    for c in checks:
        old = rows.get((c.segment, c.how))
        if old is None or c.error - c.limit > old.error - old.limit:
            rows[c.segment, c.how] = c
    return list(rows.values())


def _unlike(
    original: Graph, sample: Mapping[str, Array], got: Mapping[str, Array], want: Mapping[str, Array]
) -> Iterator[str]:
    """What differs from the graph as imported by more than rounding."""
    for v in original.outputs:
        y, error = want[v.name], distance(got[v.name], want[v.name])
        limit = _float_limit(original, sample, v.name, y, error) if y.dtype.kind == "f" else 0.0
        if error > limit:
            yield f"output {v.name} is {error:.3g} from the model as imported, {limit:.3g} allowed"
