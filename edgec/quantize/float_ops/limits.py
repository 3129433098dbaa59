"""What a person allows int8 to cost, and float32 in its place: the goals and the budget
of precision per op.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgec.errors import InputError
from edgec.quantize.observe.accuracy import Agreement


@dataclass(frozen=True)
class Price:
    """What a quantized graph costs on the target, estimated. tpu_share: of its
    multiply-accumulates, 0 to 1; None where the target has no Edge TPU.
    """

    ms: float
    tpu_share: float | None = None


@dataclass(frozen=True)
class Limits:
    """How far operations are left in float32.

    None: no such limit; with none at all, nothing is left in float.

    Goals, for every output: max_drop: for one that ranks classes, the part of the
    samples of which the first may be another than the float model's; for others, the
    noise, as a part of the power of the output. min_sqnr: dB.

    Budget: max_ms: for one inference. min_tpu_share: of the multiply-accumulates on the
    Edge TPU.
    """

    max_drop: float | None = None
    min_sqnr: float | None = None
    max_ms: float | None = None
    min_tpu_share: float | None = None

    @classmethod
    def of(
        cls,
        max_drop: str | None = None,
        min_sqnr: float | None = None,
        max_ms: float | None = None,
        min_tpu_share: str | None = None,
    ) -> Limits:
        """As people write them: parts with a %.

        Raises InputError for what cannot be.
        """
        if min_sqnr is not None and not math.isfinite(min_sqnr):
            raise InputError(f"no ratio can be {min_sqnr}", "--min-sqnr", "give dB: 20")
        if max_ms is not None and not 0 < max_ms < math.inf:
            raise InputError(
                f"no inference can take {max_ms:g} ms",
                "--max-ms",
                "give milliseconds: 12.5",
            )
        return cls(
            share("--max-drop", max_drop),
            min_sqnr,
            max_ms,
            share("--min-tpu-share", min_tpu_share),
        )

    def __bool__(self) -> bool:
        return any(v is not None for v in asdict(self).values())

    @property
    def goals(self) -> bool:
        """Whether some accuracy is wanted; else what the budget buys is."""
        return self.max_drop is not None or self.min_sqnr is not None

    def needed_db(self, a: Agreement) -> float:
        """The signal to noise that an output needs, dB; -inf where that does not
        matter.
        """
        needed = -math.inf if self.min_sqnr is None else self.min_sqnr
        if self.max_drop is not None and a.top1 is None:
            needed = max(
                needed, -10 * math.log10(self.max_drop) if self.max_drop else math.inf
            )
        return needed

    def misses(self, outputs: Mapping[str, Agreement]) -> Iterator[str]:
        """The outputs that do not reach a goal, in words."""
        for name, a in outputs.items():
            if (
                self.max_drop is not None
                and a.top1 is not None
                and 1 - a.top1 > self.max_drop + 1e-9
            ):
                yield (
                    f"{name} has another first class on {1 - a.top1:.1%} of the "
                    f"samples, {self.max_drop:.4g} allowed"
                )
            needed = self.needed_db(a)
            if decibels(a) < needed:
                yield f"{name} has {decibels(a):.1f} dB, {needed:.1f} needed"

    def affords(self, price: Price | None) -> bool:
        """Whether the budget has room for it."""
        if price is None:
            return True
        slow = self.max_ms is not None and price.ms > self.max_ms
        away = (
            self.min_tpu_share is not None
            and (price.tpu_share or 0.0) < self.min_tpu_share - 1e-9
        )
        return not (slow or away)

    def to_json(self) -> dict[str, Any]:
        """Those that there are."""
        return {k: v for k, v in asdict(self).items() if v is not None}


def decibels(a: Agreement) -> float:
    """Signal to noise; about the mean where an output is nearly constant."""
    return a.sqnr_db if a.centred_sqnr_db is None else a.centred_sqnr_db


def share(option: str, text: str | None) -> float | None:
    """Of "0.5%", as a part of 1. Raises InputError for what is none."""
    if text is None:
        return None
    number, sign, rest = text.partition("%")
    try:
        part = float(number) / 100
    except ValueError:
        part = math.nan
    if not sign or rest.strip() or not 0 <= part <= 1:
        raise InputError(
            f"{text} is no part of a whole", option, "give a percentage: 0.5%"
        )
    return part
