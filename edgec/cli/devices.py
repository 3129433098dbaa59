"""Defines the verbs about devices and what goes to them: flash, status, package, sign, …"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from edgec_devices.options import SignOptions

import edgec
from edgec.cli.options import JSON, QUIET, given, options_of
from edgec.cli.output import echo
from edgec.options.devices import (
    DevicesOptions,
    FlashCall,
    RollbackOptions,
    TargetOptions,
    TrustOptions,
)
from edgec.options.files import PackageOptions
from edgec.report.tables import table
from edgec.report.transfer_progress import in_bytes, shown

if TYPE_CHECKING:
    from edgec_devices.flash import FlashOutcome


@click.command()
@options_of(FlashCall)
@JSON
@QUIET
def flash(as_json: bool, quiet: bool, **values: Any) -> None:
    """Put a bundle on devices: only what differs is sent, checked there, and switched
    to at once.
    """
    options = given(FlashCall, values)
    with shown(quiet) as report:
        outcomes = edgec.flash(**options, ask=sys.stdin.isatty(), progress=report)
    finish(outcomes, as_json, quiet)


@click.command()
@options_of(RollbackOptions)
@JSON
def rollback(as_json: bool, **values: Any) -> None:
    """Go back to the version before the last flash."""
    options = given(RollbackOptions, values)
    finish(edgec.rollback(**options, ask=sys.stdin.isatty()), as_json)


@click.command()
@options_of(TargetOptions)
@JSON
def status(as_json: bool, **values: Any) -> None:
    """Show what devices are and which versions they have."""
    options = given(TargetOptions, values)
    outcomes = edgec.status(**options, ask=sys.stdin.isatty())
    # The facts of a device are in its JSON already.
    if as_json:
        finish(outcomes, as_json)
        return
    for outcome in outcomes:
        if outcome.facts:
            echo("\n".join(_facts(outcome.url, outcome.facts)))
    finish([outcome for outcome in outcomes if not outcome.ok], as_json)


@click.command()
@options_of(DevicesOptions)
@JSON
def devices(as_json: bool, **values: Any) -> None:
    """List serial ports, the hosts of edgec.toml, boards to emulate, and Edge TPUs."""
    listed = edgec.devices(**given(DevicesOptions, values))
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
        message = outcome.what if outcome.ok else f"failed: {outcome.what}"
        sent = in_bytes(outcome.sent)
        rows.append((outcome.url, message, sent, f"{outcome.seconds:.1f} s"))
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


@click.command()
@options_of(PackageOptions)
def package(**values: Any) -> None:
    """Make a Debian package of a bundle: program, bundle, runtime and a systemd
    service.
    """
    echo(str(edgec.package(**given(PackageOptions, values))))


@click.command()
@options_of(SignOptions)
def sign(**values: Any) -> None:
    """Sign a bundle, or a wheel, so that devices with a trusted key take it."""
    signed = edgec.sign(**given(SignOptions, values))
    # Lines are for people; a script reads the path of the wheel alone.
    for line in signed.lines:
        echo(line, err=True)
    if signed.runtime is not None:
        echo(str(signed.runtime))


@click.command()
@options_of(TrustOptions)
@JSON
def trust(as_json: bool, **values: Any) -> None:
    """Have devices take only bundles that are signed with this key, or one that they
    trust already.
    """
    options = given(TrustOptions, values)
    finish(edgec.trust(**options, ask=sys.stdin.isatty()), as_json)


VERBS: tuple[click.Command, ...] = (
    flash,
    rollback,
    status,
    devices,
    package,
    sign,
    trust,
)
