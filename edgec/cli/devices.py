"""The verbs that put bundles on devices: flash, rollback, status, devices."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgec.cli.echo import echo
from edgec.cli.reach import ON_MANY, TIMEOUT, all_resolved
from edgec.report.sending import in_bytes, shown
from edgec.report.tables import table

if TYPE_CHECKING:
    from edgec_devices.flash import FlashOutcome

_APP = click.option(
    "--app", help="name of the folder on the device (default: the model's name)"
)
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@ON_MANY
@TIMEOUT
@_APP
@_JSON
@click.option(
    "--health",
    metavar="'p95<=40ms'",
    help="a latency that must be kept on the device, or the old one stays",
)
@click.option(
    "--service",
    is_flag=True,
    help="systemd runs it from then on, and again when it fails",
)
@click.option(
    "--with-runtime",
    is_flag=True,
    help="edgec-runtime too, unpacked beside the bundle; nothing is installed",
)
@click.option(
    "--wheel",
    "wheels",
    multiple=True,
    metavar="FILE|NAME",
    help="with the runtime: a .whl, or what pip downloads for the device, "
    "such as ai-edge-litert",
)
@click.option(
    "--allow-downgrade",
    is_flag=True,
    help="a signed bundle may be older than what the device had",
)
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
def flash(
    bundle: Path,
    urls: Sequence[str],
    timeout: float,
    app: str | None,
    as_json: bool,
    health: str | None,
    service: bool,
    with_runtime: bool,
    wheels: Sequence[str],
    allow_downgrade: bool,
    quiet: bool,
) -> None:
    """Put a bundle on devices: only what differs is sent, checked there, and switched
    to at once.
    """
    from edgec_devices.flash import flash as flash_all
    from edgec_devices.wheel import wheels_or_names

    pushed = wheels_or_names(wheels) if with_runtime or wheels else None
    targets = all_resolved(urls)
    ask = len(targets) == 1 and sys.stdin.isatty()
    with shown(quiet) as report:
        outcomes = flash_all(
            bundle,
            targets,
            health,
            app,
            report,
            ask,
            service,
            pushed,
            timeout,
            allow_downgrade,
        )
    finish(outcomes, as_json, quiet)


@click.command()
@ON_MANY
@TIMEOUT
@_APP
@_JSON
def rollback(
    urls: Sequence[str], timeout: float, app: str | None, as_json: bool
) -> None:
    """Go back to the version before the last flash."""
    from edgec_devices.flash import rollback as rollback_all

    targets = all_resolved(urls)
    finish(
        rollback_all(
            targets, app, ask=len(targets) == 1 and sys.stdin.isatty(), timeout=timeout
        ),
        as_json,
    )


@click.command()
@ON_MANY
@TIMEOUT
@_JSON
def status(urls: Sequence[str], timeout: float, as_json: bool) -> None:
    """Show what devices are and which versions they have."""
    from edgec_devices.flash import status as status_all

    targets = all_resolved(urls)
    outcomes = status_all(
        targets, ask=len(targets) == 1 and sys.stdin.isatty(), timeout=timeout
    )
    if not as_json:
        for outcome in outcomes:
            if outcome.facts:
                echo("\n".join(_facts(outcome.url, outcome.facts)))
    finish(outcomes if as_json else [o for o in outcomes if not o.ok], as_json)


@click.command()
@_JSON
@click.option(
    "--probe", is_flag=True, help="log in to serial ports too, to see what answers"
)
def devices(as_json: bool, probe: bool) -> None:
    """List serial ports, the hosts of edgec.toml, boards to emulate, and Edge TPUs."""
    from edgec_devices.listing import listing

    found = listing(Path.cwd(), probe)
    if as_json:
        echo(json.dumps([vars(f) for f in found], indent=1))
    else:
        asked = any(f.answers for f in found)
        columns = ("url", "what it is", "answers")[: 3 if asked else 2]
        rows = [(f.url, f.what, f.answers or "")[: len(columns)] for f in found]
        echo(table(columns, rows, "lll"[: len(columns)]))


VERBS: tuple[click.Command, ...] = (flash, rollback, status, devices)


def finish(
    outcomes: Sequence[FlashOutcome], as_json: bool, quiet: bool = False
) -> None:
    """The table of many, the line of one; what went wrong in full; exit code 1, or 2 if
    all of it is the caller's.
    """
    if as_json:
        echo(json.dumps([_as_json(o) for o in outcomes], indent=1))
    elif outcomes and not quiet and (len(outcomes) > 1 or outcomes[0].ok):
        rows = [
            (
                o.url,
                o.what if o.ok else f"failed: {o.what}",
                in_bytes(o.sent),
                f"{o.seconds:.1f} s",
            )
            for o in outcomes
        ]
        echo(table(("device", "outcome", "sent", "time"), rows, "llrr"))
    errors = [o.error for o in outcomes if o.error]
    for error in errors:
        echo(str(error), err=True)
    if errors:
        sys.exit(errors[0].exit_code if len(outcomes) == 1 else 1)


def _as_json(outcome: FlashOutcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "url": outcome.url,
        "ok": outcome.ok,
        "what": outcome.what,
        "hint": error.hint if error else None,
        "sent": outcome.sent,
        "seconds": outcome.seconds,
        "facts": outcome.facts,
    }


def _facts(url: str, facts: dict[str, Any]) -> list[str]:
    lines = [
        f"{url}: {facts['board'] or facts['target']}, {facts['os']}, "
        f"Python {facts['python']}, "
        f"{facts['page'] // 1024} KiB pages, {in_bytes(facts['free'])} free"
    ]
    for app in facts["apps"]:
        for slot, state in sorted(app["slots"].items()):
            mark = "active" if slot == app["active"] else ""
            if state is None:
                lines.append(f"  {app['app']} {slot} damaged {mark}".rstrip())
                continue
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(state["installed"]))
            lines.append(
                f"  {app['app']} {slot} {state['sha256'][:12]} "
                f"{in_bytes(state['bytes'])} {when} {mark}".rstrip()
            )
    return lines if len(lines) > 1 else [*lines, "  nothing was flashed yet"]
