"""Finds devices that `--on` may name, without asking any of them.

They are names of edgec.toml, emulated machines and serial ports.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_runtime import InputError
from msgspec import convert

from edgec_devices.decoding import from_toml

if TYPE_CHECKING:
    from edgec_devices.machine import Machine

CONFIG = "edgec.toml"
ALIAS = "emulated-"
"""Prefix of the ssh name of an emulated machine."""
MAX_NAMES = 4
"""Names of devices in a hint."""


def read_config(folder: Path) -> dict[str, Any]:
    """Return the tables of a folder's edgec.toml, or {} without the file.

    Raises InputError for a wrong file.
    """
    path = folder / CONFIG
    try:
        return from_toml(path, dict[str, Any])
    except FileNotFoundError:
        return {}


def configured(folder: Path) -> dict[str, str]:
    """Return the name and URL of each of the [devices] of edgec.toml.

    Raises InputError for a wrong file.
    """
    try:
        return convert(read_config(folder).get("devices", {}), dict[str, str])
    except ValueError as e:
        message = "[devices] is not names and URLs"
        hint = 'for example: attic = "ssh://pi@attic"'
        raise InputError(message, at=str(folder / CONFIG), hint=hint) from e


def machines(on: bool = True) -> tuple[Machine, ...]:
    """Return the whole emulated machines that are on, or those whose power was cut."""
    if sys.platform != "linux":
        return ()
    from edgec_devices.machine import machines as emulated_machines

    return emulated_machines(on)


def machine_named(host: str) -> Machine | None:
    """Return the emulated machine with this ssh name, if it is on."""
    if host.startswith(ALIAS):
        # The prefix is looked at first: a list of machines reads their folders.
        return next((m for m in machines() if m.alias == host), None)
    return None


def power_on_command(url: str) -> str | None:
    """Return the command for the emulated machine of a URL, if its power was cut."""
    for machine in machines(on=False):
        ways = (
            machine.ssh_url,
            machine.serial_url,
            f"emulated:{machine.settings.board}",
        )
        # A serial URL may name another speed.
        if url.partition("?")[0] in [way.partition("?")[0] for way in ways]:
            return f"edgec devices power-on {machine.folder.name}"
    return None


def boot_command(name: str, board: str) -> str:
    """Return the command that switches on the whole machine of a board."""
    again = power_on_command(f"ssh://{ALIAS}{name}")
    if again:
        return again
    command = f"edgec devices boot emulated:{board} --whole"
    if name != board:
        command += f" --name {name}"
    return command


def names(folder: Path) -> list[str]:
    """Return the values of `--on` for devices other than this machine."""
    from serial.tools.list_ports import comports

    ports = sorted(f"serial://{p.device}" for p in comports())
    return [*configured(folder), *(m.ssh_url for m in machines()), *ports]


def listed(folder: Path) -> str:
    """Return the first of these names as the end of a hint."""
    devices = names(folder)
    hint = "edgec devices lists all"
    if not devices:
        return hint
    hidden = len(devices) - MAX_NAMES
    more = f" and {hidden} more" if hidden > 0 else ""
    first = ", ".join(devices[:MAX_NAMES])
    return f"from here there are {first}{more}; {hint}"


def instead_of_host(host: str) -> str:
    """Return a hint for a host whose name does not resolve."""
    name = host.removeprefix(ALIAS)
    if name != host:
        command = boot_command(name, board_of(name))
        return f"no emulated machine {name} is on: {command}; {listed(Path.cwd())}"
    # Names of a home network end in .local (mDNS).
    perhaps = "" if "." in host else f", perhaps {host}.local"
    return f"check the name{perhaps}; {listed(Path.cwd())}"


def board_of(name: str) -> str:
    """Return the board of a machine's name, or the usual one."""
    from edgec_devices.boards import boards

    return name if name in boards() else "pi4"
