"""Renders the report of an evaluation as one page; its form is eval.html."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edgec.benching.verdicts import WORDS
from edgec.evaluation.bootstrap import FigureEstimate
from edgec.evaluation.measure import MeasuredFigure
from edgec.evaluation.report import EvaluationReport, WorstPicture
from edgec.report.evaluation.text import (
    drop_text,
    figure_table,
    figure_text,
    headline,
    notes,
)
from edgec.report.markup import rendered
from edgec.report.pictures import photo_url
from edgec.report.wording import plain

MOST_LINES = 4
"""Lines of a result below its picture."""
MOST_OPEN = 30
"""Pictures that are seen at once; the others of a longer list are folded away, so that a
phone shows the page on some twenty screens.
"""
MARGIN = 0.2
"""The empty part at each end of a chart, as a part of what it shows."""
SMALLEST_SPAN = 0.02
"""A chart spans at least this part of its figure: equal sides are no drama."""


def page(r: EvaluationReport) -> str:
    """Return the page."""
    head, rows, _ = figure_table(r)
    worst = [*_worst(r)]
    verdicts = []
    for v in r.verdicts:
        verdicts.append(
            (WORDS[v.state], plain(v.name), v.value, v.margin, plain(v.why))
        )
    return rendered(
        "evaluation/eval.html",
        title=f"{plain(r.bundle)} on labelled pictures",
        summary=headline(r),
        warning="",
        head=head,
        rows=rows,
        bars=[*_bars(r)],
        terms=[(figure.title, figure.text) for figure in r.measured],
        notes=[*notes(r)],
        verdicts=verdicts,
        states=[v.state for v in r.verdicts],
        outcome="pass" if r.passed else "fail",
        worst=worst[:MOST_OPEN],
        folded=worst[MOST_OPEN:],
        others=r.pictures - len(worst),
        sides=[(plain(side.title), plain(side.how)) for side in r.sides],
        data={},
    )


def _bars(r: EvaluationReport) -> Iterator[dict[str, Any]]:
    """Yield a chart for each figure: a row for each side with its interval."""
    for figure in r.measured:
        # One scale for all sides: their intervals are to be compared.
        estimates = [side.figures[figure.name] for side in r.sides]
        scale = _scale(figure, estimates)
        rows = []
        for side, estimate in zip(r.sides, estimates, strict=True):
            rows.append(
                {
                    "title": plain(side.title),
                    "text": figure_text(estimate, figure),
                    "value": scale(estimate.value),
                    "low": scale(estimate.low),
                    "high": scale(estimate.high),
                }
            )
        drop = drop_text(r.drops[figure.name], figure) if r.drops else ""
        yield {"title": figure.title, "rows": rows, "drop": drop}


def _scale(
    figure: MeasuredFigure, estimates: Sequence[FigureEstimate]
) -> Callable[[float], float]:
    """Return the function from a number to its place in a chart, 0 to 100."""
    ends = [x for e in estimates for x in (e.value, e.low, e.high) if math.isfinite(x)]
    low = min(ends, default=0.0)
    high = max(ends, default=1.0)

    # The intervals fill the middle: from 0 on, small differences could not be seen.
    margin = max(high - low, SMALLEST_SPAN * abs(high), 1e-9) * MARGIN
    start = low - margin
    span = high + margin - start

    def place(value: float) -> float:
        if not math.isfinite(value):
            return 0.0
        return round(100 * (value - start) / span, 2)

    return place


def _worst(r: EvaluationReport) -> Iterator[dict[str, Any]]:
    """Yield the worst pictures, each with its label and what each side found."""
    columns = {"picture": "picture", "truth": "truth"}
    columns |= {side.key: side.title for side in r.sides}
    for picture in r.worst:
        views = [*_views(picture, columns)]
        yield {"name": plain(picture.name), "views": views}


def _views(
    picture: WorstPicture, columns: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield a picture as it is, with its label, and with what each side found."""
    for key, title in columns.items():
        lines = [plain(line) for line in picture.captions.get(key, ())]
        more = len(lines) - MOST_LINES
        if more > 0:
            lines = [*lines[:MOST_LINES], f"and {more} more"]
        if key in picture.losses:
            lines.append(f"loss {picture.losses[key]:.3f}")
        drawn = picture.drawings[key]
        yield {
            "title": plain(title),
            "url": "" if drawn is None else photo_url(drawn),
            "lines": lines,
        }
