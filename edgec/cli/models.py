"""Defines the verbs about models: compile, finish, explain, run, doctor and demo."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from edgec_runtime.vision.tasks import TASKS

import edgec
from edgec.cli.echo import echo
from edgec.cli.inputs import about_inputs, input_options
from edgec.cli.reach import TIMEOUT, on_one, resolved
from edgec.cli.sections import SectionedCommand, option
from edgec.report.terminal import progress, where_the_time_went

if TYPE_CHECKING:
    from edgec.compiler.options import Options

_MODEL = click.argument("model", type=click.Path(path_type=Path))
_BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
_QUANTIZE_HELP = (
    "how --calibrate makes it int8: best (ranges, weights and biases corrected; a minute "
    "or more), fast (min and max alone; seconds), or a .toml file; a quantized model is "
    "taken as it is"
)
_TASK_HELP = (
    f"what its outputs mean: {', '.join(TASKS)}; a family such as yolox; "
    "or a .json or .toml file (docs/tasks.md; "
    "default: MODEL.edgec-task.json, if it is there)"
)
_TARGET = "Where it runs"
_INT8 = "int8"
_OUTPUTS = "What its outputs mean"
_REPORT = "The report"
_OTHER = "Other"
"""Titles of the sections of --help."""
_F = TypeVar("_F", bound=Callable[..., Any])
_QUIET = click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")


def _precision_options() -> list[Callable[..., Any]]:
    """Return the options about operations that stay float32."""
    return [
        option(
            "--max-drop",
            section=_INT8,
            metavar="PERCENT",
            help="leave operations in float32 until int8 changes the top class of at "
            "most so many samples (1%); of "
            "outputs that are no classes, until the noise has at most this part of "
            "their power",
        ),
        option(
            "--float-ops",
            metavar="NAME,NAME,…",
            help="operations that stay float32, as explain calls them, or their nodes; "
            "* and ? for any characters",
        ),
        option(
            "--min-sqnr",
            type=float,
            metavar="DB",
            help="as --max-drop, until every output has this SQNR: 20",
        ),
        option(
            "--max-ms",
            type=float,
            metavar="MS",
            help="what may be spent on it: no inference estimated to be slower",
        ),
        option(
            "--min-tpu-share",
            metavar="PERCENT",
            help="and this part of the MACs stays on the Edge TPU: 90%",
        ),
        option(
            "--max-slowdown",
            metavar="PERCENT",
            help="where none of --max-drop, --min-sqnr, --max-ms and --min-tpu-share "
            "is given: operations stay float32 "
            "as long as the model is estimated to be slower by no more than this, "
            "if that buys 1 dB (best: 10%; 0% for "
            "int8 alone)",
        ),
    ]


def _lowering_options(default_recipe: str) -> Callable[[_F], _F]:
    """Return a decorator with the options that `compile` and `explain` share.

    `default_recipe` is the default of --quantize, for its help.
    """
    options = [
        option(
            "--target",
            section=_TARGET,
            default="host",
            show_default=True,
            help="host, pi4, pi4+coral, …",
        ),
        option(
            "--calibrate",
            section=_INT8,
            type=click.Path(path_type=Path),
            help="folder of photos or .npz: quantize to int8",
        ),
        option(
            "--quantize",
            section=_INT8,
            show_default=False,
            metavar="RECIPE",
            help=f"{_QUANTIZE_HELP}  [default: {default_recipe}]",
        ),
        *_precision_options(),
        option(
            "--prune",
            metavar="PERCENT",
            help="take out channels that add little, where that is faster, "
            "as long as the float model's outputs "
            "change by no more than this: as --max-drop",
        ),
        *input_options(),
        option(
            "--min-cosine",
            default=0.9,
            show_default=True,
            help="how like the float model int8 must be",
        ),
        option(
            "--disable-pass",
            multiple=True,
            metavar="NAME",
            help="switch a pass or a rewrite off",
        ),
        option(
            "--edgetpu",
            default="auto",
            show_default=True,
            metavar="auto|all",
            help="of what it can run, the Edge TPU gets what is faster with it, "
            "or all: the CPU is left free",
        ),
        option(
            "--optimistic",
            is_flag=True,
            help="try ops on the Edge TPU that it may or may not have",
        ),
        option(
            "--allow-float",
            is_flag=True,
            help="a float model without --calibrate: all of it on the CPU",
        ),
        option(
            "--keep-head",
            is_flag=True,
            help="a detector keeps the head that picks its boxes, "
            "also where int8 cannot hold it",
        ),
    ]

    def add(fn: _F) -> _F:
        # The decorator that is applied last is the first in --help.
        for add_option in reversed(options):
            fn = add_option(fn)
        return fn

    return add


@click.command(cls=SectionedCommand)
@_MODEL
@_lowering_options("best")
@option(
    "-o",
    "--output",
    section=_TARGET,
    type=click.Path(path_type=Path),
    help="the bundle (default: MODEL.edgec)",
)
@option("--task", section=_OUTPUTS, metavar="NAME|FILE", help=_TASK_HELP)
@option(
    "--labels",
    section=_OUTPUTS,
    type=click.Path(path_type=Path),
    help="text file, one label a line",
)
@option(
    "--anchors",
    type=click.Path(path_type=Path),
    help="of a detection: .npy, .csv or .json, [N,4]",
)
@option(
    "--validate",
    section=_INT8,
    type=click.Path(path_type=Path),
    help="as --calibrate, to verify with (default: a quarter of those)",
)
@option(
    "--threads",
    section=_TARGET,
    default=1,
    show_default=True,
    metavar="N",
    help="the most that its C can use, 1 to 4",
)
@option(
    "--also",
    multiple=True,
    metavar="armv7|host",
    help="code for this too: 32-bit systems of the board, or this machine, "
    "where the bundle is only tried otherwise",
)
@option(
    "--edgetpu-compiler",
    section=_TARGET,
    metavar="WHERE",
    help="a path (default: PATH), ssh://[user@]host[:port], folder:DIR, none",
)
@option(
    "--tuned",
    metavar="FILE",
    help="schedules that edgec tune found (default: its default file), or none",
)
@click.option("--workers", hidden=True, expose_value=False)
@option("--cc", help="a C compiler of this machine for its own code, instead of zig")
@option(
    "--dump",
    multiple=True,
    metavar="after=PASS",
    help="write the graph after a pass (or after=all) beside the bundle",
)
@option("-q", "--quiet", section=_OTHER, is_flag=True, help="print nothing but errors")
def compile(
    model: Path,
    output: Path | None,
    quiet: bool,
    labels: Path | None,
    task: str | None,
    anchors: Path | None,
    cc: str | None,
    dump: tuple[str, ...],
    edgetpu_compiler: str | None,
    **options: Any,
) -> None:
    """Turn MODEL (.onnx, .tflite, .pt2) into one verified bundle."""
    from edgec.compiler.compile import compile_model

    with progress(quiet) as say:
        done = compile_model(
            model,
            output=output,
            labels=labels,
            task=task,
            anchors=anchors,
            cc=cc,
            dump=dump,
            options=_options(options),
            progress=say,
            edgetpu_compiler=edgetpu_compiler,
        )
    if not quiet:
        echo(f"{done.summary()}\n{where_the_time_went(done.steps)}")


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
@_lowering_options("fast")
@option(
    "--brief",
    section=_REPORT,
    is_flag=True,
    help="leave out the line for each operation",
)
@option(
    "--json",
    "as_json",
    section=_REPORT,
    is_flag=True,
    help="machine-readable, to standard output",
)
@option(
    "--html",
    section=_REPORT,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="a page with the graph to look at",
)
@option(
    "--require",
    section=_REPORT,
    multiple=True,
    metavar="EXPR",
    help="exit code 1 unless it holds: tpu.macs>=95%, tpu=100%, ms<=20ms, …",
)
def explain(
    model: Path,
    brief: bool,
    as_json: bool,
    html: Path | None,
    require: tuple[str, ...],
    **options: Any,
) -> int:
    """Show for every operation where it runs, and why, next to what the stock compiler
    would do.
    """
    from edgec.report.explain.page import page
    from edgec.report.explain.text import to_text
    from edgec.report.files import check_place, write_whole
    from edgec.verbs.explain import explain_model
    from edgec.verbs.requirements import check, requirements

    wanted = requirements(require)
    if html is not None:
        check_place(html, "--html")
    with progress(lines=False) as say:
        report = explain_model(model, _options(options), say)
    outcomes = check(wanted, report)
    if html is not None:
        write_whole(html, page(report))
    if as_json:
        data = report.to_json()
        data["requirements"] = [asdict(outcome) for outcome in outcomes]
        echo(json.dumps(data, indent=1))
    else:
        echo(to_text(report, not brief), nl=bool(outcomes))
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
@click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
def doctor(device: str | None, timeout: float, as_json: bool) -> None:
    """Look at this machine or a device: system, interpreters, Edge TPU, power; one
    command to type for each finding.
    """
    report = edgec.doctor(device, ask=sys.stdin.isatty(), timeout=timeout)
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


def _options(values: Mapping[str, Any]) -> Options:
    """Return the Options from the values of `_lowering_options` and similar options.

    Most options are fields of the same name.
    """
    from edgec.compiler.options import Options

    fields = dict(values)
    fields |= about_inputs(
        fields.pop("input_shape"), fields.pop("fix"), fields.pop("state")
    )
    fields["disable"] = fields.pop("disable_pass")
    names = (fields.pop("float_ops") or "").split(",")
    fields["float_ops"] = tuple(name.strip() for name in names if name.strip())
    return Options(**fields)


VERBS: tuple[click.Command, ...] = (compile, finish, explain, run, doctor, demo)
