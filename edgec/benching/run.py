"""One bench from a request to a verdict: measure or estimate, compare, judge, write."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgec_devices import device_for
from edgec_devices.device import Progress
from edgec_devices.measurement import Plan
from edgec_runtime import Bundle

from edgec.benching.baseline import compare_with
from edgec.benching.build import build_report, read_graph
from edgec.benching.figures import check_budgets, parse_budgets
from edgec.benching.junit import to_junit
from edgec.benching.page import page
from edgec.benching.report import BenchReport
from edgec.benching.request import Bench
from edgec.benching.text import to_markdown
from edgec.benching.trace import to_trace
from edgec.errors import InputError


def run_bench(request: Bench, say: Progress = lambda text: None) -> BenchReport:
    """Do it, and write the files that were asked for, each as a whole. Raises EdgecError."""
    for path in _files(request):
        _check_place(path)
    baseline = (request.compare, BenchReport.load_file(request.compare)) if request.compare else None
    with Bundle.open(request.bundle) as bundle:
        wanted = parse_budgets(request.budgets, bundle)
        plan = Plan.of(request.runs, request.seconds)
        device = device_for(request.on)
        measurement = device.measure(bundle, plan, say)
        report = build_report(bundle, measurement, _settings(request, plan))
        graph = read_graph(bundle)
    if baseline is not None:
        report = replace(report, comparison=compare_with(*baseline, report, request.max_regress))
    report = replace(report, budgets=check_budgets(wanted, report, request.accept_estimates))
    writers: dict[Path | None, Callable[[], str]] = {
        request.json: lambda: json.dumps(report.to_json(), indent=1) + "\n",
        request.junit: lambda: to_junit(report),
        request.markdown: lambda: to_markdown(report),
        request.trace: lambda: json.dumps(to_trace(measurement, report)),
        request.html: lambda: page(report, graph, measurement),
    }
    for place, text in writers.items():
        if place is not None:
            _write(place, text())
    return report


def _settings(request: Bench, plan: Plan) -> dict[str, Any]:
    asked = ("runs", "seconds", "threads", "accept_estimates", "accept_throttling")
    return {**{name: getattr(request, name) for name in asked}, "launches": plan.rounds}


def _files(request: Bench) -> list[Path]:
    named = (request.json, request.junit, request.markdown, request.trace, request.html)
    return [path for path in named if path is not None]


def _check_place(path: Path) -> None:
    """Before minutes of work: it must be possible to write there."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", at=str(path), hint="give a file")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist", at=str(path), hint=f"mkdir -p {path.parent}")


def _write(path: Path, text: str) -> None:
    """Aside, and renamed when whole."""
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as e:
        raise InputError(f"cannot write {path}: {e.strerror}", at=str(path), hint="check the folder") from e
    finally:
        aside.unlink(missing_ok=True)
