"""Defines the verbs of whole emulated machines, from `edgec devices boot` to stop."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from edgec_devices import device_names

from edgec.cli.output import echo
from edgec.errors import InputError, UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from edgec_devices.machine import Machine

_JSON = click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
_NAME = click.argument("name", required=False)


@click.command()
@click.argument("url", metavar="emulated:BOARD[+coral]")
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
    help="a kernel with drivers of simulated cameras: vivid, and a USB one",
)
@click.option(
    "--stick",
    multiple=True,
    type=click.Path(exists=True, resolve_path=True),
    metavar="FILE",
    help="for BOARD+coral: a bundle, a compiled file or a folder of them, whose "
    "programs its stick knows (can be repeated)",
)
@click.option("--fresh", is_flag=True, help="with a new disk")
@_JSON
def boot(
    url: str,
    whole: bool,
    name: str | None,
    fresh: bool,
    as_json: bool,
    stick: tuple[str, ...],
    **hardware: Any,
) -> None:
    """Boot an emulated board as a whole machine; it runs until it is stopped.

    With +coral, an emulated stick is plugged into its USB.
    """
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

    board, plus, extra = board.partition("+")
    if extra != "coral" and (plus or stick):
        raise InputError(f'"{url}" has no stick', hint=f"use emulated:{board}+coral")
    settings = module.Settings(board, stick=stick if plus else None, **hardware)
    machine = module.start(settings, name, fresh, _say)
    _show([machine], as_json)


@click.command()
@_NAME
@_JSON
def status(name: str | None, as_json: bool) -> None:
    """Show the emulated machines that are on, and how to reach them."""
    machines = [_find(name)] if name else _all()
    _show(machines, as_json)


@click.command("power-cut")
@_NAME
def power_cut(name: str | None) -> None:
    """Cut the power of an emulated machine: what it has not written is lost."""
    machine = _only(name)
    machine.power_cut()
    name = machine.folder.name
    echo(f"{name} has lost its power; edgec devices power-on {name} boots it", err=True)


@click.command("power-on")
@_NAME
@_JSON
def power_on(name: str | None, as_json: bool) -> None:
    """Boot an emulated machine whose power was cut, from the same disk."""
    machine = _only(name, on=False)
    machine.start(progress=_say)
    _show([machine], as_json)


@click.command()
@_NAME
@click.option("--all", "every", is_flag=True, help="stop all of them")
def stop(name: str | None, every: bool) -> None:
    """Stop emulated machines.  Their disks are kept."""
    # One whose power was cut is switched off for good.
    for machine in _all(on=None) if every else [_only(name, on=None)]:
        machine.stop()
        echo(f"{machine.folder.name} is off; its disk is {machine.folder}", err=True)


MACHINE_VERBS: tuple[click.Command, ...] = (boot, status, power_cut, power_on, stop)


def _module() -> ModuleType:
    """Return edgec_devices.machine; raises UnsupportedError except on Linux."""
    if sys.platform != "linux":
        raise UnsupportedError(
            f"whole machines are emulated on Linux, and this is {sys.platform}",
            hint="use emulated:pi4, which runs programs alone",
        )
    # Not at the top, where the command line of other systems would import it too.
    return importlib.import_module("edgec_devices.machine")


def _say(text: str) -> None:
    """Show the progress of a boot."""
    # Standard output is for the machine's facts, perhaps as JSON.
    echo(f"{text} …", err=True)


def _all(on: bool | None = True) -> list[Machine]:
    """Return the machines that are on, those whose power was cut, or with None both."""
    return list(_module().machines(on))


def _only(name: str | None, on: bool | None = True) -> Machine:
    """Return the machine of a name, or without a name the only one; see `_all`."""
    if name:
        return _find(name, on)
    machines = _all(on)
    # Without a name, only a single machine is meant for certain.
    if len(machines) != 1:
        names = " or ".join(machine.folder.name for machine in machines)
        state, first = (
            ("are on", "boot one first")
            if on is not False
            else ("have lost their power", "edgec devices boot switches others on")
        )
        hint = f"say which: {names}" if names else first
        raise InputError(f"{len(machines)} machines {state}", hint=hint)
    return machines[0]


def _find(name: str, on: bool | None = True) -> Machine:
    """Return the machine of a name, or of the URL that booted it: emulated:pi4."""
    machines = {m.folder.name: m for m in _all(on)}
    key = (name.partition(":")[2] or name).removesuffix("+coral")
    if key in machines:
        return machines[key]
    if on is not None and key in {m.folder.name for m in _all(not on)}:
        state, verb = ("has lost its power", "power-on") if on else ("is on", "status")
        raise InputError(f"{key} {state}", hint=f"edgec devices {verb} {key}")
    if machines:
        hint = f"there are {', '.join(machines)}"
    else:
        hint = device_names.boot_command(key, device_names.board_of(key))
    state = "has lost its power" if on is False else "is on"
    raise InputError(
        f'no emulated machine "{key}" {state}{did_you_mean(key, machines)}', hint=hint
    )


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
