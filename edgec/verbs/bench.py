"""`bench`: takes one request to its verdict.

It measures or estimates, compares with a baseline, judges budgets, and writes files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.device import Progress, device_for
from edgec_devices.measurement import Measurement, MeasuringPlan
from edgec_devices.options import path_of
from edgec_runtime import Bundle

from edgec.benching.build import build_report, read_graph
from edgec.benching.comparison import Comparison, compare, compare_estimates
from edgec.benching.figures import check_budgets, parse_budgets
from edgec.benching.result import BenchReport, Compared
from edgec.emit.graph_file import GraphFile
from edgec.errors import EdgecError, InputError
from edgec.options.bench import FILES, Bench
from edgec.report.bench.junit import to_junit
from edgec.report.bench.page import page
from edgec.report.bench.text import to_markdown
from edgec.report.bench.trace import to_trace
from edgec.report.files import check_places, write_whole
from edgec.verbs.sharing import shared_bench

SETTINGS = (
    "runs",
    "seconds",
    "threads",
    "accept_estimates",
    "accept_throttling",
    "frames",
    "source",
)
"""The fields of a request that its report repeats."""


@dataclass(frozen=True)
class MeasuredBench:
    """A bench, with the values that its report summarises.

    Attributes:
        report: the judged report.
        measurement: what the device measured, or its estimate.
        graph: the bundle's graph.
        shared: what `--share` writes; "" where nobody wants it.
    """

    report: BenchReport
    measurement: Measurement
    graph: GraphFile
    shared: str = ""


def run_bench(request: Bench, say: Progress = lambda text: None) -> BenchReport:
    """Measure a bundle, and write the files of the request, each as a whole.

    Raises EdgecError.
    """
    places = files_of(request)
    # Everything that can be wrong with the request is an error before the measuring.
    check_places(places)
    baseline = None
    if request.compare:
        baseline = BenchReport.load_file(Path(request.compare))
    done = measured_bench(request, baseline, say)
    report = done.report

    # Functions, since a page takes time and is not always asked for.
    writers: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(report.to_json(), indent=1) + "\n",
        "junit": lambda: to_junit(report),
        "markdown": lambda: to_markdown(report),
        "trace": lambda: json.dumps(to_trace(done.measurement, report)),
        "html": lambda: page(report, done.graph, done.measurement),
        "share": lambda: done.shared,
    }
    for name, path in places.items():
        write_whole(path, writers[name]())

    return report


def measured_bench(
    request: Bench, baseline: BenchReport | None, say: Progress
) -> MeasuredBench:
    """Measure a bundle, compare it with an earlier report, and judge its budgets.

    Raises EdgecError.
    """
    with Bundle.open(request.bundle) as bundle:
        bundle.manifest.check_alone(
            str(bundle.path), hint="a cascade within a cascade is not measured"
        )
        budgets = parse_budgets(request.budgets, bundle, streams=request.streams > 0)
        bundle.manifest.check_threads(request.threads, str(request.bundle))
        plan = MeasuringPlan.of(request.runs, request.seconds, request.threads)
        source = _absolute(request.source)
        plan = replace(plan, frames=request.streams, source=source)
        device = device_for(request.url, request.timeout)
        measurement = device.measure(bundle, plan, say)
        report = build_report(bundle, measurement, _settings(request, plan))
        # An emulated machine's own times say nothing about the board.
        estimate, why = None, ""
        measured_there = not report.estimated and _is_of_board(report)
        if report.emulated or (request.share and measured_there):
            estimate, why = _board_estimate(report, bundle, plan, say)
        if report.emulated and report.board is not None:
            note = _estimate_note(report.board, bundle, estimate, why)
            report = replace(report, notes=(*report.notes, note))
        graph = read_graph(bundle)
        shared = ""
        if request.share:
            shared = shared_bench(bundle.manifest, graph, report, estimate)

    if baseline is not None and request.compare:
        comparison = compare_with(
            Path(request.compare), baseline, report, request.max_regress
        )
        report = replace(report, comparison=comparison)
    checked = check_budgets(budgets, report, request.accept_estimates)
    report = replace(report, budgets=checked)
    return MeasuredBench(report, measurement, graph, shared)


def files_of(request: Bench) -> dict[str, Path]:
    """Return the files that a request wants, by the names of their options."""
    places: dict[str, Path] = {}
    for name in FILES:
        path = path_of(getattr(request, name))
        if path is not None:
            places[name] = path
    return places


def _absolute(source: str | None) -> str | None:
    """Return the source of a stream, a file by its absolute path.

    Programs run in folders of their own.
    """
    if source is not None and Path(source).exists():
        return str(Path(source).resolve())
    return source


def _is_of_board(report: BenchReport) -> bool:
    """Return whether the device runs the code of the bundle's board."""
    if report.board is None:
        return False
    targets = Board.load(report.board).targets
    return report.device.target in [target.name for target in targets]


def _board_estimate(
    report: BenchReport, bundle: Bundle, plan: MeasuringPlan, say: Progress
) -> tuple[BenchReport | None, str]:
    """Return the same bench by the models of the board, or None and why there is none."""
    if report.board is None:
        return None, "it was compiled for this machine"
    try:
        measurement = device_for(f"emulated:{report.board}").measure(bundle, plan, say)
        estimate = build_report(bundle, measurement, {})
    except EdgecError as e:
        # The measurement itself is there, and stays.
        return None, e.what
    if estimate.latency.summary() is None:
        return None, "a part of it has no estimate"
    return estimate, ""


def _estimate_note(
    board: str, bundle: Bundle, estimate: BenchReport | None, why: str
) -> str:
    """Return a note on the board that an emulated machine stands for.

    The estimate is that of the board's models, not of the machine that emulates.
    """
    latency = estimate.latency.summary() if estimate is not None else None
    if latency is None:
        known = f"No estimate of the board here ({why})"
    else:
        known = f"The board itself: est. {latency.p50:.2f} ms"
    command = f"edgec bench {bundle.path.name} --on emulated:{board}"
    return f"{known}, more by {command}."


def _settings(request: Bench, plan: MeasuringPlan) -> dict[str, Any]:
    """Return the settings that the report repeats."""
    settings = {name: getattr(request, name) for name in SETTINGS}
    return {**settings, "launches": plan.rounds}


SAME_FIELDS = ("board", "cpu", "target", "runner", "emulated")
"""Fields in which two devices must agree."""


def compare_with(
    path: Path, old: BenchReport, new: BenchReport, max_regress: float
) -> Compared:
    """Compare two reports; `path` is the file of the old one.

    Raises InputError if they cannot be compared.
    """
    _check_comparable(path, old, new)
    comparison = _compare(old, new, max_regress)
    return Compared(
        baseline=str(path),
        figure=comparison.figure,
        verdict=comparison.verdict,
        ratio=comparison.ratio,
        low=comparison.low,
        high=comparison.high,
        confidence=comparison.confidence,
        max_regress=max_regress,
        runs_needed=comparison.runs_needed,
        sentence=comparison.sentence(),
    )


def _compare(old: BenchReport, new: BenchReport, max_regress: float) -> Comparison:
    """Compare the latencies; estimates have no noise, and need no statistics."""
    # By launch, since inferences of one launch are more alike than those of several.
    before = old.latency.rounds
    now = new.latency.rounds
    reports = (old, new)
    if all(len(r.latency.samples) == 1 and r.estimated for r in reports):
        return compare_estimates(before, now, max_regress)
    return compare(
        before,
        now,
        max_regress,
        old.yardstick,
        new.yardstick,
        waited=(old.waited, new.waited),
    )


def _check_comparable(path: Path, old: BenchReport, new: BenchReport) -> None:
    """Raise InputError if one of the reports has no latency, or the runs differ."""
    hint = "compare with a run on the same board, or make a new one with --json"
    at = str(path)
    if old.model != new.model:
        what = f"the earlier run is of the model {old.model}, this one of {new.model}"
        raise InputError(what, at=at, hint="compare runs of one model")
    # The two differ by the error of the model, which says nothing about a change.
    if old.estimated != new.estimated:
        what = f"the earlier run was {_kind(old)}, this one is {_kind(new)}"
        raise InputError(what, at=at, hint=hint)

    difference = _device_difference(old, new)
    if difference:
        what = f"the earlier run is of another device: {difference}"
        raise InputError(what, at=at, hint=hint)

    # A segment that ran on the CPU then and on the Edge TPU now is no regression.
    backends_before = [segment.backend for segment in old.segments]
    backends_now = [segment.backend for segment in new.segments]
    if backends_before != backends_now:
        what = (
            f"the segments ran differently: {', '.join(backends_before)} then, "
            f"{', '.join(backends_now)} now"
        )
        raise InputError(what, at=at, hint="see edgec doctor for the Edge TPU")

    if not old.latency.samples or not new.latency.samples:
        raise InputError("one of the runs has no latency of the whole", at, hint)


def _kind(report: BenchReport) -> str:
    return "estimated" if report.estimated else "measured"


def _device_difference(old: BenchReport, new: BenchReport) -> str:
    """Return the first field in which the devices differ, in words; "" if none does."""
    for name in SAME_FIELDS:
        before = getattr(old.device, name)
        now = getattr(new.device, name)
        if before != now:
            return f"{name} was {before or 'unknown'!s}, now {now or 'unknown'!s}"
    return ""
