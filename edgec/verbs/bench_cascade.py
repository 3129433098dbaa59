"""`bench` of a cascade: each network as any other, and what they give together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.device import Progress
from edgec_runtime import Bundle
from edgec_runtime.cascade.opened import cascade_of
from edgec_runtime.cascade.parameters import Cascade
from edgec_runtime.session.meters import StreamFigures
from edgec_runtime.webcam.streamed import streamed

from edgec.benching.request import Bench
from edgec.benching.result import BenchReport
from edgec.errors import InputError
from edgec.report.files import check_place, write_whole
from edgec.report.tables import table
from edgec.verbs.bench import run_bench
from edgec.verbs.cascades import networks_as_files

OF_ONE_NETWORK = ("budgets", "compare", "junit", "markdown", "trace", "html", "share")
"""Options that are for the bench of one network."""
MS_PER_S = 1000.0


@dataclass(frozen=True)
class CascadeBench:
    """The bench of a cascade.

    Attributes:
        model: the name of the cascade.
        cascade: how its networks work together.
        networks: the report on each network with a model of its own, by name.
        stream: frames through all of it; None if none were run.
    """

    model: str
    cascade: Cascade
    networks: Mapping[str, BenchReport]
    stream: StreamFigures | None = None

    def latency(self, network: str) -> float | None:
        """Return the median latency of a network, ms; None without one."""
        # Networks on several crops run the bundle of one of them.
        row = self.cascade.network(network)
        summary = self.networks[row.like or row.name].latency.summary()
        return None if summary is None else summary.p50

    def runs(self, network: str, objects: int) -> float:
        """Return how often a network runs for a frame, in the mean over many frames.

        Objects are followed, and none is lost: the detector then runs in one frame of
        `every`, or in none.
        """
        if network != self.cascade.detector.name:
            return float(objects)
        # Where nobody follows objects, or there is none, the detector looks all the time.
        if self.cascade.followed is None or objects == 0:
            return 1.0
        every = self.cascade.every
        return 1 / every if every else 0.0

    def ms(self, objects: int) -> float | None:
        """Return the time of all networks for a frame; None if one has no latency."""
        total = 0.0
        for row in self.cascade.networks:
            latency = self.latency(row.name)
            if latency is None:
                return None
            total += self.runs(row.name, objects) * latency
        return total

    def frames_per_second(self) -> dict[int, float]:
        """Return the frames per second by the number of objects, from none on."""
        found: dict[int, float] = {}
        for objects in range(self.cascade.objects + 1):
            ms = self.ms(objects)
            if ms:
                found[objects] = MS_PER_S / ms
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the bench in JSON's types."""
        rates = {str(n): round(fps, 2) for n, fps in self.frames_per_second().items()}
        return {
            "cascade": self.model,
            "networks": {n: report.to_json() for n, report in self.networks.items()},
            "frames_per_second": rates,
            "stream": None if self.stream is None else self.stream.as_dict(),
        }

    def text(self) -> str:
        """Return the tables for a terminal."""
        parts = [self._of_networks(), self._of_objects()]
        if self.stream is not None:
            parts.append(self._of_stream(self.stream))
        return "\n\n".join(parts)

    def _of_networks(self) -> str:
        rows = []
        for row in self.cascade.networks:
            latency = self.latency(row.name)
            ms = "no figure" if latency is None else f"{latency:.2f} ms"
            report = self.networks[row.like or row.name]
            rows.append([row.name, ms, f"{self.runs(row.name, 1):.2f}", _how(report)])
        head = ["network", "p50", "runs a frame", "how"]
        return table(head, rows, "lrrl")

    def _of_objects(self) -> str:
        rows = []
        for objects, fps in self.frames_per_second().items():
            rows.append([str(objects), f"{MS_PER_S / fps:.2f} ms", f"{fps:.1f}"])
        counted = table(["objects", "a frame", "frames/s"], rows, "rrr")
        note = "(the networks alone: without the camera, crops and pictures)"
        return f"{counted}\n{note}"

    def _of_stream(self, stream: StreamFigures) -> str:
        rows = []
        for stage in stream.stages:
            if stage.ms is not None:
                rows.append([stage.name, str(stage.runs), f"{stage.ms.p50:.2f} ms"])
        head = f"a stream of {stream.delivered} frames: {stream.fps:.1f} frames/s"
        return f"{head}\n{table(['stage', 'runs', 'p50'], rows, 'lrr')}"


def _how(report: BenchReport) -> str:
    """Return where a network's latency is from, in words."""
    if report.latency.estimated:
        return f"estimate: {report.latency.how}"
    return report.latency.how


def run_cascade_bench(
    request: Bench, say: Progress = lambda text: None
) -> CascadeBench:
    """Measure the bundle of a cascade, and write the file of the request.

    Raises EdgecError.
    """
    with Bundle.open(request.bundle) as bundle:
        return _bench_cascade(request, bundle, cascade_of(bundle), say)


def _bench_cascade(
    request: Bench, bundle: Bundle, cascade: Cascade, say: Progress
) -> CascadeBench:
    """Measure the networks of an opened cascade."""
    _check(request)
    reports: dict[str, BenchReport] = {}
    with networks_as_files(bundle) as networks:
        for name, inner in networks.items():
            # Frames are for all networks together.
            one = replace(request, bundle=inner.path, frames=None, source=None)
            one = replace(one, json=None)
            reports[name] = run_bench(one, say)

    # Crops, results and what passes between the networks are in the stream alone.
    stream = None
    if request.streams:
        say(f"{bundle.manifest.name}: a stream of {request.streams} frames")
        stream = streamed(str(bundle.path), request.streams, request.source)
    done = CascadeBench(bundle.manifest.name, cascade, reports, stream)
    if request.json is not None:
        write_whole(request.json, json.dumps(done.to_json(), indent=1) + "\n")
    return done


def _check(request: Bench) -> None:
    """Raise InputError for a request that is not for a cascade, before the measuring."""
    for name in OF_ONE_NETWORK:
        if getattr(request, name):
            option = "budget" if name == "budgets" else name
            raise InputError(
                f"--{option} is for one network, and a cascade has several",
                at=str(request.bundle),
                hint=f"leave it out, or bench a network alone without --{option}",
            )
    if request.streams and request.on != "local:":
        raise InputError(
            "frames of a cascade are run on this machine alone",
            at=request.on,
            hint="edgec webcam BUNDLE --on DEVICE --no-display --json has a device's",
        )
    if request.json is not None:
        check_place(Path(request.json), "--json")
