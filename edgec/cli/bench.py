"""Defines `edgec bench` and `edgec tune`, which measure a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

import edgec
from edgec.cli.options import QUIET, given, options_of
from edgec.cli.output import echo
from edgec.errors import EdgecError, InputError
from edgec.options.bench import FILES, Bench
from edgec.options.tune import TuneOptions
from edgec.report.terminal import progress
from edgec.steps import Prefixed


@click.command()
@options_of(Bench, "bundle")
@click.option("-q", "--quiet", is_flag=True, help="print verdicts and errors alone")
def bench(quiet: bool, **values: Any) -> int:
    """Measure where the time goes on a device, and check it: the latency of a BUNDLE,
    or of those of edgec.toml.
    """
    benches = _benches(given(Bench, values))
    codes = []
    for i, arguments in enumerate(benches):
        if i:
            echo()
        bench_turn = f"bench {i + 1} of {len(benches)}: " if len(benches) > 1 else ""
        try:
            with progress(quiet) as display:
                say = Prefixed(bench_turn, display)
                codes.append(_bench(arguments | {"progress": say}, quiet))
        except EdgecError as e:
            if len(benches) == 1:
                raise
            # The other benches run all the same.
            echo(str(e), err=True)
            codes.append(e.exit_code)
    # 0 only if every bench passed.
    return max(codes)


def _bench(arguments: Mapping[str, Any], quiet: bool) -> int:
    """Bench a bundle, and print its verdicts or all of its report; the exit code."""
    from edgec.benching.verdicts import passed
    from edgec.report.bench.text import to_markdown

    report = edgec.bench(**arguments)
    verdicts = report.verdicts()
    lines = "".join(f"{verdict.line()}\n" for verdict in verdicts)
    echo(lines if quiet else to_markdown(report, verdicts_last=True), nl=False)
    return 0 if passed(verdicts) else 1


def _benches(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of the benches of edgec.toml that a command line selects.

    What the command line has goes before edgec.toml; without a bench there, the command
    line is the only one.
    """
    from edgec.benching.config import benches

    bundle = arguments.get("bundle")
    configured = benches(Path.cwd(), bundle, arguments.get("on"))
    if not configured:
        if bundle is None:
            raise InputError(
                "nothing to bench: edgec.toml has no bench for this",
                hint="give a BUNDLE, or write a [[bench]] with bundle and on into "
                "edgec.toml",
            )
        return [dict(arguments)]

    # Each bench would replace the file of the one before.
    files = sorted(arguments.keys() & FILES)
    if len(configured) > 1 and files:
        raise InputError(
            f"{len(configured)} benches of edgec.toml would write the same "
            f"--{files[0]} file",
            hint="say which with BUNDLE and --on, or name the files in edgec.toml",
        )
    # They were selected by these, and each has its own.
    more = {k: v for k, v in arguments.items() if k not in ("bundle", "on")}
    return [
        {f.name: getattr(one, f.name) for f in fields(one)} | more for one in configured
    ]


@click.command()
@options_of(TuneOptions)
@QUIET
def tune(quiet: bool, **values: Any) -> None:
    """Try every legal schedule of what a BUNDLE computes on a device; edgec compile
    uses the best.
    """
    from edgec.report.tuning import to_text

    with progress(quiet) as say:
        tuning = edgec.tune(**given(TuneOptions, values), progress=say)
    if not quiet:
        echo(to_text(tuning))
