"""Runs the command line, which has the same verbs as the Python package.

A message says what is wrong, where, and gives one hint.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn, TextIO

import click

from edgec.cli import bench, devices, machine, models
from edgec.cli.output import echo
from edgec.errors import EdgecError, EdgecWarning, InputError, did_you_mean

RESEND_S = 0.05
"""Seconds until a signal that Python has ignored is sent again."""


class _Verbs(click.Group):
    """A group that suggests the nearest verb for a mistyped one.

    Its help shows the first sentence of each verb whole.
    """

    def format_commands(self, ctx: click.Context, out: click.HelpFormatter) -> None:
        """Write the verbs with their summaries.

        click itself cuts a summary off after one line.
        """
        verbs = [
            (name, self.get_command(ctx, name)) for name in self.list_commands(ctx)
        ]
        rows = [
            (name, verb.get_short_help_str(len(verb.help or "")))
            for name, verb in verbs
            if verb is not None and not verb.hidden
        ]
        with out.section("Commands"):
            out.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a verb; raises InputError for an unknown verb."""
        # click would answer "no such command" with exit code 2 and no suggestion.
        is_verb = bool(args) and not args[0].startswith("-")
        if is_verb and self.get_command(ctx, args[0]) is None:
            verbs = self.list_commands(ctx)
            message = f"there is no verb {args[0]}{did_you_mean(args[0], verbs)}"
            raise InputError(message, hint=f"verbs: {', '.join(verbs)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="edgec")
def cli() -> None:
    """Compile trained vision models for a Raspberry Pi, with or without a Coral Edge
    TPU.
    """


def _add_verbs() -> None:
    """Add the verbs of the other files.

    `edgec devices` alone lists devices, and `edgec models` models; both have verbs too.
    """
    for verb in (*models.VERBS, *bench.VERBS, *devices.VERBS):
        cli.add_command(verb)
    cli.add_command(_with_verbs(devices.devices, machine.MACHINE_VERBS))
    cli.add_command(_with_verbs(models.models, (models.get,)))


def _with_verbs(listing: click.Command, verbs: Iterable[click.Command]) -> click.Group:
    """Return a group of verbs with the options of a command, which runs without one."""
    return _Verbs(
        listing.name,
        {verb.name or "": verb for verb in verbs},
        invoke_without_command=True,
        callback=_unless_a_verb(listing),
        params=listing.params,
        help=listing.help,
    )


def _unless_a_verb(command: click.Command) -> Callable[..., Any]:
    """Return the callback of a group, which runs a command unless a verb follows."""

    @click.pass_context
    def call(context: click.Context, /, **options: Any) -> Any:
        # click calls a group before its verb, which must not list anything first.
        if context.invoked_subcommand is None and command.callback:
            return command.callback(**options)
        return None

    return call


_add_verbs()


def main() -> None:
    """Run the program `edgec`.

    A signal ends it like ctrl-C: it leaves no temporary files.
    """
    # By default these signals end Python at once, and no `finally` runs.
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup makes the program ignore SIGHUP: it stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _ended)
    sys.unraisablehook = _send_again
    warnings.showwarning = _shown
    sys.exit(run_verb())


def _shown(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning, without the line of code if it is meant for a person."""
    if issubclass(category, EdgecWarning):
        echo(f"warning: {message}", err=True)
    else:
        _SHOW(message, category, filename, lineno, file, line)


_SHOW = warnings.showwarning


class _Signalled(SystemExit):
    """The end by a signal, with the exit code that shells use for it."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def _ended(number: int, frame: FrameType | None) -> NoReturn:
    """End the program."""
    raise _Signalled(number)


def _send_again(ignored: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose exception Python has ignored.

    Python does so in destructors and in callbacks of weak references, where a signal
    may come too.
    """
    exception = ignored.exc_value
    if isinstance(exception, _Signalled):
        number = exception.number
    elif isinstance(exception, KeyboardInterrupt):
        number = signal.SIGINT
    else:
        sys.__unraisablehook__(ignored)
        return

    # Python is still in the callback, and would ignore it once more.
    later = threading.Timer(RESEND_S, os.kill, (os.getpid(), number))
    later.daemon = True
    later.start()


def run_verb(args: list[str] | None = None) -> int:
    """Run a command line, by default the program's own, and return its exit code.

    Every error ends as a message and an exit code; only a bug of edgec has a traceback.
    """
    try:
        # In its standalone mode click would print errors and exit by itself.
        result = cli.main(args, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except EdgecError as e:
        echo(str(e), err=True)
        return e.exit_code
    except click.exceptions.Exit as e:
        return e.exit_code
    except (click.Abort, KeyboardInterrupt):
        # 128 + SIGINT, as shells have it.
        echo("stopped", err=True)
        return 130
    except click.ClickException as e:
        return _wrong_usage(e)
    except BrokenPipeError:
        # The reader of a pipe has ended, as `head` does: no error worth a message.
        # The flush at the exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        # Files are opened in many places; the system's own words are clear enough.
        # A full disk is noticed by a file that is open, whose name is not known then.
        at = None if e.filename is None else str(e.filename)
        hint = "check the path, its permissions and the free space"
        echo(str(EdgecError(e.strerror or str(e), at, hint)), err=True)
        return 1
    except Exception:
        return _our_bug()


def _wrong_usage(e: click.ClickException) -> int:
    """Report a command line that click refuses, and return exit code 2."""
    hint = "edgec --help"
    if isinstance(e, click.UsageError) and e.ctx:
        hint = f"{e.ctx.command_path} --help"
        if isinstance(e, click.MissingParameter) and isinstance(e.param, click.Option):
            value = e.param.make_metavar(e.ctx)
            hint = f"{e.param.opts[0]} {value}: {e.param.help}; {hint}"
    echo(f"error: {e.format_message()}\n  hint: {hint}", err=True)
    return 2


def _our_bug() -> int:
    """Write the traceback and the command to a file, and return exit code 70."""
    # To a file, since the terminal may be gone when somebody looks into it.
    with tempfile.NamedTemporaryFile(
        "w", prefix="edgec-bug-", suffix=".txt", delete=False
    ) as f:
        trace = traceback.format_exc()
        f.write(f"command: {sys.argv}\npython: {sys.version}\n\n{trace}")
    last = trace.strip().splitlines()[-1]
    echo(
        f"error: this is a bug of edgec: {last}\n  at: {f.name}\n  hint: "
        "report it with that file and the model",
        err=True,
    )
    return 70


if __name__ == "__main__":
    main()
