"""`bench`: takes one request to its verdict.

It measures or estimates, compares with a baseline, judges budgets, and writes files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.boards import Board
from edgec_devices.device import Progress, device_for
from edgec_devices.measurement import Measurement, MeasuringPlan
from edgec_devices.options import path_of
from edgec_devices.requirement import Requirement
from edgec_runtime import Bundle
from edgec_runtime.webcam.stream_measurement import streamed

from edgec.benching.build import build_report, read_graph
from edgec.benching.bundle import BundleBench, earlier_reports, split_budgets
from edgec.benching.comparison import Comparison, compare, compare_estimates
from edgec.benching.figures import check_budgets, figures, parse_budgets
from edgec.benching.quantities import Absent
from edgec.benching.result import BenchReport, Compared
from edgec.emit.graph_file import GraphFile
from edgec.errors import EdgecError, InputError, shell_word
from edgec.options.bench import FILES, BenchOptions
from edgec.report.bench.junit import to_junit
from edgec.report.bench.page import page, whole_page
from edgec.report.bench.text import to_markdown
from edgec.report.bench.trace import Trace, joined, to_trace
from edgec.report.files import check_places, write_whole
from edgec.report.summary_page import write_pages
from edgec.verbs.networks import networks_as_files
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


@dataclass(frozen=True)
class _Wanted:
    """What a network has to hold.

    Attributes:
        budgets: its budgets.
        earlier: the report to compare with; None without a comparison.
    """

    budgets: Sequence[Requirement]
    earlier: BenchReport | None


def run_bench(request: BenchOptions, say: Progress = lambda text: None) -> BundleBench:
    """Measure a bundle, and write the files of the request, each as a whole.

    Raises EdgecError.
    """
    places = files_of(request)
    # Everything that can be wrong with the request is an error before the measuring.
    check_places(places)
    with Bundle.open(request.bundle) as bundle:
        bench, measured = _bench(request, bundle, say)

    if request.html is not None:
        pages = {}
        for name, m in measured.items():
            pages[name] = page(m.report, m.graph, m.measurement)
        write_pages(Path(request.html), pages, whole_page(bench))
    # Functions, since not every file is asked for.
    writers: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(bench.to_json(), indent=1) + "\n",
        "junit": lambda: to_junit(bench),
        "markdown": lambda: to_markdown(bench),
        "trace": lambda: json.dumps(_trace(bench, measured)),
        "share": lambda: next(iter(measured.values())).shared,
    }
    for name, writer in writers.items():
        if name in places:
            write_whole(places[name], writer())
    return bench


def _bench(
    request: BenchOptions, bundle: Bundle, say: Progress
) -> tuple[BundleBench, Mapping[str, MeasuredBench]]:
    """Return the bench of an opened bundle, and that of each network."""
    manifest = bundle.manifest
    earlier: Mapping[str, BenchReport] = {}
    if request.compare is not None:
        earlier = earlier_reports(Path(request.compare), manifest)
    streams = request.streams > 0
    general, of_networks = split_budgets(tuple(request.budgets), manifest, streams)
    alone = request
    if manifest.cascade is not None:
        _check_cascade(request)
        # Frames are for all networks together.
        alone = replace(request, frames=None, source=None)

    measured: dict[str, MeasuredBench] = {}
    with networks_as_files(bundle) as files:
        # What is wrong for the last network is said before the first one is measured.
        goals = {}
        for name, inner in files.items():
            budgets = parse_budgets(of_networks[name], inner, streams=alone.streams > 0)
            goals[name] = _Wanted(budgets, _earlier(request, name, earlier))
        for name, inner in files.items():
            measured[name] = _measured(alone, inner, goals[name], say)

    # Crops, results and what passes between the networks are in the stream alone.
    stream = None
    if streams and manifest.cascade is not None:
        say(f"{manifest.name}: a stream of {request.streams} frames")
        stream = streamed(str(bundle.path), request.streams, request.source)
    reports = {name: network.report for name, network in measured.items()}
    bench = BundleBench(manifest.name, reports, manifest.cascade, stream)
    return bench.checked(general, request.accept_estimates), measured


def _trace(bench: BundleBench, measured: Mapping[str, MeasuredBench]) -> Trace:
    """Return the trace of all networks."""
    traces = {n: to_trace(m.measurement, m.report) for n, m in measured.items()}
    if bench.cascade is None:
        (trace,) = traces.values()
        return trace
    return joined(traces)


def _earlier(
    request: BenchOptions, name: str, earlier: Mapping[str, BenchReport]
) -> BenchReport | None:
    """Return the earlier report on a network; None without a comparison.

    Raises InputError where the earlier run has no such network.
    """
    if request.compare is None:
        return None
    if name not in earlier:
        raise InputError(
            f"the earlier run has no network {name}, but {', '.join(earlier)}",
            at=str(request.compare),
            hint="compare runs of one cascade",
        )
    return earlier[name]


def _check_cascade(request: BenchOptions) -> None:
    """Raise InputError for a request that is not for a cascade, before the measuring."""
    if request.share is not None:
        raise InputError(
            "a measurement that is shared is of one network",
            at="--share",
            hint="bench a network of the cascade by itself",
        )
    if request.streams and request.url != "local:":
        raise InputError(
            "frames of a cascade are run on this machine alone",
            at=request.url,
            hint="edgec webcam BUNDLE --on DEVICE --no-display --json has a device's",
        )


def _measured(
    request: BenchOptions, bundle: Bundle, goals: _Wanted, say: Progress
) -> MeasuredBench:
    """Measure a network, compare it with an earlier report, and judge its budgets.

    bundle: of this one network. Raises EdgecError.
    """
    bundle.manifest.check_threads(request.threads, str(bundle.path))
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

    if goals.earlier is not None and request.compare:
        comparison = compare_with(
            Path(request.compare), goals.earlier, report, request.max_regress
        )
        report = replace(report, comparison=comparison)
    checked = check_budgets(goals.budgets, report, request.accept_estimates)
    report = replace(report, budgets=checked)
    return MeasuredBench(report, measurement, graph, shared)


def files_of(request: BenchOptions) -> dict[str, Path]:
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
    latency = figures(estimate)["p50"] if estimate is not None else Absent(why)
    if isinstance(latency, Absent):
        estimate_text = f"No estimate of the board here ({why})"
    else:
        estimate_text = f"The board itself: est. {latency.text()}"
    command = f"edgec bench {shell_word(bundle.path.name)} --on emulated:{board}"
    return f"{estimate_text}, more by {command}."


def _settings(request: BenchOptions, plan: MeasuringPlan) -> dict[str, Any]:
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
        message = (
            f"the earlier run is of the model {old.model}, this one of {new.model}"
        )
        raise InputError(message, at=at, hint="compare runs of one model")
    # The two differ by the error of the model, which says nothing about a change.
    if old.estimated != new.estimated:
        message = f"the earlier run was {_kind(old)}, this one is {_kind(new)}"
        raise InputError(message, at=at, hint=hint)

    difference = _device_difference(old, new)
    if difference:
        message = f"the earlier run is of another device: {difference}"
        raise InputError(message, at=at, hint=hint)

    # A segment that ran on the CPU then and on the Edge TPU now is no regression.
    backends_before = [segment.backend for segment in old.segments]
    backends_now = [segment.backend for segment in new.segments]
    if backends_before != backends_now:
        message = (
            f"the segments ran differently: {', '.join(backends_before)} then, "
            f"{', '.join(backends_now)} now"
        )
        raise InputError(message, at=at, hint="see edgec doctor for the Edge TPU")

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
