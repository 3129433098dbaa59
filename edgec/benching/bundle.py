"""Holds the bench of a bundle: the reports on its networks, and what they give together.

Budgets of a cascade name a figure of a network, `mesh.p95<=9ms`, or one of the whole:

    fps.1 frame.1                  frames per second, and ms for a frame, with so many
                                   objects, from 0 to the most that the cascade follows:
                                   of the networks alone
    fps latency.p95 dropped        of a stream of frames, crops and pictures included,
    stage.mesh                     as of one network
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.decoding import from_json
from edgec_devices.intervals import (
    CPU,
    EstimatedPart,
    ends,
    error_of_sum,
)
from edgec_devices.requirement import (
    Figure,
    Kind,
    Requirement,
    Vocabulary,
    by_network,
)
from edgec_runtime import Manifest
from edgec_runtime.cascade.parameters import Cascade
from edgec_runtime.session.meters import StreamFigures

from edgec.benching.figures import check_budget
from edgec.benching.quantities import (
    WHOLE,
    Absent,
    Quantity,
    stream_quantities,
    time_text,
)
from edgec.benching.result import EARLIER, BenchReport, Check, earlier_data
from edgec.benching.verdicts import BudgetVerdict, budget_verdict, verdicts
from edgec.errors import InputError

MS_PER_S = 1000.0
EXAMPLE = "fps.1>=25, mesh.p95<=9ms"


@dataclass(frozen=True)
class NetworkShare:
    """What a network has of a frame of its cascade.

    Attributes:
        name: the name of the network.
        report: the report on its model.
        cascade: the cascade.
    """

    name: str
    report: BenchReport
    cascade: Cascade

    @property
    def latency(self) -> float | None:
        """Return the median latency of a run, ms; None without one."""
        summary = self.report.latency.summary()
        return None if summary is None else summary.p50

    def runs(self, objects: int) -> float:
        """Return how often it runs for a frame, in the mean over many frames.

        Objects are followed, and none is lost: the detector then runs in one frame of
        `every`, or in none.
        """
        if self.name != self.cascade.detector.name:
            return float(objects)
        # Where nobody follows objects, or there is none, the detector looks all the time.
        if self.cascade.followed is None or objects == 0:
            return 1.0
        every = self.cascade.every
        return 1 / every if every else 0.0

    def ms(self, objects: int) -> float | None:
        """Return its time for a frame; None without a latency."""
        return None if self.latency is None else self.runs(objects) * self.latency


@dataclass(frozen=True)
class BundleBench:
    """The bench of a bundle.

    Attributes:
        model: the name of the bundle.
        networks: the report on each network with a model of its own, by name.
        cascade: how they work together; None of one network.
        stream: frames through all of a cascade; None if none were run.
        whole_budgets: outcomes of the budgets on a whole cascade; a network's are in
            its report.
    """

    model: str
    networks: Mapping[str, BenchReport]
    cascade: Cascade | None = None
    stream: StreamFigures | None = None
    whole_budgets: tuple[Check, ...] = ()

    @property
    def budgets(self) -> tuple[Check, ...]:
        """Return the outcomes of all budgets: the whole's first, then each network's."""
        of_networks = [check for r in self.networks.values() for check in r.budgets]
        return (*self.whole_budgets, *of_networks)

    @property
    def report(self) -> BenchReport:
        """Return the report on the first network: the only one, or the detector.

        It says what all reports say, such as the device.
        """
        return next(iter(self.networks.values()))

    @property
    def shares(self) -> tuple[NetworkShare, ...]:
        """Return the networks of a cascade, each with its part of a frame."""
        if self.cascade is None:
            return ()
        shares = []
        for row in self.cascade.networks:
            # Networks that share a model share its report.
            report = self.networks[row.like or row.name]
            shares.append(NetworkShare(row.name, report, self.cascade))
        return tuple(shares)

    def ms(self, objects: int) -> float | None:
        """Return the time of all networks for a frame; None if one has no latency."""
        times = [share.ms(objects) for share in self.shares]
        known = [ms for ms in times if ms is not None]
        return sum(known) if len(known) == len(times) else None

    def frames_per_second(self) -> dict[int, float]:
        """Return the frames per second of a cascade by the number of objects, from none
        on.
        """
        rates: dict[int, float] = {}
        most = -1 if self.cascade is None else self.cascade.objects
        for objects in range(most + 1):
            ms = self.ms(objects)
            if ms:
                rates[objects] = MS_PER_S / ms
        return rates

    def verdicts(self) -> tuple[BudgetVerdict, ...]:
        """Return all verdicts: the whole's first, then each network's by its name."""
        if self.cascade is None:
            return verdicts(self.report)
        everything = list(self.own_verdicts())
        for name, report in self.networks.items():
            for verdict in verdicts(report):
                everything.append(replace(verdict, name=f"{name}: {verdict.name}"))
        return tuple(everything)

    def own_verdicts(self) -> tuple[BudgetVerdict, ...]:
        """Return the verdicts on a whole cascade."""
        mark = self.report.mark
        return tuple(budget_verdict(check, mark) for check in self.whole_budgets)

    def checked(
        self, budgets: list[Requirement], accept_estimates: bool
    ) -> BundleBench:
        """Return the bench with the outcomes of budgets on a whole cascade."""
        checks = []
        for budget in budgets:
            figure = self._figure(budget.figure)
            checks.append(check_budget(budget, figure, self.report, accept_estimates))
        return replace(self, whole_budgets=tuple(checks))

    def _figure(self, name: str) -> Figure | Absent:
        """Return a figure of a whole cascade."""
        assert self.cascade is not None, "one network has no figures of the whole"
        quantity = _stream_figures(self.cascade).get(name)
        if quantity is not None:
            # The stream is all networks', whatever else a network's report has.
            return quantity.figure(replace(self.report, stream=self.stream))
        kind, objects = name.split(".")
        return (self.rate if kind == "fps" else self.frame)(int(objects))

    def frame(self, objects: int) -> Figure | Absent:
        """Return the time of all networks for a frame with so many objects."""
        ms = self.ms(objects)
        if not ms:
            return Absent("a network has no latency")
        # One estimate among the times of a frame makes their sum an estimate.
        estimated = any(report.estimated for report in self.networks.values())
        error = self._error(objects)
        interval = None if error is None else ends(ms, error)
        return Figure(ms, "ms", None, self._slowest(objects), estimated, interval)

    def rate(self, objects: int) -> Figure | Absent:
        """Return the frames per second with so many objects."""
        frame = self.frame(objects)
        if isinstance(frame, Absent):
            return frame
        interval = None
        if frame.ends is not None:
            low, high = frame.ends
            interval = (MS_PER_S / high, MS_PER_S / low)
        return replace(frame, value=MS_PER_S / frame.value, unit="fps", ends=interval)

    def _error(self, objects: int) -> float | None:
        """Return the relative error of the time for a frame; None for times by a clock.

        All networks are estimated by the same models, so that their errors add up.
        """
        parts = []
        for share in self.shares:
            error = share.report.latency.error
            if error is None:
                return None
            parts.append(EstimatedPart(share.ms(objects) or 0.0, error, CPU))
        return error_of_sum(parts)

    def _slowest(self, objects: int) -> str:
        """Return the network with the most time in a frame, in words."""
        times = {share.name: share.ms(objects) or 0.0 for share in self.shares}
        name = max(times, key=times.__getitem__)
        (share,) = (share for share in self.shares if share.name == name)
        latency = share.report.latency
        text = time_text(times[name], latency.estimated, latency.error)
        return f"{name}, {text} a frame"

    def to_json(self) -> dict[str, Any]:
        """Return the bench in JSON's types: of one network its report."""
        if self.cascade is None:
            return self.report.to_json()
        rates = {str(n): round(fps, 2) for n, fps in self.frames_per_second().items()}
        whole = [asdict(check) for check in self.whole_budgets]
        return {
            "cascade": self.model,
            "networks": {n: report.to_json() for n, report in self.networks.items()},
            "frames_per_second": rates,
            "stream": None if self.stream is None else self.stream.as_dict(),
            "budgets": whole,
        }


@dataclass(frozen=True)
class _EarlierBench:
    """The part of an earlier run's file that a comparison needs."""

    cascade: str
    networks: dict[str, BenchReport]


def earlier_reports(path: Path, manifest: Manifest) -> Mapping[str, BenchReport]:
    """Return the reports of an earlier bench of a bundle, by network.

    Raises InputError for other files, and for another cascade's.
    """
    if manifest.cascade is None:
        return {manifest.name: BenchReport.load_file(path)}
    hint = "give what edgec bench --json wrote of this cascade"
    data = earlier_data(path, hint)
    earlier = from_json(data, _EarlierBench, EARLIER, str(path), hint)
    if earlier.cascade != manifest.name:
        raise InputError(
            f"{EARLIER} is of the cascade {earlier.cascade}, this one of {manifest.name}",
            at=str(path),
            hint=hint,
        )
    return earlier.networks


def split_budgets(
    texts: tuple[str, ...], manifest: Manifest, streams: bool
) -> tuple[list[Requirement], Mapping[str, Sequence[str]]]:
    """Return the budgets on a whole cascade, and the texts of those on each network.

    A network's budgets are parsed where it is measured. Raises InputError for a figure
    that the whole does not have.
    """
    cascade = manifest.cascade
    if cascade is None:
        return [], {manifest.name: texts}
    names = [row.name for row in cascade.networks if row.like is None]
    general, of_networks = by_network(texts, names)
    vocabulary = _vocabulary(cascade, names, streams)
    return [vocabulary.parse(text) for text in general], of_networks


def _vocabulary(cascade: Cascade, names: list[str], streams: bool) -> Vocabulary:
    """Return the figures of the whole; those of a stream if one is run."""
    kinds: dict[str, Kind] = {}
    for objects in range(cascade.objects + 1):
        kinds[f"fps.{objects}"] = Kind("fps")
        kinds[f"frame.{objects}"] = Kind("ms")
    listed = ["fps.N and frame.N of N objects"]
    if streams:
        for name, quantity in _stream_figures(cascade).items():
            kinds[name] = Kind(quantity.unit)
        listed.append("fps, latency, dropped and stage.NAME of the stream")
    else:
        listed.append("with --frames fps, latency, dropped and stage.NAME")
    of_networks = ", ".join(f"{name}.p95" for name in names)
    listed.append(f"of a network {of_networks}, …")
    return Vocabulary(kinds, "--budget", EXAMPLE, listed="; ".join(listed))


def _stream_figures(cascade: Cascade) -> dict[str, Quantity]:
    """Return the figures of a stream through all networks, by name."""
    names = ["cascade", *(row.name for row in cascade.networks)]
    return {**stream_quantities(names), "fps": WHOLE["fps"]}
