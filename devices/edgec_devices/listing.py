"""What bundles could be put on or run on from here: serial ports, hosts of edgec.toml,
boards to emulate, Edge TPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_runtime import EdgecError, InputError
from edgec_runtime.errors import did_you_mean
from serial.tools.list_ports import comports

from edgec_devices.boards import Board, boards
from edgec_devices.device import link_module
from edgec_devices.doctor import edgetpus
from edgec_devices.flash import status
from edgec_devices.there import CONFIG, configured, listed, machines

ASK_S = 10.0  # a list is not worth waiting for longer


@dataclass(frozen=True)
class ListedDevice:
    """url: as --on takes it, or "" for what has none.  answers: None where it was not
    asked.
    """

    url: str
    what: str
    answers: str | None = None


def resolve(name: str, folder: Path) -> str:
    """The URL of a device that is given by its name in [devices] of edgec.toml, or by
    its URL.  A name comes first.

    Raises InputError for what is neither, and for a URL that its link does not take; no
    device is asked.
    """
    known = configured(folder)
    url = known.get(name.strip(), name.strip())
    try:
        _, module, rest = link_module(url)
        module.open_device(rest)
    except InputError as e:
        if name.strip() in known:
            what = e.what if url in e.what else f'"{url}": {e.what}'
            raise InputError(
                what, at=f"{folder / CONFIG}, [devices] {name.strip()}", hint=e.hint
            ) from e
        meant = did_you_mean(name, known)
        what = f'"{name}" is no device{meant}' if meant else e.what
        raise InputError(what, at=e.at, hint=f"{e.hint}; {listed(folder)}") from e
    return url


def listing(folder: Path, probe: bool = False) -> tuple[ListedDevice, ...]:
    """Everything.

    Hosts of edgec.toml are asked whether they answer.

    probe: serial ports too.  They are not asked by default: what hangs on a port may be
    no console, and typing into it does something there.
    """
    hosts = [ListedDevice(url, name) for name, url in configured(folder).items()]
    ports = [
        ListedDevice(
            f"serial://{p.device}",
            ", ".join(s for s in (p.description, p.manufacturer) if s and s != "n/a")
            or "port",
        )
        for p in sorted(comports(), key=lambda p: str(p.device))
    ]
    hosts = _asked(hosts)
    ports = _asked(ports) if probe else ports
    emulated = [
        ListedDevice(f"emulated:{b}", Board.load(b).model)
        for b in boards()
        if b != "host"
    ]
    sticks = [ListedDevice("", f"Coral Edge TPU {where}") for where in edgetpus()]
    return (
        ListedDevice("local:", "this machine"),
        *hosts,
        *_machines(),
        *ports,
        *emulated,
        *sticks,
    )


def _machines() -> list[ListedDevice]:
    """Whole emulated machines that are on, by each way to them."""
    found = []
    for machine in machines():
        model = f"{machine.facts()['model']}, a whole emulated machine, on"
        found += [
            ListedDevice(machine.ssh_url, model),
            ListedDevice(machine.serial_url, f"the serial console of {machine.alias}"),
        ]
    return found


def _asked(found: Sequence[ListedDevice]) -> list[ListedDevice]:
    if not found:
        return []

    def ask(f: ListedDevice) -> ListedDevice:
        try:
            outcome = status([f.url], timeout=ASK_S)[0]
        except EdgecError as e:
            return replace(f, answers=f"no: {e.what}")
        return replace(f, answers=outcome.what if outcome.ok else f"no: {outcome.what}")

    with ThreadPoolExecutor(len(found)) as pool:
        return list(pool.map(ask, found))
