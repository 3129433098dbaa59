"""Defines `edgec eval`, which judges a bundle on labelled pictures."""

from __future__ import annotations

from typing import Any

import click

import edgec
from edgec.cli.options import given, options_of
from edgec.cli.output import echo
from edgec.options.evaluate import EvalOptions
from edgec.report.terminal import progress


@click.command("eval")
@options_of(EvalOptions)
@click.option("-q", "--quiet", is_flag=True, help="print verdicts and errors alone")
def evaluate(quiet: bool, **values: Any) -> int:
    """Judge a BUNDLE on your own labelled pictures, beside its float model and on a
    device.

    The task of the bundle decides what is measured: top-1 and top-5, mAP, mIoU, the
    error of points, or PSNR and SSIM, each with a 95 % interval:

        edgec eval net.edgec --data photos/ --model net.onnx

    Exit code 1: a budget does not hold. See docs/eval.md.
    """
    from edgec.report.evaluation.text import to_text

    try:
        with progress(quiet) as say:
            report = edgec.eval(**given(EvalOptions, values), progress=say)
    except KeyboardInterrupt:
        echo("what was evaluated is kept: the same command goes on", err=True)
        raise
    lines = "".join(f"{verdict.line()}\n" for verdict in report.verdicts)
    echo(lines if quiet else to_text(report), nl=False)
    return 0 if report.passed else 1
