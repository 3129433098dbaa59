"""How near one set of outputs is to another: cosine, signal to quantization noise, and top-1 agreement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from edgec.ir import Array


@dataclass(frozen=True)
class Agreement:
    """Of one output over all samples. `sqnr_db` is inf when they are equal; `top1` None where no class is chosen."""

    cosine: float
    sqnr_db: float
    top1: float | None
    samples: int

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON, which has no infinity: an infinite ratio becomes None."""
        row = asdict(self)
        return {**row, "sqnr_db": None if math.isinf(self.sqnr_db) else self.sqnr_db}

    def __str__(self) -> str:
        top1 = "" if self.top1 is None else f", top-1 {100 * self.top1:.0f} %"
        return f"cosine {self.cosine:.5f}, SQNR {self.sqnr_db:.1f} dB{top1}"


def cosine(a: Array, b: Array) -> float:
    """Of the angle between two arrays taken as vectors; two zero vectors agree (1), a zero and another do not (0)."""
    x, y = (v.reshape(-1).astype(np.float64) for v in (a, b))
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    if norms == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return float(np.clip(x @ y / norms, -1.0, 1.0))


def sqnr_db(reference: Array, got: Array) -> float:
    """10 log10 of the power of `reference` over that of the difference; inf when equal."""
    signal = reference.astype(np.float64)
    noise = float(np.square(signal - got.astype(np.float64)).sum())
    if noise == 0.0:
        return math.inf
    power = float(np.square(signal).sum())
    return 10 * math.log10(power / noise) if power else -math.inf


def compare(pairs: Iterable[tuple[Mapping[str, Array], Mapping[str, Array]]]) -> dict[str, Agreement]:
    """Agreement of each output over pairs (reference outputs, outputs), samples concatenated.

    Top-1 is taken along the last axis where an output is one row of at least two elements per sample.
    """
    runs = list(pairs)
    result: dict[str, Agreement] = {}
    for name in runs[0][0] if runs else ():
        want = np.stack([r[name] for r, _ in runs])
        got = np.stack([g[name] for _, g in runs])
        result[name] = Agreement(cosine(want, got), sqnr_db(want, got), _top1(want, got), len(runs))
    return result


def _top1(want: Array, got: Array) -> float | None:
    """The share of samples whose largest element is at one place; None unless a sample is one row."""
    classes = want.shape[-1] if want.ndim > 1 else 1
    if classes < 2 or want[0].size != classes:
        return None
    a, b = (v.reshape(len(v), -1).argmax(axis=1) for v in (want, got))
    return float((a == b).mean())
