"""The command line: one verb per goal, the same names as in Python.

Messages are what, where, one hint.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import click

from edgec.cli import bench, devices, diff, machine, models, package, tune, webcam
from edgec.cli.echo import echo
from edgec.errors import EdgecError, InputError, did_you_mean


class _Verbs(click.Group):
    """A group that guesses what a mistyped verb meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if (
            args
            and not args[0].startswith("-")
            and self.get_command(ctx, args[0]) is None
        ):
            verbs = self.list_commands(ctx)
            what = f"there is no verb {args[0]}{did_you_mean(args[0], verbs)}"
            raise InputError(what, hint=f"verbs: {', '.join(verbs)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="edgec")
def cli() -> None:
    """Compile trained vision models for a Raspberry Pi, with or without a Coral Edge
    TPU.
    """


def _add_verbs() -> None:
    """Those of the other files.

    `edgec devices` is a list by itself, and has verbs of its own.
    """
    for verb in (
        *models.VERBS,
        bench.bench,
        diff.diff,
        tune.tune,
        webcam.webcam,
        *devices.VERBS,
        *package.VERBS,
    ):
        cli.add_command(verb)
    listing = devices.devices
    cli.add_command(
        _Verbs(
            listing.name,
            {verb.name or "": verb for verb in machine.MACHINE_VERBS},
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


def main() -> None:
    """Entry point of the program `edgec`.

    Ended from outside, it leaves no temporary files, as with ctrl-C.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores the second
            signal.signal(number, _ended)
    sys.exit(run_verb())


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def run_verb(args: list[str] | None = None) -> int:
    """Exit code of one command line (default: the program's own).

    Every error ends as a message and an exit code, never as a traceback unless it is
    our bug.
    """
    try:
        result = cli.main(args, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except EdgecError as e:
        echo(str(e), err=True)
        return e.exit_code
    except click.exceptions.Exit as e:
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        echo("stopped", err=True)
        return 130
    except click.ClickException as e:
        if isinstance(e, click.UsageError) and e.ctx:
            hint = f"edgec {e.ctx.info_name} --help"
        else:
            hint = "edgec --help"
        echo(f"error: {e.format_message()}\n  hint: {hint}", err=True)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        echo(
            f"error: {e.strerror or e}\n  at: {e.filename}\n  hint: check the path, "
            "its permissions and the free space",
            err=True,
        )
        return 1
    except Exception:
        return _our_bug()


def _our_bug() -> int:
    """Exit code 70 with a file that holds the traceback and the command."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="edgec-bug-", suffix=".txt", delete=False
    ) as f:
        f.write(
            f"command: {sys.argv}\npython: {sys.version}\n\n{traceback.format_exc()}"
        )
    last = traceback.format_exc().strip().splitlines()[-1]
    echo(
        f"error: this is a bug of edgec: {last}\n  at: {f.name}\n  hint: "
        "report it with that file and the model",
        err=True,
    )
    return 70


if __name__ == "__main__":
    main()
