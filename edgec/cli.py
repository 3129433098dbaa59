"""The command line: one verb per goal, the same names as in Python. Messages are what, where, one hint."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import edgec
from edgec import cli_bench, cli_devices, cli_machine, cli_package
from edgec.errors import EdgecError, InputError, did_you_mean
from edgec.terminal import progress

if TYPE_CHECKING:
    from edgec.lowering import Options

_MODEL = click.argument("model", type=click.Path(path_type=Path))
_BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
_QUIET = click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")


class _Verbs(click.Group):
    """A group that guesses what a mistyped verb meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            verbs = self.list_commands(ctx)
            what = f"there is no verb {args[0]}{did_you_mean(args[0], verbs)}"
            raise InputError(what, hint=f"verbs: {', '.join(verbs)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="edgec")
def cli() -> None:
    """Compile trained vision models for a Raspberry Pi, with or without a Coral Edge TPU."""


def _lowering_options(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `compile` and `explain` share."""
    for option in reversed(
        [
            click.option("--target", default="host", show_default=True, help="host, pi4, pi4+coral, …"),
            click.option(
                "--calibrate", type=click.Path(path_type=Path), help="folder of photos or .npz: quantize to int8"
            ),
            click.option("--preprocess", help="how photos become inputs: 0_1, m1_1, 0_255, imagenet, … (+bgr)"),
            click.option("--input-shape", multiple=True, metavar="NAME=1x3x224x224", help="freeze a dynamic input"),
            click.option("--min-cosine", default=0.9, show_default=True, help="how like the float model int8 must be"),
            click.option("--disable-pass", multiple=True, metavar="NAME", help="switch a pass or a rewrite off"),
            click.option("--optimistic", is_flag=True, help="try ops on the Edge TPU that it may or may not have"),
        ]
    ):
        fn = option(fn)
    return fn


@cli.command()
@_MODEL
@_lowering_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="the bundle (default: MODEL.edgec)")
@click.option("--labels", type=click.Path(path_type=Path), help="text file, one label a line")
@click.option("--cc", help="a C compiler of this machine for its own code, instead of zig")
@click.option(
    "--dump", multiple=True, metavar="after=PASS", help="write the graph after a pass (or after=all) beside the bundle"
)
@click.option(
    "--edgetpu-compiler", metavar="WHERE", help="a path (default: PATH), ssh://[user@]host[:port], folder:DIR, none"
)
@_QUIET
def compile(
    model: Path,
    output: Path | None,
    quiet: bool,
    labels: Path | None,
    cc: str | None,
    dump: tuple[str, ...],
    edgetpu_compiler: str | None,
    **options: Any,
) -> None:
    """Turn MODEL (.onnx, .tflite) into one verified bundle."""
    from edgec.compiler import compile_model

    done = compile_model(
        model, output=output, labels=labels, cc=cc, dump=dump, options=_options(**options), progress=progress(quiet),
        edgetpu_compiler=edgetpu_compiler,
    )  # fmt: skip
    if not quiet:
        click.echo(done.summary())


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@_QUIET
def finish(folder: Path, quiet: bool) -> None:
    """Go on with the FOLDER of --edgetpu-compiler folder:DIR, after its compile.sh has run."""
    from edgec.compiler import finish

    done = finish(folder, progress(quiet))
    if not quiet:
        click.echo(done.summary())


@cli.command()
@_MODEL
@_lowering_options
@click.option("--brief", is_flag=True, help="leave out the line for each operation")
@click.option("--json", "as_json", is_flag=True, help="machine-readable, to standard output")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="a page with the graph to look at")
@click.option(
    "--require", multiple=True, metavar="EXPR", help="exit code 2 unless it holds: tpu.macs>=95%, tpu=100%, ms<=20ms, …"
)
def explain(
    model: Path, brief: bool, as_json: bool, html: Path | None, require: tuple[str, ...], **options: Any
) -> int:
    """Show for every operation where it runs, and why, next to what the stock compiler would do."""
    from edgec_partitioner.explain_text import to_text

    from edgec.explaining import explain_model
    from edgec.report.explain_html import page
    from edgec.report.figures import check, requirements
    from edgec.report.files import check_place, write_whole

    wanted = requirements(require)
    if html is not None:
        check_place(html, "--html")
    report = explain_model(model, _options(**options))
    outcomes = check(wanted, report)
    if html is not None:
        write_whole(html, page(report))
    if as_json:
        click.echo(json.dumps({**report.to_json(), "requirements": [asdict(o) for o in outcomes]}, indent=1))
    else:
        click.echo(to_text(report, not brief), nl=bool(outcomes))
    for o in outcomes:
        click.echo(o.line(), err=as_json)
    return 0 if all(o.holds for o in outcomes) else 2


@cli.command()
@_BUNDLE
@click.option(
    "--input", "inputs", required=True, type=click.Path(path_type=Path), help=".npz by input name, .npy, or a photo"
)
@click.option("--output", required=True, type=click.Path(path_type=Path), help=".npz, or .png/.jpg for an image output")
@click.option("--on", "device", default="local:", show_default=True, help="local, emulated:pi4, …")
def run(bundle: Path, inputs: Path, output: Path, device: str) -> None:
    """Run one inference of a bundle on a device."""
    from edgec.running import run_bundle

    click.echo(run_bundle(bundle, inputs, output, device))


@cli.command()
@click.option("--on", "device", metavar="URL", help="a device: ssh://pi@host, serial:///dev/ttyUSB0, local:")
@click.option("--json", "as_json", is_flag=True, help="machine-readable, to standard output")
def doctor(device: str | None, as_json: bool) -> None:
    """Look at this machine or a device: system, interpreters, Edge TPU, power; one command to type for each finding."""
    report = edgec.doctor(device, ask=sys.stdin.isatty())
    click.echo(json.dumps(report.to_json(), indent=1) if as_json else report.table())
    if not report.ok:
        sys.exit(1)


@cli.command()
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
    """Compile the cartoon network, run it on an emulated board, and write the picture before and after."""
    from edgec.demo import run_demo

    run_demo(target, out, photo, click.echo)


def _add_verbs() -> None:
    """Those of the other files.  `edgec devices` is a list by itself, and has verbs of its own."""
    for verb in (cli_bench.bench, *cli_devices.VERBS, *cli_package.VERBS):
        cli.add_command(verb)
    listing = cli_devices.devices
    cli.add_command(
        _Verbs(
            listing.name,
            {verb.name or "": verb for verb in cli_machine.MACHINE_VERBS},
            invoke_without_command=True,
            callback=_unless_a_verb(listing),
            params=listing.params,
            help=listing.help,
        )
    )


def _unless_a_verb(command: click.Command) -> Callable[..., Any]:
    """A group's callback: the command, if no verb of the group follows."""

    @click.pass_context
    def call(context: click.Context, /, **options: Any) -> Any:
        if context.invoked_subcommand is None and command.callback:
            return command.callback(**options)
        return None

    return call


_add_verbs()


def _options(
    target: str,
    calibrate: Path | None,
    preprocess: str | None,
    input_shape: tuple[str, ...],
    min_cosine: float,
    disable_pass: tuple[str, ...],
    optimistic: bool,
) -> Options:
    from edgec.lowering import Options

    shapes = dict(map(_parse_shape, input_shape))
    return Options(target, calibrate, preprocess, shapes, disable_pass, min_cosine, optimistic)


def _parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split("x"))
    except ValueError:
        shape = ()
    if not equals or not name or not shape or min(shape) < 1:
        raise InputError(f"--input-shape {text} is not NAME=1x3x224x224", hint="give positive sizes separated by x")
    return name, shape


def main() -> None:
    """Entry point: every error ends as a message and an exit code, never as a traceback unless it is our bug."""
    sys.exit(_guarded(lambda: cli.main(standalone_mode=False)))


def _guarded(call: Callable[[], Any]) -> int:
    try:
        result = call()
        return result if isinstance(result, int) else 0
    except EdgecError as e:
        click.echo(str(e), err=True)
        return e.exit_code
    except click.exceptions.Exit as e:
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except click.ClickException as e:
        hint = f"edgec {e.ctx.info_name} --help" if isinstance(e, click.UsageError) and e.ctx else "edgec --help"
        click.echo(f"error: {e.format_message()}\n  hint: {hint}", err=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        click.echo(
            f"error: {e.strerror or e}\n  at: {e.filename}\n  hint: check the path, its permissions and the free space",
            err=True,
        )
        return 1
    except Exception:
        return _our_bug()


def _our_bug() -> int:
    """Exit code 70 with a file that holds the traceback and the command."""
    with tempfile.NamedTemporaryFile("w", prefix="edgec-bug-", suffix=".txt", delete=False) as f:
        f.write(f"command: {sys.argv}\npython: {sys.version}\n\n{traceback.format_exc()}")
    last = traceback.format_exc().strip().splitlines()[-1]
    click.echo(
        f"error: this is a bug of edgec: {last}\n  at: {f.name}\n  hint: report it with that file and the model",
        err=True,
    )
    return 70


if __name__ == "__main__":
    main()
