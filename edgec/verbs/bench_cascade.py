"""`bench` of a cascade: each network alone, then the frames per second of all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from edgec_devices.device import Progress
from edgec_runtime import Bundle
from edgec_runtime.webcam.streamed import streamed

from edgec.benching.cascade_report import (
    CascadeBench,
    earlier_reports,
    split_budgets,
)
from edgec.benching.figures import parse_budgets
from edgec.benching.result import BenchReport
from edgec.errors import InputError
from edgec.options.bench import Bench
from edgec.report.bench.cascade import (
    cascade_junit,
    cascade_markdown,
    cascade_page,
    cascade_trace,
)
from edgec.report.bench.page import page
from edgec.report.bench.trace import Trace, to_trace
from edgec.report.files import check_places, write_whole
from edgec.verbs.bench import MeasuredBench, files_of, measured_bench, run_bench
from edgec.verbs.cascades import is_cascade_bundle, networks_as_files


def bench_networks(
    request: Bench, say: Progress = lambda text: None
) -> BenchReport | CascadeBench:
    """Measure the bundle of a model or of a cascade, and write the files of the request.

    Raises EdgecError.
    """
    if is_cascade_bundle(Path(request.bundle)):
        return run_cascade_bench(request, say)
    return run_bench(request, say)


def run_cascade_bench(
    request: Bench, say: Progress = lambda text: None
) -> CascadeBench:
    """Measure the bundle of a cascade, and write the files of the request.

    Raises EdgecError.
    """
    places = files_of(request)
    check_places(places)
    _check(request)
    with Bundle.open(request.bundle) as bundle:
        done, measured = _bench_cascade(request, bundle, say)
    # A folder of pages is not one text.
    html = places.pop("html", None)
    if html is not None:
        pages = {
            name: page(n.report, n.graph, n.measurement) for name, n in measured.items()
        }
        cascade_page(done, pages).write(html)
    writers: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(done.to_json(), indent=1) + "\n",
        "junit": lambda: cascade_junit(done),
        "markdown": lambda: cascade_markdown(done),
        "trace": lambda: json.dumps(cascade_trace(_traces(measured))),
    }
    for name, path in places.items():
        write_whole(path, writers[name]())
    return done


def _bench_cascade(
    request: Bench, bundle: Bundle, say: Progress
) -> tuple[CascadeBench, Mapping[str, MeasuredBench]]:
    """Return the bench of an opened cascade, and that of each network."""
    cascade = bundle.manifest.cascade
    assert cascade is not None, "the caller has looked"
    model = bundle.manifest.name
    own, of_networks = split_budgets(
        tuple(request.budgets), cascade, request.streams > 0
    )
    earlier: Mapping[str, BenchReport] = {}
    if request.compare is not None:
        earlier = earlier_reports(Path(request.compare), model)

    measured: dict[str, MeasuredBench] = {}
    # Frames are for all networks together.
    alone = replace(request, frames=None, source=None)
    with networks_as_files(bundle) as files:
        # What is wrong for the last network is said before the first one is measured.
        baselines: dict[str, BenchReport | None] = {}
        for name, inner in files.items():
            parse_budgets(of_networks[name], inner)
            baselines[name] = _earlier(request, name, earlier)
        for name, inner in files.items():
            one = replace(alone, bundle=inner.path, budgets=of_networks[name])
            measured[name] = measured_bench(one, baselines[name], say)

    # Crops, results and what passes between the networks are in the stream alone.
    stream = None
    if request.streams:
        say(f"{model}: a stream of {request.streams} frames")
        stream = streamed(str(bundle.path), request.streams, request.source)
    reports = {name: network.report for name, network in measured.items()}
    bench = CascadeBench(model, cascade, reports, stream)
    return bench.checked(own, request.accept_estimates), measured


def _traces(measured: Mapping[str, MeasuredBench]) -> dict[str, Trace]:
    """Return the trace of each network."""
    traces = {}
    for name, network in measured.items():
        traces[name] = to_trace(network.measurement, network.report)
    return traces


def _earlier(
    request: Bench, name: str, earlier: Mapping[str, BenchReport]
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


def _check(request: Bench) -> None:
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
