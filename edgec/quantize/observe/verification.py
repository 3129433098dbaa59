"""What the check after a compile found: whether each segment runs as `interp` does, and
how near the float model is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgec.quantize.observe.accuracy import LOW_COSINE, LOW_SQNR_DB, Agreement
from edgec.quantize.observe.layers import LayerNoise


@dataclass(frozen=True)
class SegmentCheck:
    """How far one way of running a segment is from `interp`, over all samples and
    outputs.

    error: the largest difference, in steps for integers, as a part of the output's
    range for floats. limit: the largest that is allowed. samples: on how many inputs.
    """

    segment: str
    place: str
    how: str
    error: float
    limit: float
    samples: int = 1

    @property
    def ok(self) -> bool:
        """Whether it agrees."""
        return self.error <= self.limit

    @property
    def beyond(self) -> float:
        """By how much the error is above what is allowed; of several checks the one
        with the most tells.
        """
        return self.error - self.limit


@dataclass(frozen=True)
class Verification:
    """All that was checked.

    samples: how many each output was compared on; exact: how many of them segments were
    compared with `interp` on, at most. source: where they are from, for people;
    calibrated: how many samples the scales are from, seen: whether these are among
    them. whole: each output against the model before quantization, which ran as
    `reference` ("C", "interp"). worst: the op that loses most; None where edgec did not
    quantize. not_run: the code that was not tried, and why; "" where all was. failures:
    of the code, unlike: outputs too far from the model's own; with any there is no
    bundle. not_finite: the first of the model's own values that is none, on a sample
    whose outputs are not finite; "" where all are.
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
    not_finite: str = ""

    @property
    def ok(self) -> bool:
        """Whether the bundle may be written."""
        return not self.failures and not self.unlike

    def low(self) -> dict[str, list[str]]:
        """The outputs of a model that edgec quantized whose accuracy is below the
        marks, and by which figures.
        """
        if self.quantized:
            found = {name: a.misses() for name, a in self.whole.items()}
        else:
            found = {}
        return {name: misses for name, misses in found.items() if misses}

    def to_json(self) -> dict[str, Any]:
        """For the manifest (docs/bundle.md)."""
        return {
            "samples": self.samples,
            "exact_samples": self.exact,
            "source": self.source,
            "calibration_samples": self.calibrated,
            "seen_by_calibration": self.seen,
            "reference": self.reference,
            "quantized": self.quantized,
            "segments": [asdict(c) for c in self.segments],
            "not_run": self.not_run,
            "whole": {name: a.as_dict() for name, a in self.whole.items()},
            "marks": {"sqnr_db": LOW_SQNR_DB, "cosine": LOW_COSINE},
            "low": self.low(),
            "worst_layer": None if self.worst is None else self.worst.as_dict(),
        }
