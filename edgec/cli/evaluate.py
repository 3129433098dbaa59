"""Defines `edgec eval`, which judges a bundle on labelled pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgec.cli.echo import echo
from edgec.cli.reach import TIMEOUT, on_one, resolved
from edgec.report.terminal import progress

_FILE = click.Path(path_type=Path)


@click.command("eval")
@click.argument("bundle", type=_FILE)
@click.option(
    "--data",
    required=True,
    type=_FILE,
    metavar="PATH",
    help="labelled pictures: a folder for each class, a .csv, COCO's .json, folders of "
    "pairs, or points (docs/eval.md)",
)
@click.option(
    "--model",
    type=_FILE,
    metavar="FILE",
    help="the float model that it was compiled from, beside it; or models:NAME",
)
@on_one("on", help="also on a device: emulated:pi4, ssh://pi@host, …")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="EXPR",
    help="exit code 1 unless it holds: drop.top1<=1%, map50>=40%, …",
)
@click.option(
    "--pictures",
    type=_FILE,
    metavar="DIR",
    help="where the pictures are that a .csv or .json names (default: beside it)",
)
@click.option(
    "--normalise",
    metavar="HOW",
    help="errors of points: by the box around them (box), or by the distance of two "
    "points (36,45) [default: two eyes where points have such names, else box]",
)
@click.option(
    "--samples", type=int, metavar="N", help="at most so many pictures, spread over all"
)
@click.option(
    "--worst",
    type=int,
    metavar="N",
    help="so many of the worst pictures are shown (default: 12)",
)
@click.option(
    "--resamples",
    type=int,
    metavar="N",
    help="draws of the bootstrap (default: 1000; 200 for COCO)",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="run every picture anew (default: an evaluation goes on where one of the same "
    "bundle, pictures and labels was interrupted)",
)
@click.option("--threads", type=int, metavar="N", help="of the CPU (default: 1)")
@TIMEOUT
@click.option(
    "--json",
    type=_FILE,
    metavar="FILE",
    help="all figures, machine-readable (docs/eval.md)",
)
@click.option("--junit", type=_FILE, metavar="FILE", help="a test case for each budget")
@click.option(
    "--html", type=_FILE, metavar="FILE", help="a page with the worst pictures"
)
@click.option("-q", "--quiet", is_flag=True, help="print verdicts and errors alone")
def evaluate(on: str | None, quiet: bool, **options: Any) -> int:
    """Judge a BUNDLE on your own labelled pictures, beside its float model and on a
    device.

    The task of the bundle decides what is measured: top-1 and top-5, mAP, mIoU, the
    error of points, or PSNR and SSIM, each with a 95 % interval:

        edgec eval net.edgec --data photos/ --model net.onnx

    Exit code 1: a budget does not hold. See docs/eval.md.
    """
    from edgec.evaluation.tasks import DataOptions
    from edgec.report.evaluation.text import to_text
    from edgec.verbs.evaluate import EvaluationRequest, run_evaluation

    names = ("data", "pictures", "normalise")
    data = DataOptions(**{name: options.pop(name) for name in names})
    # An option that was not given keeps the default of the request.
    given = {name: value for name, value in options.items() if value is not None}
    if on is not None:
        given["on"] = resolved(on)
    request = EvaluationRequest(data=data, **given)
    try:
        with progress(quiet) as say:
            report = run_evaluation(request, say)
    except KeyboardInterrupt:
        echo("what was evaluated is kept: the same command goes on", err=True)
        raise
    lines = "".join(f"{verdict.line()}\n" for verdict in report.verdicts)
    echo(lines if quiet else to_text(report), nl=False)
    return 0 if report.passed else 1
