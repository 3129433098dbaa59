"""What is there to be named as a device, without asking any: names of edgec.toml,
emulated machines, serial ports.
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
ALIAS = "emulated-"  # what the ssh name of an emulated machine starts with
_SHOWN = 4


def read_config(folder: Path) -> dict[str, Any]:
    """edgec.toml of a folder as it is written, empty where there is no such file.

    Raises InputError.
    """
    path = folder / CONFIG
    try:
        return from_toml(path, dict[str, Any])
    except FileNotFoundError:
        return {}


def configured(folder: Path) -> dict[str, str]:
    """Name and URL of the [devices] of edgec.toml, none where there is no such file.

    Raises InputError.
    """
    try:
        return convert(read_config(folder).get("devices", {}), dict[str, str])
    except ValueError as e:
        what = "[devices] is not names and URLs"
        hint = 'for example: attic = "ssh://pi@attic"'
        raise InputError(what, at=str(folder / CONFIG), hint=hint) from e


def machines() -> tuple[Machine, ...]:
    """The whole emulated machines that are on."""
    if sys.platform != "linux":
        return ()
    from edgec_devices.machine import machines as those_on

    return those_on()


def machine_named(host: str) -> Machine | None:
    """The emulated machine whose ssh name this is, if it is on."""
    if host.startswith(ALIAS):
        return next((m for m in machines() if m.alias == host), None)
    return None


def boot_command(name: str, board: str) -> str:
    """What switches on the whole machine of a board by this name."""
    return f"edgec devices boot emulated:{board} --whole" + (
        f" --name {name}" if name != board else ""
    )


def names(folder: Path) -> list[str]:
    """What `--on` takes besides this machine: names of edgec.toml, machines that are
    on, serial ports.
    """
    from serial.tools.list_ports import comports

    ports = sorted(f"serial://{p.device}" for p in comports())
    return [*configured(folder), *(m.ssh_url for m in machines()), *ports]


def listed(folder: Path) -> str:
    """The same as the end of a hint."""
    found = names(folder)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    here = f"from here there are {', '.join(found[:_SHOWN])}{more}; " if found else ""
    return f"{here}edgec devices lists all"


def instead_of_host(host: str) -> str:
    """A hint for a host whose name nobody knows."""
    name = host.removeprefix(ALIAS)
    if name != host:
        return (
            f"no emulated machine {name} is on: "
            f"{boot_command(name, _board_of(name))}; "
            f"{listed(Path.cwd())}"
        )
    perhaps = "" if "." in host else f", perhaps {host}.local"
    return f"check the name{perhaps}; {listed(Path.cwd())}"


def _board_of(name: str) -> str:
    from edgec_devices.boards import boards

    return name if name in boards() else "pi4"
