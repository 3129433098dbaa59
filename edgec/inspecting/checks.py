"""Reads back what a compile checked, as the manifest records it (docs/bundle.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edgec_devices.decoding import from_json

from edgec.errors import BundleError, InputError
from edgec.measure.agreement import Agreement
from edgec.quantize.observe.layers import LayerNoise
from edgec.quantize.observe.verification import SegmentCheck, Verification


@dataclass(frozen=True)
class _RecordedAgreement:
    """An `Agreement`; JSON has null in place of an infinite figure."""

    cosine: float | None
    sqnr_db: float | None
    samples: int
    top1: float | None = None
    centred_cosine: float | None = None
    centred_sqnr_db: float | None = None

    def agreement(self) -> Agreement:
        """Return the figures, null as infinity."""
        # A cosine is never infinite: an output with NaN has none.
        cosine = math.nan if self.cosine is None else self.cosine
        sqnr_db = math.inf if self.sqnr_db is None else self.sqnr_db
        figures = asdict(self)
        return Agreement(**{**figures, "cosine": cosine, "sqnr_db": sqnr_db})


@dataclass(frozen=True)
class _RecordedNoise:
    """A `LayerNoise`; JSON has null in place of an infinite ratio."""

    value: str
    kind: str
    source: str
    part: str
    own_sqnr_db: float | None
    sqnr_db: float | None

    def noise(self) -> LayerNoise:
        """Return the ratios, null as infinity."""
        own = math.inf if self.own_sqnr_db is None else self.own_sqnr_db
        whole = math.inf if self.sqnr_db is None else self.sqnr_db
        return LayerNoise(self.value, self.kind, self.source, self.part, own, whole)


@dataclass(frozen=True)
class _RecordedChecks:
    """The object `verification` of a manifest."""

    samples: int
    exact_samples: int
    source: str
    calibration_samples: int
    seen_by_calibration: bool
    reference: str
    quantized: bool
    segments: tuple[SegmentCheck, ...] = ()
    whole: dict[str, _RecordedAgreement] = field(default_factory=dict)
    worst_layer: _RecordedNoise | None = None
    not_run: str = ""
    float16: tuple[str, ...] = ()


def recorded(verification: Mapping[str, Any], at: str) -> Verification | None:
    """Return the checks of a manifest; None where it has none.

    at: the bundle, for the message. Raises BundleError for a value of a wrong type.
    """
    if not verification:
        return None
    # Decoded once more with types: the manifest's reader leaves this object as it is.
    data = json.dumps(dict(verification)).encode()
    hint = "compile the model again"
    message = 'the "verification" of the manifest'
    try:
        checks = from_json(data, _RecordedChecks, message, at, hint)
    except InputError as e:
        raise BundleError(e.what, at=e.at, hint=e.hint) from e

    # A bundle was written, so there were no failures.
    worst = checks.worst_layer
    return Verification(
        samples=checks.samples,
        exact=checks.exact_samples,
        source=checks.source,
        calibrated=checks.calibration_samples,
        seen=checks.seen_by_calibration,
        reference=checks.reference,
        segments=checks.segments,
        whole={name: row.agreement() for name, row in checks.whole.items()},
        quantized=checks.quantized,
        worst=None if worst is None else worst.noise(),
        not_run=checks.not_run,
        float16=checks.float16,
    )
