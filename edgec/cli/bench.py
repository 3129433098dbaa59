"""Defines the verbs that measure and compare: bench, tune, diff and eval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

import edgec
from edgec.cli.options import QUIET, given, options_of
from edgec.cli.output import echo
from edgec.errors import EdgecError, InputError
from edgec.options.bench import FILES, BenchOptions
from edgec.options.diff import DiffOptions
from edgec.options.evaluate import EvalOptions
from edgec.options.tune import TuneOptions
from edgec.report.diff.text import ORDERS, threshold, to_text
from edgec.report.files import check_place, write_whole
from edgec.report.terminal import progress
from edgec.steps import Prefixed

_FILE = click.Path(path_type=Path)


@click.command()
@options_of(BenchOptions, "bundle")
@click.option("-q", "--quiet", is_flag=True, help="print verdicts and errors alone")
def bench(quiet: bool, **values: Any) -> int:
    """Measure where the time goes on a device, and check it: the latency of a BUNDLE,
    or of those of edgec.toml.
    """
    benches = _benches(given(BenchOptions, values))
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


@click.command()
@options_of(DiffOptions)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="worst",
    show_default=True,
    help="of the layers: worst first, or as they run",
)
@click.option("--all", "every", is_flag=True, help="every layer, not only the worst")
@click.option(
    "--min-sqnr",
    type=float,
    metavar="DB",
    help="exit code 1 if an output has less (default: only report)",
)
@click.option(
    "--json",
    "json_file",
    type=_FILE,
    metavar="FILE",
    help="all figures, machine-readable (- for standard output)",
)
@click.option(
    "--html",
    type=_FILE,
    metavar="FILE",
    help="a page: error along the graph, ranges, images before and after",
)
def diff(
    order: str,
    every: bool,
    min_sqnr: float | None,
    json_file: Path | None,
    html: Path | None,
    **values: Any,
) -> int:
    """Compare A with B on the same inputs, layer by layer, and name the layer of B to
    look at first.

    A and B are models (.onnx, .tflite, .pt2) or bundles (.edgec), each perhaps after
    what is to run it: interp:, c:, int8: (quantize it here), litert:, litert-opt:,
    onnxruntime:, edgetpu:. A float model against its bundle:

        edgec diff net.onnx net.edgec --inputs photos/

    Exit code 1: an output is below --min-sqnr. See docs/diff.md.
    """
    from edgec.report.diff.page import page

    # "-" is the usual name of standard output, and no file is called so.
    to_screen = json_file == Path("-")
    # A bad path is refused before the work, which may take minutes.
    if html is not None:
        check_place(html, "--html")
    if json_file is not None and not to_screen:
        check_place(json_file, "--json")
    with progress() as say:
        comparison = edgec.diff(**given(DiffOptions, values), progress=say)

    if html is not None:
        write_whole(html, page(comparison))
    # NaN is no JSON: other languages could not read the file.
    text = json.dumps(comparison.to_json(), indent=1, allow_nan=False)
    if json_file is not None and not to_screen:
        write_whole(json_file, text + "\n")
    echo(text if to_screen else to_text(comparison, order, every))

    missed = ""
    if min_sqnr is not None:
        missed = threshold(comparison, min_sqnr)
    if missed:
        # Behind JSON on standard output, the line would make it unreadable.
        echo(missed, err=to_screen)
    return 1 if missed else 0


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


VERBS: tuple[click.Command, ...] = (bench, tune, diff, evaluate)
