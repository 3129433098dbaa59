"""Parses budgets on the figures of a bench, and checks whether they hold.

The figures are those of `quantities`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from edgec_devices.requirement import Figure, Kind, Requirement, Vocabulary
from edgec_runtime import Bundle

from edgec.benching.build import read_graph
from edgec.benching.quantities import (
    ON_TPU,
    WHOLE,
    Absent,
    quantities,
    stream_quantities,
)
from edgec.benching.result import EMULATOR, BenchReport, Check
from edgec.errors import InputError

USUALLY_SHARES = ("spread", "tpu.transfer", "tpu.invoke", "tpu.compute")
"""Figures that are mostly given as a share of the latency: a number without a unit is
likely to lack its %.
"""
UNACCEPTED = (
    "the estimate would hold; give --accept-estimates to let estimates count, "
    "or --on ssh://USER@HOST to measure"
)
"""Why a budget that an estimate meets is not met."""
EXAMPLE = "p95<=33ms, first<=500ms or rss<=80MB"


class Figures(Mapping[str, Figure | Absent]):
    """Every figure that a report of a model can have, by name.

    A figure is computed when it is read: there may be a million samples.
    """

    def __init__(self, report: BenchReport) -> None:
        self._report = report
        segments = [(s.name, len(s.ops)) for s in report.segments]
        self._quantities = quantities(segments)
        self._figures: dict[str, Figure | Absent] = {}

    def __getitem__(self, name: str) -> Figure | Absent:
        if name not in self._figures:
            quantity = self._quantities[name]
            self._figures[name] = quantity.figure(self._report)
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._quantities)

    def __len__(self) -> int:
        return len(self._quantities)


def figures(report: BenchReport) -> Figures:
    """Return the figures of a report."""
    return Figures(report)


def parse_budgets(
    texts: Iterable[str], bundle: Bundle, where: str = "--budget", streams: bool = True
) -> list[Requirement]:
    """Parse budgets before anything is measured.

    Raises InputError for a figure, unit or form that a bench of this bundle cannot
    have.

    Args:
        texts: budgets; each text may hold several, separated by commas
        bundle: the bundle to bench
        where: the option or file that states them, for messages
        streams: whether a stream will be run
    """
    ops = {s.name: len(s.functions) for s in read_graph(bundle).segments}
    segments = [(s.name, ops.get(s.name, 0)) for s in bundle.manifest.segments]
    kinds = {}
    for name, quantity in quantities(segments).items():
        share = name in USUALLY_SHARES
        kinds[name] = Kind(quantity.unit, quantity.part, share=share)
    names = ", ".join(_names_for_messages(segments))
    vocabulary = Vocabulary(kinds, where, EXAMPLE, listed=names)

    budgets = vocabulary.parse_all(texts)
    stream_figures = {*stream_quantities([name for name, _ in segments])}
    for budget in budgets:
        # Without a stream the budget could never hold.
        if budget.figure in stream_figures and not streams:
            raise InputError(
                f"{budget.figure} is of a stream, and none is run",
                where,
                "give --frames 250, or --source",
            )
    return budgets


def _names_for_messages(segments: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield the names of the figures, those of a series abbreviated."""
    yield from WHOLE
    yield from ("latency", "dropped", "stage.capture")
    for name, ops in segments:
        yield f"{name}, {name}.min to {name}.mean"
        if ops > 1:
            yield f"{name}.op0 to {name}.op{ops - 1}"
        elif ops:
            yield f"{name}.op0"


def check_budgets(
    budgets: Iterable[Requirement], report: BenchReport, accept_estimates: bool = False
) -> tuple[Check, ...]:
    """Return the outcome of each budget.

    A budget on a missing figure never holds, nor one on an emulator's time; one on an
    estimate holds only with `accept_estimates`.
    """
    all_figures = figures(report)
    checks = []
    for budget in budgets:
        figure = all_figures.get(budget.figure)
        # The bundle lists the op, but the run did not profile it.
        if figure is None:
            figure = _unprofiled(budget.figure, report)
        checks.append(check_budget(budget, figure, report, accept_estimates))
    return tuple(checks)


def check_budget(
    budget: Requirement, figure: Figure | Absent, r: BenchReport, accept_estimates: bool
) -> Check:
    """Return the outcome of a budget on a figure."""
    if isinstance(figure, Figure) and budget.unit == "%" and figure.whole is None:
        figure = Absent("there is no median latency for it to be a share of")
    if isinstance(figure, Absent):
        return Check(budget.text, False, None, budget.unit, None, False, figure.why)

    outcome = budget.check(figure)
    holds = outcome.holds
    why = outcome.culprit
    if figure.estimated and r.emulated:
        # An emulator's clock says nothing about a board: not even --accept-estimates
        # lets it count.
        holds = False
        why = EMULATOR
        if r.board:
            why += f"; --on emulated:{r.board} estimates one"
    elif holds and figure.estimated and not accept_estimates:
        holds = False
        why = UNACCEPTED
    return Check(
        what=outcome.text,
        holds=holds,
        measured=outcome.measured,
        unit=outcome.unit,
        margin=outcome.margin,
        estimated=figure.estimated,
        why=why,
        interval=outcome.interval,
    )


def _unprofiled(figure: str, r: BenchReport) -> Absent:
    """Return why the report lacks an op that the bundle lists."""
    for segment in r.segments:
        if not figure.startswith(f"{segment.name}."):
            continue
        if segment.backend in ON_TPU:
            why = "ran on the Edge TPU, which has no times per op"
        else:
            why = "was not profiled per op"
        return Absent(f"{segment.name} {why}")
    return Absent("the run has no such segment")
