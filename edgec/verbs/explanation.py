"""`explain` of a model or a cascade: each network alone, then what all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgec_devices.intervals import EDGETPU_ERROR, estimate_text
from edgec_devices.requirement import RequirementOutcome, by_network
from edgec_partitioner.cost import LINKS, PARAMETER_CACHE
from edgec_partitioner.explain import ExplainReport

from edgec.catalogue.fetching import local_file
from edgec.compiler.cascade import check_options, is_cascade, network_job
from edgec.errors import InputError
from edgec.frontends.cascade_file import read_cascade
from edgec.options.compile import CompileOptions, Options
from edgec.report.explain.page import page
from edgec.report.explain.text import body, report_terms, to_text, whole_ms
from edgec.report.legend import legend
from edgec.report.summary_page import PageTable, SummaryPage, write_pages
from edgec.report.wording import percent
from edgec.report.wording import size as as_size
from edgec.steps import Progress
from edgec.verbs.explain import explain_model
from edgec.verbs.requirements import check, requirements

_MB = 1e6
_HEAD = (
    "network",
    "estimated ms",
    "MACs on the Edge TPU",
    "segments there",
    "parameters there",
)
_SUMMARY = "Nothing was run: all times are estimates of one inference."


@dataclass(frozen=True)
class Explanation:
    """The reports on the networks of a model file or a cascade.

    Attributes:
        model: the name of the model or the cascade.
        networks: the report on each network with a model of its own, by name.
        outcomes: whether requirements hold; of a cascade each is named by its network.
        is_cascade: whether the networks are those of a cascade.
    """

    model: str
    networks: Mapping[str, ExplainReport]
    outcomes: tuple[RequirementOutcome, ...] = ()
    is_cascade: bool = False

    @property
    def report(self) -> ExplainReport:
        """Return the report on the first network: the only one, or the detector."""
        return next(iter(self.networks.values()))

    def parameter_bytes(self) -> dict[str, int]:
        """Return the bytes of parameters on the Edge TPU, by network."""
        sizes: dict[str, int] = {}
        for name, report in self.networks.items():
            size = int(report.totals()["tpu_parameter_bytes"])
            if size:
                sizes[name] = size
        return sizes

    def swap_ms(self) -> dict[str, float]:
        """Return the estimated time to send a network's parameters anew, by network.

        It is paid at each change of networks unless they share the on-chip memory.
        """
        times: dict[str, float] = {}
        for name, size in self.parameter_bytes().items():
            link = self.networks[name].link
            assert link is not None, "there are segments on the Edge TPU"
            times[name] = LINKS[link].per_mb_sent * size / _MB
        return times

    def sharing(self) -> str:
        """Return what the networks' parameters on the Edge TPU cost; "" without any."""
        # A network on the CPU alone takes no part.
        sizes = self.parameter_bytes()
        if not sizes:
            return ""
        total = sum(sizes.values())
        swaps = []
        for name, ms in self.swap_ms().items():
            swaps.append(f"{name} est. {estimate_text(ms, EDGETPU_ERROR)} ms")
        head = f"on the Edge TPU: {total / _MB:.2f} MB of parameters of all networks"
        swap = f"a swap costs {', '.join(swaps)}"
        if total <= PARAMETER_CACHE:
            return (
                f"{head}, which stay on the chip together ({PARAMETER_CACHE / _MB:.1f} "
                f"MB): no swaps; without that {swap}"
            )
        beyond = (total - PARAMETER_CACHE) / _MB
        return (
            f"{head}, {beyond:.2f} MB more than stay on the chip "
            f"({PARAMETER_CACHE / _MB:.1f} MB) and are sent each time; {swap}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the reports in JSON's types, with the outcomes of requirements."""
        outcomes = [asdict(outcome) for outcome in self.outcomes]
        if not self.is_cascade:
            return {**self.report.to_json(), "requirements": outcomes}
        networks = {name: report.to_json() for name, report in self.networks.items()}
        return {
            "cascade": self.model,
            "swap_ms": self.swap_ms(),
            "networks": networks,
            "requirements": outcomes,
        }

    def write_pages(self, path: Path) -> None:
        """Write the page of each network, and of a cascade one of all together.

        Raises InputError if the operating system refuses.
        """
        pages = {name: page(report) for name, report in self.networks.items()}
        write_pages(path, pages, self._whole() if self.is_cascade else None)

    def _whole(self) -> SummaryPage:
        """Return the page of all networks together."""
        rows = []
        for name, report in self.networks.items():
            c = report.comparison.edgec
            share = percent(c.tpu_macs / c.macs if c.macs else 0.0)
            parameters = as_size(self.parameter_bytes().get(name, 0))
            rows.append(
                (
                    name,
                    whole_ms(report),
                    share,
                    str(c.tpu_segments),
                    parameters,
                )
            )
        table = PageTable("Each network", _HEAD, rows)
        notes = [note for note in (self.sharing(),) if note]
        targets = {report.target for report in self.networks.values()}
        title = f"{self.model} for {', '.join(targets)}"
        return SummaryPage(title, _SUMMARY, [table], notes)

    def text(self, ops: bool) -> str:
        """Return the reports for a terminal; ops: with a line for each operation."""
        if not self.is_cascade:
            return to_text(self.report, ops)
        parts: list[str] = []
        terms: dict[str, None] = {}
        for name, report in self.networks.items():
            parts.append(f"network {name}\n{body(report, ops)}\n")
            terms |= dict.fromkeys(report_terms(report))
        shared = self.sharing()
        if shared:
            parts.append(shared)
        return "\n\n".join([*parts, legend(terms)]) + "\n"


def explain(
    model: Path,
    options: Options,
    progress: Progress = lambda text: None,
    require: Sequence[str] = (),
    schedule: str | None = None,
) -> Explanation:
    """Return the reports on the networks of a model file or a cascade.toml.

    A requirement on a cascade holds for each network, or for one where its name comes
    first, as in `mesh.ms<=5ms`. Raises EdgecError.

    schedule: the names of operations of a model, a pattern, whose kernels are reported.
    """
    # A name of the catalogue may be a cascade's.
    file = local_file(model, progress)
    if is_cascade(file):
        if schedule is not None:
            raise InputError(
                "the kernels of a cascade's networks are shown for each alone",
                at="--schedule",
                hint="explain the file of the network",
            )
        return _explain_cascade(file, options, progress, require)
    # Typing errors in requirements end before the work, not after it.
    goals = requirements(require)
    report = explain_model(file, options, progress, schedule)
    outcomes = tuple(check(goals, report))
    return Explanation(report.model, {report.model: report}, outcomes)


def _explain_cascade(
    file: Path, options: Options, progress: Progress, require: Sequence[str]
) -> Explanation:
    """Return the reports on the networks of a cascade.toml."""
    source = read_cascade(file)
    names = [network.name for network in source.models()]
    general, of_networks = by_network(require, names)
    # Typing errors in requirements end before the work, not after it.
    goals = {name: requirements([*general, *of_networks[name]]) for name in names}
    cascade_options = CompileOptions(**vars(options))
    check_options(cascade_options)
    reports: dict[str, ExplainReport] = {}
    for network in source.models():
        job = network_job(file, network, cascade_options, progress)
        values = {name: getattr(job.options, name) for name in vars(options)}
        reports[network.name] = explain_model(
            job.model, type(options)(**values), progress
        )
    outcomes = []
    for name, report in reports.items():
        for outcome in check(goals[name], report):
            outcomes.append(replace(outcome, text=f"{name}: {outcome.text}"))
    return Explanation(file.stem, reports, tuple(outcomes), is_cascade=True)
