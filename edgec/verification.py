"""The check after each compile: every segment against `interp`, the whole against the model as the file has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from edgec_partitioner.segments import Segment
from edgec_runtime import Bundle, Session

from edgec.ir import Array, Graph, interp
from edgec.quantize.accuracy import Agreement, compare

FLOAT_TOLERANCE = 1e-4
"""Of the output's range: C and numpy add float32 in different orders."""


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
) -> Verification:
    """Run the bundle on the samples in every way that this machine can, and compare.

    original: the graph as imported. source: where the samples are from, for the report. min_cosine: how like `original`
    a model that edgec quantized must be; None for one that it did not, which must agree within rounding.
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
    failures += _whole_failures(original, outputs, wanted, whole, min_cosine)
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
            # a float that differs in its last bit may round to the next integer step
            limit = FLOAT_TOLERANCE if want.dtype.kind == "f" else 1.0 if has_float else 0.0
            checks.append(SegmentCheck(s.name, s.place, how, distance(got, want), limit))
    return outputs


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


def _whole_failures(
    original: Graph,
    outputs: Sequence[Mapping[str, Array]],
    wanted: Sequence[Mapping[str, Array]],
    whole: Mapping[str, Agreement],
    min_cosine: float | None,
) -> list[str]:
    if min_cosine is not None:
        low = [(n, a.cosine) for n, a in whole.items() if not a.cosine >= min_cosine]
        return [f"output {n} has cosine {c:.8g} with the float model, {min_cosine} needed" for n, c in low]
    found: list[str] = []
    for v in original.outputs:
        exact = v.type.dtype != "float32"
        error = max(distance(o[v.name], w[v.name]) for o, w in zip(outputs, wanted, strict=True))
        if error > (0.0 if exact else FLOAT_TOLERANCE):
            found.append(f"output {v.name} is {error:.3g} from the model as imported")
    return found
