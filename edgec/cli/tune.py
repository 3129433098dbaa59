"""Defines `edgec tune`, which searches the legal schedules of a bundle's calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgec.cli.echo import echo
from edgec.cli.reach import TIMEOUT, on_one, resolved, workers_option
from edgec.report.terminal import progress


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@on_one("on", default="local:", show_default=True)
@workers_option("trials at a time (default: the cores here for --on emulated:, else 1)")
@click.option(
    "--ops",
    type=int,
    metavar="N",
    help="at most so many kinds of calls, the largest first",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="the database; what it has is not tried again (default: "
    "~/.config/edgec/tune.json, which compile reads)",
)
@TIMEOUT
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
def tune(bundle: Path, on: str, quiet: bool, **options: Any) -> None:
    """Try every legal schedule of what a BUNDLE computes on a device; edgec compile
    uses the best.
    """
    from edgec.report.tuning import to_text
    from edgec.verbs.tune import Search
    from edgec.verbs.tune import tune as search

    with progress(quiet) as say:
        request = Search(bundle, resolved(on), **options)
        tuning = search(request, say)
    if not quiet:
        echo(to_text(tuning))
