"""Writes the report of an evaluation for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from edgec.evaluation.bootstrap import FigureEstimate
from edgec.evaluation.measure import MeasuredFigure
from edgec.evaluation.report import EvaluationReport
from edgec.report.tables import table
from edgec.report.wording import plain

MOST_WORST = 5
"""Pictures that the terminal names."""
MAX_FOUND = 24
"""Characters of a line that is shown beside a picture's loss."""
NO_VALUE = "none"


def to_text(r: EvaluationReport) -> str:
    """Return the report: figures, the worst pictures, and the verdicts at the end."""
    blocks = [headline(r), table(*figure_table(r)), *notes(r), _worst(r)]
    blocks.append("\n".join(verdict.line() for verdict in r.verdicts))
    return "\n\n".join(block for block in blocks if block) + "\n"


def headline(r: EvaluationReport) -> str:
    """Return what was evaluated on which pictures."""
    of = "picture" if r.pictures == 1 else "pictures"
    return plain(
        f"{r.bundle} ({r.task}, for {r.target}) on {r.pictures} {of} of {r.data}"
    )


def figure_table(r: EvaluationReport) -> tuple[list[str], list[list[str]], str]:
    """Return head, rows and alignment of the table: a row for each figure."""
    head = ["", *(plain(side.title) for side in r.sides)]
    if r.drops:
        head.append("drop")
    rows = []
    for figure in r.measured:
        row = [figure.title]
        row += [figure_text(side.figures[figure.name], figure) for side in r.sides]
        if r.drops:
            row.append(drop_text(r.drops[figure.name], figure))
        rows.append(row)
    return head, rows, "l" + "r" * (len(head) - 1)


def figure_text(estimate: FigureEstimate, figure: MeasuredFigure) -> str:
    """Return a figure with its interval: `97.2 % (96.1 to 98.2)`."""
    if not math.isfinite(estimate.value):
        return NO_VALUE
    unit = f" {figure.unit}" if figure.unit else ""
    low = number(estimate.low, figure)
    high = number(estimate.high, figure)
    return f"{number(estimate.value, figure)}{unit} ({low} to {high})"


def drop_text(estimate: FigureEstimate, figure: MeasuredFigure) -> str:
    """Return a drop with its interval; it has a sign, since int8 may be better."""
    if not math.isfinite(estimate.value):
        return NO_VALUE
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = (_signed(number(x, figure)) for x in numbers)
    unit = " points" if figure.unit == "%" else f" {figure.unit}".rstrip()
    return f"{value}{unit} ({low} to {high})"


def number(value: float, figure: MeasuredFigure) -> str:
    """Return a number with the digits that its unit deserves."""
    # Figures without a unit are of 0…1.
    return f"{value:.2f}" if figure.unit else f"{value:.4f}"


def _signed(text: str) -> str:
    """Return a number with its sign; nothing is neither more nor less than nothing."""
    if not text.strip("-0."):
        return text.lstrip("-")
    return text if text.startswith("-") else f"+{text}"


def notes(r: EvaluationReport) -> Iterator[str]:
    """Yield what the numbers are, and what a person should know."""
    text = f"In brackets: the middle 95 % of {r.resamples} bootstrap draws of pictures."
    if r.drops:
        text += " drop: how much worse than the float model, on the same draws."
    yield text
    for note in r.notes:
        yield plain(f"note: {note}")


def _worst(r: EvaluationReport) -> str:
    """Return the worst pictures: the loss of each side, and what it found if short."""
    shown = r.worst[:MOST_WORST]
    sides = [side.key for side in r.sides]
    # The first line of a classification is its answer; boxes need the page.
    firsts = [p.lines[key][0] for p in shown for key in ("truth", *sides)]
    is_short = all(len(text) <= MAX_FOUND for text in firsts)

    rows = []
    for picture in shown:
        row = [plain(picture.name)]
        if is_short:
            row.append(plain(picture.lines["truth"][0]))
        for key in sides:
            text = f"{picture.losses[key]:.2f}"
            if is_short:
                text += f": {plain(picture.lines[key][0])}"
            row.append(text)
        rows.append(row)
    head = ["worst pictures", *(["truth"] if is_short else [])]
    head += [f"loss, {plain(side.title)}" for side in r.sides]
    return table(head, rows, "l" * len(head))
