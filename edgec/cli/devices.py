"""Defines the verbs about devices: flash, rollback, status and devices."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgec.cli.echo import echo
from edgec.cli.reach import ON_MANY, TIMEOUT, all_resolved, may_ask
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
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Put a bundle on devices: only what differs is sent, checked there, and switched
    to at once.
    """
    from edgec_devices.flash import FlashOptions
    from edgec_devices.flash import flash as flash_all

    # Every name is resolved before the first device is touched.
    targets = all_resolved(urls)
    how = FlashOptions(ask=may_ask(targets), **options)
    with shown(quiet) as report:
        outcomes = flash_all(bundle, targets, how, report)
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
    outcomes = rollback_all(targets, app, ask=may_ask(targets), timeout=timeout)
    finish(outcomes, as_json)


@click.command()
@ON_MANY
@TIMEOUT
@_JSON
def status(urls: Sequence[str], timeout: float, as_json: bool) -> None:
    """Show what devices are and which versions they have."""
    from edgec_devices.flash import status as status_all

    targets = all_resolved(urls)
    outcomes = status_all(targets, ask=may_ask(targets), timeout=timeout)
    # The facts of a device are in its JSON already.
    if as_json:
        finish(outcomes, as_json)
        return
    for outcome in outcomes:
        if outcome.facts:
            echo("\n".join(_facts(outcome.url, outcome.facts)))
    finish([outcome for outcome in outcomes if not outcome.ok], as_json)


@click.command()
@_JSON
@click.option(
    "--probe", is_flag=True, help="log in to serial ports too, to see what answers"
)
def devices(as_json: bool, probe: bool) -> None:
    """List serial ports, the hosts of edgec.toml, boards to emulate, and Edge TPUs."""
    from edgec_devices.listing import listing

    listed = listing(Path.cwd(), probe)
    if as_json:
        echo(json.dumps([vars(device) for device in listed], indent=1))
        return
    # Only --probe has answers: a column without any would look like a fault.
    if any(device.answers for device in listed):
        answers = [(d.url, d.what, d.answers or "") for d in listed]
        echo(table(("url", "what it is", "answers"), answers, "lll"))
    else:
        rows = [(d.url, d.what) for d in listed]
        echo(table(("url", "what it is"), rows, "ll"))


VERBS: tuple[click.Command, ...] = (flash, rollback, status, devices)


def finish(
    outcomes: Sequence[FlashOutcome], as_json: bool, quiet: bool = False
) -> None:
    """Print outcomes and errors, and exit with a code if there is an error.

    The code is the error's for a single device, and 1 for several.
    """
    # The error of a single device says it all.
    has_table = len(outcomes) > 1 or any(outcome.ok for outcome in outcomes)
    if as_json:
        echo(json.dumps([_as_json(outcome) for outcome in outcomes], indent=1))
    elif has_table and not quiet:
        echo(_outcome_table(outcomes))

    errors = [outcome.error for outcome in outcomes if outcome.error]
    for error in errors:
        echo(str(error), err=True)
    if errors:
        sys.exit(errors[0].exit_code if len(outcomes) == 1 else 1)


def _outcome_table(outcomes: Sequence[FlashOutcome]) -> str:
    """Return a table with a row for each device."""
    rows = []
    for outcome in outcomes:
        what = outcome.what if outcome.ok else f"failed: {outcome.what}"
        sent = in_bytes(outcome.sent)
        rows.append((outcome.url, what, sent, f"{outcome.seconds:.1f} s"))
    return table(("device", "outcome", "sent", "time"), rows, "llrr")


def _as_json(outcome: FlashOutcome) -> dict[str, Any]:
    """Return an outcome as JSON, with the hint of its error."""
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
    """Return a device and its slots, in words."""
    board = facts["board"] or facts["target"]
    pages = facts["page"] // 1024
    lines = [
        f"{url}: {board}, {facts['os']}, Python {facts['python']}, "
        f"{pages} KiB pages, {in_bytes(facts['free'])} free"
    ]
    for app in facts["apps"]:
        for slot, state in sorted(app["slots"].items()):
            mark = "active" if slot == app["active"] else ""
            # The device could not read the state of this slot.
            if state is None:
                lines.append(f"  {app['app']} {slot} damaged {mark}".rstrip())
                continue
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(state["installed"]))
            digest = state["sha256"][:12]
            size = in_bytes(state["bytes"])
            line = f"  {app['app']} {slot} {digest} {size} {when} {mark}"
            lines.append(line.rstrip())
    if len(lines) == 1:
        lines.append("  nothing was flashed yet")
    return lines
