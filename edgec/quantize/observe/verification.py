"""The results of the check after a compile.

The check compares each segment with `interp`, the reference of the arithmetic, and the
whole bundle with the model before quantization.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgec.measure.agreement import LOW_COSINE, LOW_SQNR_DB, Agreement
from edgec.quantize.observe.layers import LayerNoise


@dataclass(frozen=True)
class SegmentCheck:
    """The distance of one way of running a segment from `interp`.

    Attributes:
        segment: the name of the segment.
        place: the place that it is for: the CPU or the Edge TPU.
        how: the way in which it ran.
        error: the largest difference over all samples and outputs, in steps for
            integers, as a part of the output's range for floats.
        limit: the largest difference that is allowed.
        samples: the number of inputs.
        value: the value with that difference, if it is not an output.
    """

    segment: str
    place: str
    how: str
    error: float
    limit: float
    samples: int = 1
    value: str = ""

    def __str__(self) -> str:
        """Return the difference and its limit, for a message."""
        where = f"{self.value} of {self.segment}" if self.value else self.segment
        return (
            f"{where} as {self.how} is {self.error:.3g} from the reference, "
            f"{self.limit:.3g} allowed"
        )

    @property
    def ok(self) -> bool:
        """Whether the difference is allowed."""
        return self.error <= self.limit

    @property
    def beyond(self) -> float:
        """The error in units of its limit: above 1 it is too large.

        Of several checks of one segment the one with the largest is reported.
        """
        if self.limit == 0:
            return math.inf if self.error > 0 else 0.0
        return self.error / self.limit


@dataclass(frozen=True)
class Verification:
    """Everything that was checked.

    Attributes:
        samples: the number of samples on which each output was compared.
        exact: the most samples on which segments were compared with `interp`.
        source: where the samples are from, for people.
        calibrated: the number of samples that the scales are from.
        seen: whether the samples are among those of calibration.
        reference: what ran the model before quantization ("C", "interp").
        segments: the comparisons with `interp`.
        whole: the agreement of each output with the model before quantization.
        quantized: whether edgec quantized the model.
        worst: the operation that loses most; None where edgec did not quantize.
        not_run: the code that was not tried, and why; "" where all code was.
        failures: the errors of the generated code; with any there is no bundle.
        unlike: the outputs too far from the model's own; with any there is no bundle.
        float16: what differs too much where floats are float16; an error unless a person
            asked for float16.
        float16_ops: the operations whose float16 is beyond rounding by itself, by their
            first outputs.
        not_finite: the first value of the model itself with an infinity or a NaN, on a
            sample whose outputs are not finite; "" where all outputs are.
    """

    samples: int
    exact: int
    source: str
    calibrated: int
    seen: bool
    reference: str
    segments: tuple[SegmentCheck, ...]
    whole: Mapping[str, Agreement]
    quantized: bool
    worst: LayerNoise | None
    not_run: str = ""
    failures: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    float16: tuple[str, ...] = ()
    float16_ops: tuple[str, ...] = ()
    not_finite: str = ""

    @property
    def ok(self) -> bool:
        """Whether the bundle may be written."""
        return not self.failures and not self.unlike

    def low(self) -> dict[str, list[str]]:
        """Return the outputs with low figures, and these figures as text.

        A model that edgec did not quantize has none: its accuracy is its author's.
        """
        if not self.quantized:
            return {}

        all_misses = {name: a.misses() for name, a in self.whole.items()}

        return {name: misses for name, misses in all_misses.items() if misses}

    def to_json(self) -> dict[str, Any]:
        """Return the checks for the manifest (docs/bundle.md)."""
        return {
            "samples": self.samples,
            "exact_samples": self.exact,
            "source": self.source,
            "calibration_samples": self.calibrated,
            "seen_by_calibration": self.seen,
            "reference": self.reference,
            "quantized": self.quantized,
            # JSON has no infinities; a line of `float16` says that an output is not finite.
            "segments": [asdict(c) for c in self.segments if math.isfinite(c.error)],
            "float16": list(self.float16),
            "not_run": self.not_run,
            "whole": {name: a.as_dict() for name, a in self.whole.items()},
            "marks": {"sqnr_db": LOW_SQNR_DB, "cosine": LOW_COSINE},
            "low": self.low(),
            "worst_layer": None if self.worst is None else self.worst.as_dict(),
        }
