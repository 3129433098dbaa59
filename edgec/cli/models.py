"""Defines the verbs about models: compile, finish, explain, run, doctor and demo."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from edgec_devices.requirement import RequirementOutcome

import edgec
from edgec.cli.declared import given, options_of
from edgec.cli.echo import echo
from edgec.cli.reach import SHARE, TIMEOUT, on_one, resolved
from edgec.cli.sections import SectionedCommand, option
from edgec.compiler.options import CompileOptions, Options
from edgec.declared import Section
from edgec.report.files import check_place
from edgec.report.terminal import progress, where_the_time_went

_MODEL = click.argument("model", type=click.Path(path_type=Path))
_BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
_QUIET = click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")


@click.command(cls=SectionedCommand)
@_MODEL
@options_of(CompileOptions)
@option(
    "-q",
    "--quiet",
    section=Section.OTHER,
    is_flag=True,
    help="print nothing but errors",
)
def compile(model: Path, quiet: bool, **options: Any) -> None:
    """Turn MODEL (.onnx, .tflite, .pt2, cascade.toml) into one verified bundle."""
    # Imported here, as in all verbs: --help should not load the whole compiler.
    from edgec.compiler.compile import compile_networks

    with progress(quiet) as say:
        done = compile_networks(model, given(CompileOptions, options), say)
    if not quiet:
        echo(f"{done.summary()}\n{where_the_time_went(done.steps)}")
        echo(f"next: {done.next_command()}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_QUIET
def finish(folder: Path, quiet: bool) -> None:
    """Go on with the FOLDER of --edgetpu-compiler folder:DIR, after its compile.sh has
    run.
    """
    from edgec.compiler.compile import finish

    with progress(quiet) as say:
        done = finish(folder, say)
    if not quiet:
        echo(f"{done.summary()}\n{where_the_time_went(done.steps)}")


@click.command(cls=SectionedCommand)
@_MODEL
@options_of(Options)
@option(
    "--ops",
    section=Section.REPORT,
    is_flag=True,
    help="also a line for each operation: where it runs, and why",
)
@option(
    "--json",
    "as_json",
    section=Section.REPORT,
    is_flag=True,
    help="machine-readable, to standard output",
)
@option(
    "--html",
    section=Section.REPORT,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="a page with the graph to look at",
)
@option(
    "--require",
    section=Section.REPORT,
    multiple=True,
    metavar="EXPR",
    help="exit code 1 unless it holds: tpu.macs>=95%, tpu=100%, ms<=20ms, …",
)
def explain(
    model: Path,
    ops: bool,
    as_json: bool,
    html: Path | None,
    require: tuple[str, ...],
    **options: Any,
) -> int:
    """Show what runs where, and why, next to what the stock compiler would do."""
    from edgec.report.explain.page import page
    from edgec.report.explain.text import to_text
    from edgec.report.files import write_whole
    from edgec.verbs.explain_cascade import ExplainedCascade, explain_networks

    # A typing error in the path ends before the work, not after it.
    if html is not None:
        check_place(html, "--html")
    with progress() as say:
        report, outcomes = explain_networks(
            model, given(Options, options), say, require
        )
    if isinstance(report, ExplainedCascade):
        if html is not None:
            report.page().write(html)
        return _explained(report.to_json() if as_json else report.text(ops), outcomes)

    if html is not None:
        write_whole(html, page(report))
    if not as_json:
        return _explained(to_text(report, ops), outcomes)
    data = report.to_json()
    data["requirements"] = [asdict(outcome) for outcome in outcomes]
    return _explained(data, outcomes)


def _explained(
    report: str | dict[str, Any], outcomes: Sequence[RequirementOutcome]
) -> int:
    """Print a report and the outcomes of requirements; return the exit code."""
    as_json = not isinstance(report, str)
    if isinstance(report, str):
        echo(report, nl=bool(outcomes))
    else:
        echo(json.dumps(report, indent=1))
    # To standard error beside JSON, so that the output is JSON and no more.
    for outcome in outcomes:
        echo(outcome.line(), err=as_json)
    return 0 if all(outcome.holds for outcome in outcomes) else 1


@click.command()
@_BUNDLE
@click.option(
    "--input",
    "inputs",
    required=True,
    type=click.Path(path_type=Path),
    help=".npz by input name, .npy, or a photo",
)
@click.option(
    "--output",
    "--out",
    "output",
    type=click.Path(path_type=Path),
    help="file for the result: .png or .jpg, drawn; .json; or .npz, "
    "the outputs as they are",
)
@click.option(
    "--effect",
    metavar="NAME",
    help="what --out shows, as of edgec webcam (default: overlay)",
)
@click.option(
    "--mask",
    is_flag=True,
    help="of a segmentation: --out x.png has the class of each pixel, not the photo",
)
@click.option("--raw", is_flag=True, help="the outputs as they are, not what they mean")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="the result machine-readable, to standard output",
)
@on_one("device", default="local:", show_default=True)
@click.option(
    "--threads",
    default=1,
    show_default=True,
    metavar="N",
    help="of the CPU, as the bundle was compiled for",
)
@TIMEOUT
def run(
    bundle: Path,
    inputs: Path,
    output: Path | None,
    effect: str | None,
    mask: bool,
    raw: bool,
    as_json: bool,
    device: str,
    threads: int,
    timeout: float,
) -> None:
    """Run one inference of a bundle on a device, and tell or draw what was found
    (--task of compile).
    """
    from edgec_runtime.webcam.effects import OVERLAY

    from edgec.verbs.run import RunRequest, run_bundle

    request = RunRequest(
        bundle=bundle,
        inputs=inputs,
        output=output,
        device=resolved(device),
        timeout=timeout,
        threads=threads,
        raw=raw,
        effect=effect or OVERLAY,
        mask=mask,
    )
    done = run_bundle(request)
    echo(json.dumps(done.to_json(), indent=1) if as_json else done.text())


@click.command()
@on_one(
    "device",
    help="ssh://pi@host, serial:///dev/ttyUSB0, … or a name of edgec.toml; without it, "
    "this machine",
)
@TIMEOUT
@SHARE
@click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
def doctor(
    device: str | None, timeout: float, share: Path | None, as_json: bool
) -> None:
    """Look at this machine or a device: system, interpreters, Edge TPU, power; one
    command to type for each finding.
    """
    if share is not None:
        check_place(share, "--share")
    # Nobody can answer a question for a password in a pipe or a CI job.
    asks = sys.stdin.isatty()
    report = edgec.doctor(device, ask=asks, timeout=timeout, share=share)
    echo(json.dumps(report.to_json(), indent=1) if as_json else report.table())
    if not report.ok:
        sys.exit(1)


@click.command()
@click.option("--target", default="pi4+coral", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("edgec-demo"),
    show_default=True,
    help="folder for the results",
)
@click.option("--photo", type=click.Path(path_type=Path), help="your own picture")
def demo(target: str, out: Path, photo: Path | None) -> None:
    """Compile the cartoon network, run it on an emulated board, and write the picture
    before and after.
    """
    from edgec.verbs.demo import run_demo

    run_demo(target, out, photo, echo)


VERBS: tuple[click.Command, ...] = (compile, finish, explain, run, doctor, demo)
