"""Holds the bench of a cascade: the reports of its networks, and what they give together.

Budgets name a figure of a network, `mesh.p95<=9ms`, or one of the whole:

    fps.1 frame.1                  frames per second, and ms for a frame, with so many
                                   objects, from 0 to the most that the cascade follows:
                                   of the networks alone
    fps latency.p95 dropped        of a stream of frames, crops and pictures included,
    stage.mesh                     as of one network
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.decoding import LARGEST_JSON, from_json
from edgec_devices.requirement import (
    Figure,
    Kind,
    Requirement,
    Vocabulary,
    by_network,
)
from edgec_runtime.cascade.parameters import Cascade
from edgec_runtime.device_end.disk import given
from edgec_runtime.session.meters import StreamFigures

from edgec.benching.figures import check_budget
from edgec.benching.quantities import WHOLE, Absent, Quantity, stream_quantities
from edgec.benching.result import BenchReport, Check
from edgec.benching.verdicts import BudgetVerdict, budget_verdict, verdicts
from edgec.errors import InputError

MS_PER_S = 1000.0
EXAMPLE = "fps.1>=25, mesh.p95<=9ms"


@dataclass(frozen=True)
class CascadeBench:
    """The bench of a cascade.

    Attributes:
        model: the name of the cascade.
        cascade: how its networks work together.
        networks: the report on each network with a model of its own, by name.
        stream: frames through all of it; None if none were run.
        budgets: outcomes of the budgets on the whole; a network's are in its report.
    """

    model: str
    cascade: Cascade
    networks: Mapping[str, BenchReport]
    stream: StreamFigures | None = None
    budgets: tuple[Check, ...] = ()

    @property
    def first(self) -> BenchReport:
        """Return the report of the detector, which says what all reports say."""
        return self.networks[self.cascade.detector.name]

    def report(self, network: str) -> BenchReport:
        """Return the report of a network.

        Networks that share a model share its report.
        """
        row = self.cascade.network(network)
        return self.networks[row.like or row.name]

    def latency(self, network: str) -> float | None:
        """Return the median latency of a network, ms; None without one."""
        summary = self.report(network).latency.summary()
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
        rates: dict[int, float] = {}
        for objects in range(self.cascade.objects + 1):
            ms = self.ms(objects)
            if ms:
                rates[objects] = MS_PER_S / ms
        return rates

    def verdicts(self) -> tuple[BudgetVerdict, ...]:
        """Return all verdicts, the whole's first, then each network's by its name."""
        everything = list(self.own_verdicts())
        for name, report in self.networks.items():
            for verdict in verdicts(report):
                everything.append(replace(verdict, name=f"{name}: {verdict.name}"))
        return tuple(everything)

    def own_verdicts(self) -> tuple[BudgetVerdict, ...]:
        """Return the verdicts on the whole."""
        mark = self.first.mark
        return tuple(budget_verdict(check, mark) for check in self.budgets)

    def checked(
        self, budgets: list[Requirement], accept_estimates: bool
    ) -> CascadeBench:
        """Return the bench with the outcomes of budgets on the whole."""
        checks = []
        for budget in budgets:
            figure = self._figure(budget.figure)
            checks.append(check_budget(budget, figure, self.first, accept_estimates))
        return replace(self, budgets=tuple(checks))

    def _figure(self, name: str) -> Figure | Absent:
        """Return a figure of the whole."""
        quantity = _stream_figures(self.cascade).get(name)
        if quantity is not None:
            # The stream is all networks', whatever else a network's report has.
            return quantity.figure(replace(self.first, stream=self.stream))
        kind, objects = name.split(".")
        ms = self.ms(int(objects))
        if not ms:
            return Absent("a network has no latency")
        estimated = any(report.estimated for report in self.networks.values())
        slowest = self._slowest(int(objects))
        if kind == "fps":
            return Figure(MS_PER_S / ms, "fps", None, slowest, estimated)
        return Figure(ms, "ms", None, slowest, estimated)

    def _slowest(self, objects: int) -> str:
        """Return the network with the most time in a frame, in words."""
        times = {}
        for row in self.cascade.networks:
            latency = self.latency(row.name) or 0.0
            times[row.name] = self.runs(row.name, objects) * latency
        name = max(times, key=times.__getitem__)
        return f"{name}, {times[name]:.2f} ms a frame"

    def to_json(self) -> dict[str, Any]:
        """Return the bench in JSON's types."""
        rates = {str(n): round(fps, 2) for n, fps in self.frames_per_second().items()}
        own = [vars(check) for check in self.budgets]
        return {
            "cascade": self.model,
            "networks": {n: report.to_json() for n, report in self.networks.items()},
            "frames_per_second": rates,
            "stream": None if self.stream is None else self.stream.as_dict(),
            "budgets": own,
        }


@dataclass(frozen=True)
class _EarlierBench:
    """The part of an earlier run's file that a comparison needs."""

    cascade: str
    networks: dict[str, BenchReport]


def earlier_reports(path: Path, model: str) -> Mapping[str, BenchReport]:
    """Return the reports of an earlier bench of a cascade, by network.

    Raises InputError for other files, and for another cascade's.
    """
    what = "the earlier run"
    hint = "give what edgec bench --json wrote of this cascade"
    try:
        data = given(path, LARGEST_JSON)
    except OSError as e:
        raise InputError(
            f"cannot read {what}: {e.strerror}", at=str(path), hint=hint
        ) from e
    earlier = from_json(data, _EarlierBench, what, str(path), hint)
    if earlier.cascade != model:
        raise InputError(
            f"{what} is of the cascade {earlier.cascade}, this one of {model}",
            at=str(path),
            hint=hint,
        )
    return earlier.networks


def split_budgets(
    texts: tuple[str, ...], cascade: Cascade, streams: bool
) -> tuple[list[Requirement], dict[str, tuple[str, ...]]]:
    """Return the budgets on the whole, and the texts of those on each network.

    A network's budgets are parsed where it is measured. Raises InputError for a figure
    that the whole does not have.
    """
    names = [row.name for row in cascade.networks if row.like is None]
    own, of_networks = by_network(texts, names)
    vocabulary = _vocabulary(cascade, names, streams)
    budgets = [vocabulary.parse(text) for text in own]
    return budgets, {name: tuple(mine) for name, mine in of_networks.items()}


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
