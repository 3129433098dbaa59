"""Defines `edgec bench`, which measures a bundle and judges it by budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgec.cli.echo import echo
from edgec.cli.reach import SHARE, on_one, resolved
from edgec.errors import EdgecError, InputError
from edgec.report.terminal import progress
from edgec.steps import Prefixed, Progress

if TYPE_CHECKING:
    from edgec.benching.request import Bench
    from edgec.benching.verdicts import BudgetVerdict

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("bundle", type=_FILE, required=False)
@on_one("on")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="EXPR",
    help="exit code 1 unless it holds: p95<=33ms, …",
)
@click.option("--runs", type=int, metavar="N", help="so many timed inferences in all")
@click.option(
    "--seconds",
    type=float,
    metavar="S",
    help="timed inferences for so long in all (default: about 5)",
)
@click.option(
    "--threads",
    type=int,
    metavar="N",
    help="of the CPU, as the bundle was compiled for (default: 1)",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    metavar="S",
    help="give up when for S seconds nothing moved (default: 30)",
)
@click.option(
    "--frames",
    type=int,
    metavar="N",
    help="also so many as a stream, whose figures budgets can name",
)
@click.option(
    "--source",
    metavar="WHAT",
    help="of these frames, as of edgec webcam (default: made ones)",
)
@click.option(
    "--compare",
    type=_FILE,
    metavar="OLD.json",
    help="with an earlier --json: exit code 1 if it regressed",
)
@click.option(
    "--max-regress", metavar="5%", help="how much slower than that is too slow"
)
@click.option(
    "--accept-estimates",
    is_flag=True,
    default=None,
    help="let estimates satisfy budgets",
)
@click.option(
    "--accept-throttling",
    is_flag=True,
    default=None,
    help="let a run pass in which the device throttled",
)
@click.option(
    "--json",
    "json",
    type=_FILE,
    metavar="FILE",
    help="all figures and samples (docs/bench.schema.json)",
)
@click.option(
    "--junit",
    type=_FILE,
    metavar="FILE",
    help="a test case for each verdict, for CI systems",
)
@click.option(
    "--markdown",
    type=_FILE,
    metavar="FILE",
    help="what the terminal shows, for CI systems",
)
@click.option(
    "--trace",
    type=_FILE,
    metavar="FILE",
    help="for chrome://tracing or ui.perfetto.dev",
)
@click.option("--html", type=_FILE, metavar="FILE", help="a page to look at")
@SHARE
@click.option("-q", "--quiet", is_flag=True, help="print verdicts and errors alone")
def bench(bundle: Path | None, on: str | None, quiet: bool, **options: Any) -> int:
    """Measure where the time goes on a device, and check it: the latency of a BUNDLE,
    or of those of edgec.toml.
    """
    from edgec.benching.verdicts import passed

    # An option that is not given leaves the value of edgec.toml.
    given = {k: v for k, v in options.items() if v not in (None, ())}
    requests = _requests(bundle, on, given)
    codes = []
    for i, request in enumerate(requests):
        if i:
            echo()
        try:
            with progress(quiet) as display:
                bench_turn = ""
                if len(requests) > 1:
                    bench_turn = f"bench {i + 1} of {len(requests)}: "
                judged, text = _judged(request, Prefixed(bench_turn, display))
        except EdgecError as e:
            if len(requests) == 1:
                raise
            # The other benches run all the same.
            echo(str(e), err=True)
            codes.append(e.exit_code)
            continue
        lines = "".join(f"{verdict.line()}\n" for verdict in judged)
        echo(lines if quiet else text, nl=False)
        codes.append(0 if passed(judged) else 1)
    # 0 only if every bench passed.
    return max(codes)


def _judged(request: Bench, say: Progress) -> tuple[tuple[BudgetVerdict, ...], str]:
    """Measure a bundle, and return its verdicts and its report for a terminal."""
    from edgec.benching.cascade_report import CascadeBench
    from edgec.benching.verdicts import verdicts
    from edgec.report.bench.cascade import cascade_markdown
    from edgec.report.bench.text import to_markdown
    from edgec.verbs.bench_cascade import bench_networks

    report = bench_networks(request, say)
    if isinstance(report, CascadeBench):
        return report.verdicts(), cascade_markdown(report, verdicts_last=True)
    return verdicts(report), to_markdown(report, verdicts_last=True)


def _requests(
    bundle: Path | None, on: str | None, given: Mapping[str, Any]
) -> list[Bench]:
    """Return the benches of edgec.toml that the arguments select, or a single one.

    Options have priority over edgec.toml.
    """
    from edgec.benching.config import benches
    from edgec.benching.request import FILES, Bench, share

    options = dict(given)
    # `Bench` has a number, the command line a text such as 5%.
    if "max_regress" in options:
        options["max_regress"] = share(options["max_regress"])
    configured = benches(Path.cwd(), bundle, on)
    if not configured:
        if bundle is None:
            raise InputError(
                "nothing to bench: edgec.toml has no bench for this",
                hint="give a BUNDLE, or write a [[bench]] with bundle and on into "
                "edgec.toml",
            )
        return [Bench(bundle, resolved(on) if on else "local:", **options)]

    # Each bench would replace the file of the one before.
    files = sorted(options.keys() & FILES)
    if len(configured) > 1 and files:
        raise InputError(
            f"{len(configured)} benches of edgec.toml would write the same "
            f"--{files[0]} file",
            hint="say which with BUNDLE and --on, or name the files in edgec.toml",
        )
    return [replace(request, **options) for request in configured]
