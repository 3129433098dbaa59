"""What a comparison found, for people and for files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edgec.comparing.channels import ChannelSums
from edgec.comparing.findings import GRID, LayerFinding, findings, noise_of, other_grid
from edgec.comparing.measure import Measured, ValueRecord
from edgec.comparing.side import Side
from edgec.ir import Array
from edgec.quantize.accuracy import Agreement

SCHEMA = 1
FLOAT_DB = 90.0
"""What is better than this is rounding of float32."""
_FEW = 4
_MANY = 4
_ALIKE_DB = 3.0
"""Of layers that are about as bad the first is named: to the next, its result is
already coarse.
"""


@dataclass(frozen=True)
class Layer:
    """One layer of B against A, in dB of signal to noise; inf: no noise; None: not
    known.

    sqnr_db, centred_db, cosine, max_error: of its result, with all that it inherits;
    centred: about the means of A's channels. own_db, own_centred_db, own_max_error:
    where it reads what A has, rounded as B holds it; centred: about A's mean.
    inherited_db: by what its inputs change. steps: the root mean square of its own
    error, in steps of its result. excess_db: its own noise in the worst channel beyond
    what rounding explains. used: the part of its range that A's values use; clipped:
    the share of them beyond it. law: the largest difference from `interp` on the same
    inputs, in steps (integers) or parts of the range. reads: the values that its op
    reads. low, high: A's extremes. edges, a, b: a histogram.
    """

    index: int
    value: str
    kind: str
    source: str
    part: str
    type: str
    sqnr_db: float
    centred_db: float
    cosine: float
    max_error: float
    own_db: float | None
    own_centred_db: float | None
    own_max_error: float | None
    inherited_db: float | None
    steps: float | None
    excess_db: float | None
    used: float | None
    clipped: float | None
    law: float | None
    low: float
    high: float
    reads: tuple[str, ...] = ()
    findings: tuple[LayerFinding, ...] = ()
    edges: tuple[float, ...] = field(default=(), repr=False)
    a: tuple[int, ...] = field(default=(), repr=False)
    b: tuple[int, ...] = field(default=(), repr=False)

    @property
    def fault(self) -> LayerFinding | None:
        """What it does that no rounding explains."""
        return next((f for f in self.findings if f.fault), None)


@dataclass(frozen=True)
class Culprit:
    """The layer to look at first, why, what would help, and the layers beside that have
    the same fault.
    """

    value: str
    kind: str
    source: str
    why: str
    fix: str
    fault: bool
    finding: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputComparison:
    """An output of the network. centred_db: about the means of A's channels; tops: the
    samples whose largest element is another one, with A's and B's; None where no class
    is chosen.
    """

    agreement: Agreement
    centred_db: float
    max_error: float
    tops: tuple[tuple[int, int, int], ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON. exact: nothing differs."""
        plain = _plain({"centred_db": self.centred_db, "max_error": self.max_error})
        if self.tops is None:
            tops = None
        else:
            tops = [{"sample": s, "a": a, "b": b} for s, a, b in self.tops]
        exact = self.agreement.sqnr_db == math.inf
        return {
            **self.agreement.as_dict(),
            **plain,
            "exact": exact,
            "top1_changed": tops,
        }


@dataclass(frozen=True)
class Diff:
    """Two networks compared. a, b: their names; a_how, b_how: what ran them. layers: in
    the order of B's graph. skipped_a, skipped_b: values that the other has no twin of.
    outputs: by B's names. notes: what to know of it all. names: of the samples; labels:
    of classes, where a bundle has them. task: figures of what a bundle is for
    (`tasks.FIGURES`), kind: what that is.
    """

    a: str
    b: str
    a_how: str
    b_how: str
    inputs: str
    samples: int
    layers: Sequence[Layer]
    skipped_a: Sequence[str]
    skipped_b: Sequence[str]
    outputs: Mapping[str, OutputComparison]
    culprit: Culprit | None
    notes: Sequence[str] = ()
    names: Sequence[str] = ()
    labels: Sequence[str] = ()
    images: Mapping[str, tuple[Array, Array]] = field(default_factory=dict, repr=False)
    kind: str = ""
    task: Mapping[str, float] = field(default_factory=dict)

    def worst(self) -> list[Layer]:
        """Faults first, then by what each loses by itself."""
        return sorted(
            self.layers,
            key=lambda one: (one.fault is None, _known(one.own_centred_db), one.index),
        )

    def least(self) -> float:
        """The lowest SQNR of an output, about its mean where it is nearly constant; inf
        without outputs.
        """
        every = (o.agreement for o in self.outputs.values())
        return min(
            (
                a.sqnr_db if a.centred_sqnr_db is None else a.centred_sqnr_db
                for a in every
            ),
            default=math.inf,
        )

    def to_json(self) -> dict[str, Any]:
        """For a file: docs/diff.md says what is what.

        An infinite ratio is null, as one that is not known.
        """
        layers = [
            {**_plain(asdict(one)), "exact": one.sqnr_db == math.inf}
            for one in self.layers
        ]
        return {
            "schema": SCHEMA,
            "a": {"name": self.a, "how": self.a_how},
            "b": {"name": self.b, "how": self.b_how},
            "inputs": self.inputs,
            "samples": self.samples,
            "outputs": {n: o.as_dict() for n, o in self.outputs.items()},
            "culprit": None if self.culprit is None else asdict(self.culprit),
            "layers": layers,
            "skipped": {"a": [*self.skipped_a], "b": [*self.skipped_b]},
            "notes": [*self.notes],
            "names": [*self.names],
            "labels": [*self.labels],
            "task": {
                "kind": self.kind,
                **{name: round(x, 5) for name, x in self.task.items()},
            }
            if self.kind
            else None,
        }


def result(
    a: Side, b: Side, inputs: str, measured: Measured, notes: Sequence[str] = ()
) -> Diff:
    """What was measured, with its findings and the culprit."""
    known = {s.value.name: s.channels for s in measured.seen}
    shown = [s for s in measured.seen if s.op is not None and s.whole.samples]
    grids = {s.value.name: f for s in shown if (f := other_grid(s)) is not None}
    if len(grids) > len(shown) / _MANY:  # made of other ranges
        grids = {}
    layers = [_layer(s, known, b, grids.get(s.value.name)) for s in shown]
    outputs = {
        n: OutputComparison(
            t.result(), t.channels_sqnr_db(), t.max_error, measured.tops.get(n)
        )
        for n, t in measured.outputs.items()
    }
    faulty = [
        one for one in layers if one.fault is not None and one.fault.kind != "kernel"
    ]
    if len(layers) >= _FEW and len(faulty) > len(layers) / 2:
        notes = [
            *notes,
            "most layers compute something else: these may not be two forms of one "
            "training",
        ]
    return Diff(
        a.name,
        b.name,
        a.how,
        b.how,
        inputs,
        measured.samples,
        layers,
        measured.only_a,
        measured.only_b,
        outputs,
        _culprit(layers),
        notes,
        images=measured.images,
        task=measured.task,
    )


def _layer(
    s: ValueRecord, known: Mapping[str, ChannelSums], b: Side, grid: LayerFinding | None
) -> Layer:
    assert s.op is not None, f"{s.value.name} is no layer's"
    read = [known.get(v.name) for v in s.op.inputs]
    noise = noise_of(s, read, b.complete)
    own = s.own if s.own.samples else None
    law = s.law.error if s.law.samples else None
    return Layer(
        s.index,
        s.value.name,
        s.op.kind,
        s.op.source,
        s.part,
        str(s.value.type),
        s.whole.sqnr_db(),
        s.whole.channels_sqnr_db(),
        s.whole.cosine(),
        s.whole.max_error,
        own.sqnr_db() if own else None,
        own.centred_sqnr_db() if own else None,
        own.max_error if own else None,
        s.inherited.sqnr_db() if own else None,
        noise.steps,
        noise.excess_db,
        s.spread.used(s.value),
        s.spread.clipped(s.value),
        law,
        s.spread.low,
        s.spread.high,
        tuple(v.name for v in s.op.inputs if v.const is None),
        (
            *([grid] if grid is not None else []),
            *findings(s, noise, b.complete, "" if b.same_code else b.how),
        ),
        tuple(np.round(s.spread.edges, 9).tolist()),
        tuple(s.spread.a.tolist()),
        tuple(s.spread.b.tolist()),
    )


def _culprit(layers: Sequence[Layer]) -> Culprit | None:
    """A kernel that breaks its law; else the fault that rounding explains least; else
    what loses most by itself.
    """
    faulty = [one for one in layers if one.fault is not None]
    broken = [
        one for one in faulty if one.fault is not None and one.fault.kind == "kernel"
    ]
    if broken:
        first = broken[0]
        return _named(
            first, [one.value for one in broken if one.kind == first.kind][1:]
        )
    others = [
        one
        for one in faulty
        if one.fault is not None and one.fault.text.startswith(GRID)
    ]
    if others:  # what reads it reads it rounded otherwise, and differs too
        return _named(others[0], [one.value for one in others[1:]])
    if faulty:
        worst = max(
            faulty,
            key=lambda one: (
                -_known(one.own_centred_db) if one.excess_db is None else one.excess_db
            ),
        )
        return _named(worst, [one.value for one in faulty if one is not worst])
    noisy = [one for one in layers if _known(one.own_centred_db) < FLOAT_DB]
    lowest = min((_known(one.own_centred_db) for one in noisy), default=math.inf)
    return next(
        (
            _named(one, [])
            for one in noisy
            if _known(one.own_centred_db) <= lowest + _ALIKE_DB
        ),
        None,
    )


def _named(layer: Layer, others: Sequence[str]) -> Culprit:
    found = layer.findings[0] if layer.findings else None
    why = f"it loses most by itself: {_known(layer.own_centred_db):.1f} dB"
    fix = "give it more bits: float, or 16 bits"
    if found is not None:
        why = found.text if found.fault else f"{why}; {found.text}"
        fix = found.fix
    fault = found is not None and found.fault
    kind = found.kind if found is not None else "loss"
    return Culprit(
        layer.value, layer.kind, layer.source, why, fix, fault, kind, tuple(others)
    )


def _known(db: float | None) -> float:
    return math.inf if db is None or math.isnan(db) else db


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Without infinities, which JSON does not have."""
    return {
        k: None if isinstance(v, float) and not math.isfinite(v) else v
        for k, v in row.items()
    }
