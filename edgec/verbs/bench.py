"""One bench from a request to a verdict: measure or estimate, compare, judge, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgec_devices.device import Progress, device_for
from edgec_devices.measurement import MeasuringPlan
from edgec_runtime import Bundle

from edgec.benching.baseline import compare_with
from edgec.benching.build import build_report, read_graph
from edgec.benching.figures import check_budgets, parse_budgets
from edgec.benching.request import FILES, Bench
from edgec.benching.result import BenchReport
from edgec.errors import EdgecError, InputError
from edgec.report.bench.junit import to_junit
from edgec.report.bench.page import page
from edgec.report.bench.text import to_markdown
from edgec.report.bench.trace import to_trace
from edgec.report.files import check_place, write_whole


def run_bench(request: Bench, say: Progress = lambda text: None) -> BenchReport:
    """Do it, and write the files that were asked for, each as a whole.

    Raises EdgecError.
    """
    places = {
        name: path for name in FILES if (path := getattr(request, name)) is not None
    }
    _check_places(places)
    if request.compare:
        baseline = (request.compare, BenchReport.load_file(request.compare))
    else:
        baseline = None
    with Bundle.open(request.bundle) as bundle:
        wanted = parse_budgets(request.budgets, bundle, streams=request.streams > 0)
        bundle.manifest.check_threads(request.threads, str(request.bundle))
        plan = MeasuringPlan.of(request.runs, request.seconds, request.threads)
        plan = replace(plan, frames=request.streams, source=_found(request.source))
        device = device_for(request.on, request.timeout)
        measurement = device.measure(bundle, plan, say)
        report = build_report(bundle, measurement, _settings(request, plan))
        if report.emulated:
            report = replace(
                report, notes=(*report.notes, *_estimate(report, bundle, plan, say))
            )
        graph = read_graph(bundle)
    if baseline is not None:
        report = replace(
            report, comparison=compare_with(*baseline, report, request.max_regress)
        )
    report = replace(
        report, budgets=check_budgets(wanted, report, request.accept_estimates)
    )
    writers: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(report.to_json(), indent=1) + "\n",
        "junit": lambda: to_junit(report),
        "markdown": lambda: to_markdown(report),
        "trace": lambda: json.dumps(to_trace(measurement, report)),
        "html": lambda: page(report, graph, measurement),
    }
    for name, path in places.items():
        write_whole(path, writers[name]())
    return report


def _found(source: str | None) -> str | None:
    """Files by their whole path: programs are run in folders of their own."""
    if source is not None and Path(source).exists():
        return str(Path(source).resolve())
    return source


def _estimate(
    report: BenchReport, bundle: Bundle, plan: MeasuringPlan, say: Progress
) -> Iterator[str]:
    """What there is to say of the board that an emulated machine stands for: by its
    models, not by that machine.
    """
    if report.board is None:
        return
    url = f"emulated:{report.board}"
    try:
        found = build_report(
            bundle, device_for(url).measure(bundle, plan, say), {}
        ).latency.summary()
    except EdgecError as e:
        found = None
        why = e.what
    else:
        why = "a part of it has no estimate"
    if found is None:
        told = f"No estimate of the board here ({why})"
    else:
        told = f"The board itself: est. {found.p50:.2f} ms"
    yield f"{told}, more by edgec bench {bundle.path.name} --on {url}."


def _settings(request: Bench, plan: MeasuringPlan) -> dict[str, Any]:
    asked = (
        "runs",
        "seconds",
        "threads",
        "accept_estimates",
        "accept_throttling",
        "frames",
        "source",
    )
    return {**{name: getattr(request, name) for name in asked}, "launches": plan.rounds}


def _check_places(places: Mapping[str, Path]) -> None:
    """Before minutes of work: it must be possible to write there."""
    for name, path in places.items():
        check_place(path, f"--{name}")
    twice = [
        f"--{name}"
        for name, path in places.items()
        if list(places.values()).count(path) > 1
    ]
    if twice:
        raise InputError(
            f"{' and '.join(twice)} name one file",
            at=str(places[twice[0][2:]]),
            hint="give each its own",
        )
