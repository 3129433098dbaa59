"""Defines the verbs of whole emulated machines: `edgec devices boot`, status, stop."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from edgec.cli.echo import echo
from edgec.errors import InputError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from edgec_devices.machine import Machine

_JSON = click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
_NAME = click.argument("name", required=False)


@click.command()
@click.argument("url", metavar="emulated:BOARD")
@click.option(
    "--whole",
    is_flag=True,
    help="the whole machine: Debian with a serial console, sshd and a disk",
)
@click.option(
    "--release",
    metavar="NAME",
    help="of Debian: trixie or bookworm (default: its disk's, or the newest)",
)
@click.option(
    "--name", help="several machines of one board side by side (default: the board)"
)
@click.option(
    "--baud",
    type=click.IntRange(300, 4_000_000),
    help="speed of the serial line (default: no limit)",
)
@click.option(
    "--icount",
    is_flag=True,
    help="count the guest's time by instructions: its latencies repeat",
)
@click.option(
    "--memory",
    type=click.IntRange(256, 8192),
    default=512,
    show_default=True,
    metavar="MiB",
)
@click.option(
    "--cameras",
    is_flag=True,
    help="a kernel with drivers of cameras that are none: vivid, and a USB one",
)
@click.option("--fresh", is_flag=True, help="with a new disk")
@_JSON
def boot(
    url: str,
    whole: bool,
    name: str | None,
    fresh: bool,
    as_json: bool,
    **hardware: Any,
) -> None:
    """Boot an emulated board as a whole machine; it runs until it is stopped."""
    module = _module()
    kind, _, board = url.partition(":")
    if kind != "emulated" or not board:
        raise InputError(
            f'"{url}" cannot be booted', hint="for example emulated:pi4 --whole"
        )
    # The URL alone is a device too: programs run there without a machine.
    if not whole:
        raise InputError(
            f"{url} alone needs no booting: a program is emulated, no machine",
            hint="add --whole",
        )

    def say(text: str) -> None:
        # Standard output is for the machine's facts, perhaps as JSON.
        echo(f"{text} …", err=True)

    settings = module.Settings(board, **hardware)
    machine = module.start(settings, name, fresh, say)
    _show([machine], as_json)


@click.command()
@_NAME
@_JSON
def status(name: str | None, as_json: bool) -> None:
    """Show the emulated machines that are on, and how to reach them."""
    machines = [_find(name)] if name else _all()
    _show(machines, as_json)


@click.command()
@_NAME
@click.option("--all", "every", is_flag=True, help="stop all of them")
def stop(name: str | None, every: bool) -> None:
    """Stop emulated machines.  Their disks are kept."""
    machines = _all()
    # Without a name, only a single machine is meant for certain.
    if not every and not name and len(machines) != 1:
        names = " or ".join(machine.folder.name for machine in machines)
        hint = f"say which: {names}" if names else "boot one first"
        raise InputError(f"{len(machines)} machines are on", hint=hint)
    if name:
        machines = [_find(name)]
    for machine in machines:
        machine.stop()
        echo(f"{machine.folder.name} is off; its disk is {machine.folder}", err=True)


MACHINE_VERBS: tuple[click.Command, ...] = (boot, status, stop)


def _module() -> ModuleType:
    """Return edgec_devices.machine; raises UnsupportedError except on Linux."""
    if sys.platform != "linux":
        raise UnsupportedError(
            f"whole machines are emulated on Linux, and this is {sys.platform}",
            hint="emulated:pi4 needs no machine",
        )
    # Not at the top, where the command line of other systems would import it too.
    return importlib.import_module("edgec_devices.machine")


def _all() -> list[Machine]:
    """Return the machines that are on."""
    return list(_module().machines())


def _find(name: str) -> Machine:
    """Return the machine of a name, or of the URL that booted it: emulated:pi4."""
    machines = {m.folder.name: m for m in _all()}
    key = name.partition(":")[2] or name
    if key not in machines:
        if machines:
            hint = f"there are {', '.join(machines)}"
        else:
            hint = f"edgec devices boot emulated:{key} --whole"
        raise InputError(
            f'no emulated machine "{key}" is on{did_you_mean(key, machines)}', hint=hint
        )
    return machines[key]


def _show(machines: list[Machine], as_json: bool) -> None:
    """Print facts about machines."""
    if as_json:
        facts = [machine.facts() for machine in machines]
        echo(json.dumps(facts, indent=1))
        return
    if not machines:
        echo("no emulated machine is on", err=True)
    for machine in machines:
        echo("\n".join(_lines(machine)))


def _lines(machine: Machine) -> list[str]:
    """Return a machine and the ways to reach it, in words."""
    facts = machine.facts()
    module = _module()
    login = f"user {module.USER}, password {module.PASSWORD}"
    state = f"booted in {facts['boot_seconds']} s, process {facts['pid']}"
    return [
        f"{facts['name']}: {facts['model']}, Debian {facts['release']}, {state}",
        f"  serial  {facts['serial_url']}   {login}",
        f"  ssh     {facts['ssh_url']}",
        f"  by hand ssh -F {facts['ssh_config']} {machine.alias}",
        f"  console {facts['console_log']}",
    ]
