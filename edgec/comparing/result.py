"""Holds the result of a comparison, for people and for files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from edgec.comparing.findings import (
    GRID,
    LayerFinding,
    Noise,
    findings,
    noise_of,
    other_grid,
)
from edgec.comparing.measure import Measured, ValueRecord
from edgec.comparing.side import Side
from edgec.ir import Array
from edgec.measure.agreement import Agreement

SCHEMA = 1
"""Version of the JSON form."""
FLOAT_DB = 90.0
"""Better ratios are rounding of float32."""
MIN_LAYERS = 4
"""Layers from which a majority of faults says something about the whole."""
MAX_GRID_SHARE = 1 / 4
"""If a larger share of the layers has scales other than A's, it was calibrated
otherwise: that is no fault.
"""
ALIKE_DB = 3.0
"""Of layers within this of the worst the first is named: to the next, its result is
already coarse.
"""


@dataclass(frozen=True)
class Layer:
    """One layer of B against A.

    Ratios are signal to noise in dB: inf without noise, None if unknown. Those of the
    layer's own error are for A's values as inputs, rounded as B stores them.

    Attributes:
        index: position in B's graph
        value: name of its result
        kind: kind of its op
        source: nodes of the model that it comes from
        part: name of the segment
        type: type of its result
        sqnr_db: ratio of the result, with everything it inherits
        centred_db: the same about the mean of each channel of A
        cosine: cosine of the result and A's
        max_error: largest difference of the result
        own_db: ratio of its own error
        own_centred_db: the same about A's mean
        own_max_error: largest difference of its own
        inherited_db: ratio of the effect of its inputs' differences
        steps: root mean square of its own error, in steps of the result
        excess_db: own noise of the worst channel beyond what rounding explains
        used: part of the result's range that A's values use
        clipped: share of A's values beyond that range
        law: largest difference from the reference interpreter on the same inputs, in
            steps (integers) or as a share of the range (floats)
        low: smallest value of A
        high: largest value of A
        reads: names of the values that its op reads
        findings: its faults and losses
        edges: edges of the bins of the histograms
        a: values of A in each bin
        b: values of B in each bin
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
        """Return the first finding that no rounding explains."""
        return next((f for f in self.findings if f.fault), None)


@dataclass(frozen=True)
class Culprit:
    """The layer to look at first.

    Attributes:
        value: name of its result
        kind: kind of its op
        source: nodes of the model that it comes from
        why: the finding in words
        fix: a remedy
        fault: whether no rounding explains the finding
        finding: kind of the finding
        others: results of other layers with the same fault
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
    """An output of B against A's.

    Attributes:
        agreement: ratio, cosine and top-1
        centred_db: ratio about the mean of each channel of A, dB
        max_error: largest difference
        tops: samples whose largest element differs, (sample, A's index, B's index);
            None for an output that chooses no class
    """

    agreement: Agreement
    centred_db: float
    max_error: float
    tops: tuple[tuple[int, int, int], ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form; `exact` means that nothing differs."""
        tops = None
        if self.tops is not None:
            tops = [{"sample": s, "a": a, "b": b} for s, a, b in self.tops]
        return {
            **self.agreement.as_dict(),
            "centred_db": _finite_or_none(self.centred_db),
            "max_error": _finite_or_none(self.max_error),
            "exact": self.agreement.sqnr_db == math.inf,
            "top1_changed": tops,
        }


@dataclass(frozen=True)
class Diff:
    """The comparison of two networks.

    Attributes:
        a: name of the reference
        b: name of the side compared with it
        a_how: executor of A
        b_how: executor of B
        inputs: where the samples come from
        samples: number of samples
        layers: the compared layers in the order of B's graph
        skipped_a: values of A without a twin in B
        skipped_b: values of B without a twin in A
        outputs: the outputs, by B's names
        culprit: the layer to look at first, if there is one
        notes: remarks on the whole
        names: names of the samples
        labels: labels of classes, if a bundle has them
        images: outputs of the first sample, of A and of B
        kind: kind of the bundle's task; "" without one
        task: figures of the task, see `tasks.FIGURES`
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
        """Return the layers with faults first, then the others, those that lose most first."""

        def rank(layer: Layer) -> tuple[bool, float, int]:
            return layer.fault is None, _known(layer.own_centred_db), layer.index

        return sorted(self.layers, key=rank)

    def least(self) -> float:
        """Return the lowest ratio of an output, dB; inf without outputs.

        It is about the mean of an output that is nearly constant.
        """
        least = math.inf
        for output in self.outputs.values():
            ratio = output.agreement.centred_sqnr_db
            if ratio is None:
                ratio = output.agreement.sqnr_db
            least = min(least, ratio)
        return least

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, which docs/diff.md describes.

        JSON has no infinity: an infinite ratio is null, as an unknown one.
        """
        layers = []
        for layer in self.layers:
            # Null alone would not tell "no noise at all" from "not known".
            exact = layer.sqnr_db == math.inf
            layers.append({**_without_infinities(asdict(layer)), "exact": exact})

        task = None
        if self.kind:
            figures = {name: round(x, 5) for name, x in self.task.items()}
            task = {"kind": self.kind, **figures}
        return {
            "schema": SCHEMA,
            "a": {"name": self.a, "how": self.a_how},
            "b": {"name": self.b, "how": self.b_how},
            "inputs": self.inputs,
            "samples": self.samples,
            "outputs": {n: output.as_dict() for n, output in self.outputs.items()},
            "culprit": None if self.culprit is None else asdict(self.culprit),
            "layers": layers,
            "skipped": {"a": [*self.skipped_a], "b": [*self.skipped_b]},
            "notes": [*self.notes],
            "names": [*self.names],
            "labels": [*self.labels],
            "task": task,
        }


def result(
    a: Side, b: Side, inputs: str, measured: Measured, notes: Sequence[str] = ()
) -> Diff:
    """Return the comparison of two sides, with findings and the culprit.

    Args:
        a: the reference
        b: the side compared with it
        inputs: where the samples come from, for people
        measured: the measures of both runs
        notes: remarks on the whole
    """
    layers = _layers(b, measured)
    outputs = {}
    for name, tally in measured.outputs.items():
        outputs[name] = OutputComparison(
            tally.result(),
            tally.channels_sqnr_db(),
            tally.max_error,
            measured.tops.get(name),
        )

    if _mostly_faulty(layers):
        notes = [
            *notes,
            "most layers compute something else: these may not be two forms of one "
            "training",
        ]
    return Diff(
        a=a.name,
        b=b.name,
        a_how=a.how,
        b_how=b.how,
        inputs=inputs,
        samples=measured.samples,
        layers=layers,
        skipped_a=measured.only_a,
        skipped_b=measured.only_b,
        outputs=outputs,
        culprit=_culprit(layers),
        notes=notes,
        images=measured.images,
        task=measured.task,
    )


def _mostly_faulty(layers: Sequence[Layer]) -> bool:
    """Return whether most layers have a fault other than their kernel."""

    faulty = 0
    for layer in layers:
        if layer.fault is not None and layer.fault.kind != "kernel":
            faulty += 1
    return len(layers) >= MIN_LAYERS and faulty > len(layers) / 2


def _layers(b: Side, measured: Measured) -> list[Layer]:
    """Return the layers with a record, in the order of B's graph."""
    channels = {record.value.name: record.channels for record in measured.seen}
    records = []
    grids = {}
    for record in measured.seen:
        if record.op is None or not record.whole.samples:
            continue
        records.append(record)
        grid = other_grid(record)
        if grid is not None:
            grids[record.value.name] = grid
    # If so many grids differ, the networks were quantized separately: no fault.
    if len(grids) > len(records) * MAX_GRID_SHARE:
        grids = {}

    layers = []
    for record in records:
        assert record.op is not None
        read = [channels.get(v.name) for v in record.op.inputs]
        # A broken kernel that is not edgec's has another remedy.
        noise = noise_of(record, read, b.complete)
        runner = "" if b.same_code else b.how
        layer_findings = findings(record, noise, b.complete, runner)
        grid = grids.get(record.value.name)
        if grid is not None:
            # The first finding names the culprit, and a grid explains the others.
            layer_findings.insert(0, grid)
        layers.append(_layer(record, noise, layer_findings))
    return layers


def _layer(
    record: ValueRecord, noise: Noise, layer_findings: Sequence[LayerFinding]
) -> Layer:
    """Return the layer of a record."""
    op = record.op
    assert op is not None, f"{record.value.name} is not a layer's"
    spread = record.spread
    # A side that cannot be forced has no own error.
    own = record.own if record.own.samples else None
    return Layer(
        index=record.index,
        value=record.value.name,
        kind=op.kind,
        source=op.source,
        part=record.part,
        type=str(record.value.type),
        sqnr_db=record.whole.sqnr_db(),
        centred_db=record.whole.channels_sqnr_db(),
        cosine=record.whole.cosine(),
        max_error=record.whole.max_error,
        own_db=own.sqnr_db() if own else None,
        own_centred_db=own.centred_sqnr_db() if own else None,
        own_max_error=own.max_error if own else None,
        inherited_db=record.inherited.sqnr_db() if own else None,
        steps=noise.steps,
        excess_db=noise.excess_db,
        used=spread.used(record.value),
        clipped=spread.clipped(record.value),
        # None tells "not checked" from "no difference".
        law=record.law.error if record.law.samples else None,
        low=spread.low,
        high=spread.high,
        reads=tuple(v.name for v in op.inputs if v.const is None),
        findings=tuple(layer_findings),
        edges=tuple(np.round(spread.edges, 9).tolist()),
        a=tuple(spread.a.tolist()),
        b=tuple(spread.b.tolist()),
    )


def _culprit(layers: Sequence[Layer]) -> Culprit | None:
    """Return the layer to look at first, in the order of docs/diff.md.

    It is a kernel that differs from its reference; else the fault that rounding
    explains least; else the layer that loses most by itself.
    """
    faulty = []
    broken = []
    other_grids = []
    for layer in layers:
        if layer.fault is None:
            continue
        faulty.append(layer)
        if layer.fault.kind == "kernel":
            broken.append(layer)
        elif layer.fault.text.startswith(GRID):
            other_grids.append(layer)

    if broken:
        # The first broken kernel is the cause of wrong inputs of later ones.
        same_op = [layer for layer in broken if layer.kind == broken[0].kind]
        return _culprit_of(broken[0], same_op[1:])
    # Its consumers read it with another scale, and differ too: the first is the cause.
    if other_grids:
        return _culprit_of(other_grids[0], other_grids[1:])
    if faulty:
        worst = max(faulty, key=_unexplained_db)
        return _culprit_of(worst, [layer for layer in faulty if layer is not worst])
    # Without a fault, only the precision of a layer can be changed.
    lossy = _first_lossy(layers)
    return None if lossy is None else _culprit_of(lossy, [])


def _unexplained_db(layer: Layer) -> float:
    """Return the noise beyond rounding, or the own noise if that is unknown, dB."""
    if layer.excess_db is not None:
        return layer.excess_db
    # The ratio of signal to noise: the lower it is, the more noise.
    return -_known(layer.own_centred_db)


def _first_lossy(layers: Sequence[Layer]) -> Layer | None:
    """Return the first of the layers that lose most by themselves."""

    ratios = [_known(layer.own_centred_db) for layer in layers]
    lowest = min(ratios, default=math.inf)

    # All layers are as good as float32 allows.
    if lowest >= FLOAT_DB:
        return None
    for layer, ratio in zip(layers, ratios, strict=True):
        if ratio < FLOAT_DB and ratio <= lowest + ALIKE_DB:
            return layer
    return None


def _culprit_of(layer: Layer, layers: Sequence[Layer]) -> Culprit:
    """Return the culprit with the first finding of a layer."""
    why = f"it loses most by itself: {_known(layer.own_centred_db):.1f} dB"
    fix = "give it more bits: float, or 16 bits"
    fault = False
    kind = "loss"
    if layer.findings:
        finding = layer.findings[0]
        # A fault is a reason by itself; other findings only explain the loss.
        why = finding.text if finding.fault else f"{why}; {finding.text}"
        fix = finding.fix
        fault = finding.fault
        kind = finding.kind
    return Culprit(
        value=layer.value,
        kind=layer.kind,
        source=layer.source,
        why=why,
        fix=fix,
        fault=fault,
        finding=kind,
        others=tuple(other.value for other in layers),
    )


def _known(db: float | None) -> float:
    """Return a ratio, or inf if it is unknown."""
    return math.inf if db is None or math.isnan(db) else db


def _finite_or_none(value: Any) -> Any:
    """Return a value, or None for a float that JSON does not have."""
    # JSON has no infinities, and an exact layer has an infinite ratio.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _without_infinities(row: dict[str, Any]) -> dict[str, Any]:
    return {key: _finite_or_none(value) for key, value in row.items()}
