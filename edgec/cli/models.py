"""Defines the verbs about models and bundles: compile, explain, run, inspect, …"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from edgec_devices.options import Section

import edgec
from edgec.cli.options import JSON, QUIET, given, options_of
from edgec.cli.output import echo
from edgec.cli.sections import SectionedCommand, option
from edgec.errors import InputError
from edgec.exporting import PARAGRAPH, README, ExportOptions
from edgec.options.compile import CompileCall, ExplainCall
from edgec.options.devices import DoctorOptions
from edgec.options.files import FinishOptions, InspectOptions
from edgec.options.run import RunOptions
from edgec.options.serve import ServeOptions
from edgec.options.webcam import WebcamOptions
from edgec.report.files import check_place, check_places, write_bytes
from edgec.report.tables import table
from edgec.report.terminal import progress, where_the_time_went
from edgec.report.wording import count

if TYPE_CHECKING:
    from edgec.catalogue.listing import ListedModel

_FILE = click.Path(path_type=Path)


@click.command(cls=SectionedCommand)
@options_of(CompileCall)
@option(
    "-q",
    "--quiet",
    section=Section.OTHER,
    is_flag=True,
    help="print nothing but errors",
)
def compile(quiet: bool, **values: Any) -> None:
    """Turn MODEL (.onnx, .tflite, .pt2, cascade.toml) into one verified bundle."""
    with progress(quiet) as say:
        compiled = edgec.compile(**given(CompileCall, values), progress=say)
    if not quiet:
        echo(f"{compiled.summary()}\n{where_the_time_went(compiled.steps)}")
        echo(f"next: {compiled.next_command()}")


@click.command()
@options_of(FinishOptions)
@QUIET
def finish(quiet: bool, **values: Any) -> None:
    """Go on with the FOLDER of --edgetpu-compiler folder:DIR, after its compile.sh has
    run.
    """
    with progress(quiet) as say:
        compiled = edgec.finish(**given(FinishOptions, values), progress=say)
    if not quiet:
        echo(f"{compiled.summary()}\n{where_the_time_went(compiled.steps)}")


@click.command(cls=SectionedCommand)
@options_of(ExplainCall)
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
def explain(
    ops: bool,
    as_json: bool,
    html: Path | None,
    **values: Any,
) -> int:
    """Show what runs where, and why, next to what the stock compiler would do."""
    # A typing error in the path ends before the work, not after it.
    if html is not None:
        check_place(html, "--html")
    with progress() as say:
        explanation = edgec.explain(**given(ExplainCall, values), progress=say)
    if html is not None:
        explanation.write_pages(html)
    if as_json:
        echo(json.dumps(explanation.to_json(), indent=1))
    else:
        echo(explanation.text(ops), nl=bool(explanation.outcomes))
    # To standard error beside JSON, so that the output is JSON and no more.
    for outcome in explanation.outcomes:
        echo(outcome.line(), err=as_json)
    return 0 if all(outcome.holds for outcome in explanation.outcomes) else 1


@click.command()
@options_of(RunOptions)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="the result machine-readable, to standard output",
)
def run(as_json: bool, **values: Any) -> None:
    """Run one inference of a bundle on a device, and tell or draw what was found
    (--task of compile).
    """
    result = edgec.run(**given(RunOptions, values))
    echo(json.dumps(result.to_json(), indent=1) if as_json else result.text())


@click.command()
@options_of(DoctorOptions)
@JSON
def doctor(as_json: bool, **values: Any) -> None:
    """Look at this machine or a device: system, interpreters, Edge TPU, power; one
    command to type for each finding.
    """
    options = given(DoctorOptions, values)
    # Nobody can answer a question for a password in a pipe or a CI job.
    report = edgec.doctor(**options, ask=sys.stdin.isatty())
    echo(json.dumps(report.to_json(), indent=1) if as_json else report.table())
    if not report.ok:
        sys.exit(1)


@click.command()
@options_of(InspectOptions)
@JSON
@click.option("--html", type=_FILE, metavar="FILE", help="a page to look at")
@click.option(
    "--disassemble",
    is_flag=True,
    help="the instructions of a .tflite file of edgetpu_compiler as text, instead",
)
@click.option(
    "--assemble",
    type=_FILE,
    metavar="FILE",
    help="write the .tflite file that a text of --disassemble describes, instead",
)
@click.option(
    "--simulate",
    type=_FILE,
    nargs=2,
    metavar="INPUTS OUTPUTS.npz",
    help="execute the .tflite file on a simulated Edge TPU, instead: inputs are an .npz "
    "by name or an .npy",
)
def inspect(
    as_json: bool,
    html: Path | None,
    disassemble: bool,
    assemble: Path | None,
    simulate: tuple[Path, Path] | None,
    **values: Any,
) -> None:
    """Show what is in a bundle: networks, inputs and outputs, where they run, accuracy,
    sizes, licences, signature; or in a .tflite file of edgetpu_compiler: programs,
    parameters, memory, transfers, instructions.
    """
    from edgec.inspecting.compiled import CompiledInspection, assembled
    from edgec.report.files import write_whole
    from edgec.report.inspect.files import page_of, text_of

    check_places({"html": html, "assemble": assemble})
    if assemble is not None:
        write_bytes(assemble, assembled(Path(values["bundle"])))
        echo(f"written: {assemble}")
        return
    if simulate is not None:
        from edgec.inspecting import simulation

        check_places({"simulate": simulate[1]})
        for line in simulation.simulate(Path(values["bundle"]), *simulate):
            echo(line)
        echo(f"written: {simulate[1]}")
        return
    inspection = edgec.inspect(**given(InspectOptions, values))
    if html is not None:
        write_whole(html, page_of(inspection))
    if disassemble:
        if not isinstance(inspection, CompiledInspection):
            raise InputError(
                "a bundle has no instructions of its own",
                at="--disassemble",
                hint="edgec export --tflite takes its .tflite files out; give one of them",
            )
        for line in inspection.listing():
            echo(line)
    elif as_json:
        echo(json.dumps(inspection.to_json(), indent=1))
    else:
        echo(text_of(inspection), nl=False)


@click.command()
@options_of(ExportOptions)
def export(**values: Any) -> None:
    """Take the parts out of a bundle that other tools read, each kind into a new folder
    with a README.
    """
    for folder in edgec.export(**given(ExportOptions, values)):
        echo(f"{folder}: its README.md says how to use it")
        readme = folder / README
        # The folders of a cascade's networks have one each.
        if readme.exists():
            echo(f"  {readme.read_text(encoding='utf-8').split(PARAGRAPH)[-1].strip()}")


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


@click.command()
@options_of(WebcamOptions)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="the figures machine-readable, to standard output",
)
def webcam(as_json: bool, **values: Any) -> None:
    """Show a live picture that a BUNDLE changes, before and after; the page switches
    between several.
    """

    def say(text: str) -> None:
        # Standard output is for the JSON alone.
        echo(text, err=as_json)

    def confirm(question: str) -> bool:
        # A script has nobody who could answer.
        return sys.stdin.isatty() and click.confirm(question, default=True, err=True)

    options = given(WebcamOptions, values)
    shown = edgec.webcam(**options, progress=say, confirm=confirm)
    echo(json.dumps(shown.to_json(), indent=1) if as_json else shown.text())


@click.command()
@options_of(ServeOptions)
def serve(**values: Any) -> None:
    """Detect objects in the pictures that Frigate and other programs send."""
    counts = edgec.serve(**given(ServeOptions, values), progress=echo)
    echo(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))


@click.command()
@click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
def models(as_json: bool) -> None:
    """List ready networks and pictures of the package index, and cascades of them
    (docs/models.md). A name stands wherever a model is given: edgec compile models:faces.
    """
    from edgec.catalogue.listing import listed_cascades

    listed = edgec.models()
    cascades = listed_cascades()
    if as_json:
        everything = [one.to_json() for one in listed]
        everything += [one.to_json() for one in cascades]
        echo(json.dumps(everything, indent=1))
        return
    rows: list[tuple[str, ...]] = []
    for one in listed:
        here = "here" if one.path is not None else ""
        macs = count(one.entry.macs) if one.entry.macs else ""
        rows.append((one.name, here, macs, one.entry.purpose))
    for cascade in cascades:
        here = "here" if cascade.here else ""
        what = cascade.cascade
        purpose = f"{what.purpose} ({', '.join(what.networks)})"
        rows.append((cascade.name, here, count(cascade.macs), purpose))
    echo(table(("name", "", "MACs", "what it is for"), rows, "llrl"), nl=False)
    echo(f"\n{_sources(listed)}")


@click.command()
@click.argument("names", nargs=-1, metavar="NAME…")
@click.option("--all", "every", is_flag=True, help="everything that is listed")
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
def get(names: Sequence[str], every: bool, quiet: bool) -> None:
    """Download networks or pictures into the cache; the wheels around them are not
    kept.
    """
    if bool(names) == every:
        message = "give names, or --all" if every else "no name was given"
        raise InputError(message, "edgec models get", "see the names: edgec models")
    if every:
        names = [one.name for one in edgec.models()]
    with progress(quiet) as say:
        fetched = edgec.models(names, progress=say)
    if quiet:
        return
    for one in fetched:
        echo(f"{one.name}: {one.path}")
    echo(_sources(fetched))


def _sources(listed: Sequence[ListedModel]) -> str:
    """Return a line for each wheel and licence: origin, licence, place of its text."""
    lines: list[str] = []
    for one in listed:
        wheel = one.wheel
        lines.append(
            f"{wheel.project} {wheel.version}: {one.license} "
            f"(its text: {one.license_text} in the wheel)"
        )
    # Most files of a wheel have the same licence.
    return "\n".join(dict.fromkeys(lines))


VERBS: tuple[click.Command, ...] = (
    compile,
    finish,
    explain,
    run,
    doctor,
    inspect,
    export,
    webcam,
    serve,
    demo,
)
"""All but `models` and its verb."""
