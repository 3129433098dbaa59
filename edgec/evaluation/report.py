"""The report of an evaluation, as `--json` writes it (docs/eval.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgec.benching.verdicts import BudgetVerdict
from edgec.evaluation.bootstrap import LEVEL, SEED, FigureEstimate
from edgec.evaluation.measure import MeasuredFigure
from edgec.ir import Array

SCHEMA = 1
FLOAT = "float"
BUNDLE = "bundle"
DEVICE = "device"
DROP = "drop"


@dataclass(frozen=True)
class EvaluatedSide:
    """The figures of one way to run the network.

    Attributes:
        key: FLOAT, BUNDLE or DEVICE
        title: its name for people
        how: what ran it
        figures: each figure with its interval, by name
    """

    key: str
    title: str
    how: str
    figures: Mapping[str, FigureEstimate]


@dataclass(frozen=True)
class WorstPicture:
    """A picture on which the last side is bad.

    Attributes:
        name: the file, relative to the data set
        losses: how bad each side's result is, by side; 0 is without fault
        lines: what the label says, and what each side found, in words, by "truth" and
            by side
        captions: the same in fewer words, for a page; empty where nobody wants one
        drawings: the picture as it is, by "picture", and with the same drawn into it,
            uint8 [H, W, 3]; None where the captions tell all, and empty as captions are
    """

    name: str
    losses: Mapping[str, float]
    lines: Mapping[str, Sequence[str]]
    captions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    drawings: Mapping[str, Array | None] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationReport:
    """The result of an evaluation.

    Attributes:
        bundle: name of the bundle's network
        bundle_sha256: of the bundle's file
        target: what it was compiled for
        data: the data set, as a person gave it
        task: the kind of the task
        pictures: the number of pictures
        measured: the figures that were measured
        sides: the float model, the bundle and the device, as far as they ran
        drops: how much worse the last side is than the float model, by figure; empty
            without a float model
        worst: the pictures with the worst results, the worst first
        verdicts: the budgets
        resamples: draws of the bootstrap
        when: time in UTC
        edgec: version of edgec
        notes: remarks for people
    """

    bundle: str
    bundle_sha256: str
    target: str
    data: str
    task: str
    pictures: int
    measured: tuple[MeasuredFigure, ...]
    sides: tuple[EvaluatedSide, ...]
    drops: Mapping[str, FigureEstimate]
    resamples: int
    when: str
    edgec: str
    worst: tuple[WorstPicture, ...] = ()
    verdicts: tuple[BudgetVerdict, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def last(self) -> EvaluatedSide:
        """The side that budgets are about: the device's, or else the bundle's."""
        return self.sides[-1]

    @property
    def passed(self) -> bool:
        """Whether all budgets hold."""
        # A figure that has no value fails its budget.
        return all(verdict.state != "fail" for verdict in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return the report in JSON's types."""
        return {
            "schema": SCHEMA,
            "edgec": self.edgec,
            "when": self.when,
            "bundle": {
                "name": self.bundle,
                "sha256": self.bundle_sha256,
                "target": self.target,
            },
            "data": {"path": self.data, "pictures": self.pictures},
            "task": self.task,
            "bootstrap": {"draws": self.resamples, "level": LEVEL, "seed": SEED},
            "figures": [_figure(figure) for figure in self.measured],
            "sides": [_side(side) for side in self.sides],
            DROP: {name: e.to_json() for name, e in self.drops.items()},
            "worst": [_worst(picture) for picture in self.worst],
            "budgets": [vars(verdict) for verdict in self.verdicts],
            "notes": [*self.notes],
        }


def _figure(figure: MeasuredFigure) -> dict[str, Any]:
    """Return what a figure means."""
    return {
        "name": figure.name,
        "title": figure.title,
        "unit": figure.unit,
        "text": figure.text,
        "better": "higher" if figure.rises else "lower",
    }


def _side(side: EvaluatedSide) -> dict[str, Any]:
    """Return the figures of a side."""
    figures = {name: e.to_json() for name, e in side.figures.items()}
    return {"side": side.key, "title": side.title, "how": side.how, "figures": figures}


def _worst(picture: WorstPicture) -> dict[str, Any]:
    """Return a picture without its drawings."""
    losses = {side: round(loss, 4) for side, loss in picture.losses.items()}
    lines = {side: [*texts] for side, texts in picture.lines.items()}
    return {"file": picture.name, "losses": losses, "found": lines}
