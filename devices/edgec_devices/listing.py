"""Lists the devices within reach: ports, hosts, boards to emulate and Edge TPUs."""

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
from edgec_devices.device_names import CONFIG, configured, listed, machines
from edgec_devices.doctor import edgetpus
from edgec_devices.flash import status

ASK_S = 10.0
"""Time for a device's answer, s: nobody waits longer for a list."""


@dataclass(frozen=True)
class ListedDevice:
    """A device of the list.

    Attributes:
        url: the value of --on, or "" for a device without a URL
        what: description of the device
        answers: its answer; None if it was not asked
    """

    url: str
    what: str
    answers: str | None = None


def resolve(name: str, folder: Path) -> str:
    """Return the URL of a device from its name in edgec.toml, or from its URL.

    A name in [devices] comes first. No device is asked. Raises InputError for other
    texts, and for a URL that its link does not accept.
    """
    devices = configured(folder)
    stripped = name.strip()
    url = devices.get(stripped, stripped)
    try:
        _, module, address = link_module(url)
        module.open_device(address)
    except InputError as e:
        # The error is in the file, not in the command line.
        if stripped in devices:
            message = e.what if url in e.what else f'"{url}": {e.what}'
            at = f"{folder / CONFIG}, [devices] {stripped}"
            raise InputError(message, at=at, hint=e.hint) from e
        # A mistyped name is more likely than a mistyped URL, if one is near.
        meant = did_you_mean(name, devices) or _url_meant(stripped)
        message = f'"{name}" is not a device{meant}' if meant else e.what
        raise InputError(message, at=e.at, hint=f"{e.hint}; {listed(folder)}") from e
    return url


def _url_meant(name: str) -> str:
    """Return a question that names the URL of a board or host; "" for other texts."""
    if name in boards():
        return f'; did you mean "emulated:{name}"?'
    # ssh itself takes hosts without a scheme.
    if not name or ":" in name or "/" in name:
        return ""
    host = name if "@" in name else f"pi@{name}"
    return f'; did you mean "ssh://{host}"?'


def listing(folder: Path, probe: bool = False) -> tuple[ListedDevice, ...]:
    """Return all devices; hosts of edgec.toml are asked whether they answer.

    With `probe`, serial ports are asked too. They are not asked by default: a device at
    a port may be no console, and typing may have an effect there.
    """
    hosts = [ListedDevice(url, name) for name, url in configured(folder).items()]
    ports = _ports()
    answered_hosts = _asked(hosts)
    if probe:
        ports = _asked(ports)
    sticks = [ListedDevice("", f"Coral Edge TPU {where}") for where in edgetpus()]
    return (
        ListedDevice("local:", "this machine"),
        *answered_hosts,
        *_machines(),
        *ports,
        *_emulated(),
        *sticks,
    )


def _ports() -> list[ListedDevice]:
    """Return the serial ports of this machine."""
    ports = []
    for port in sorted(comports(), key=lambda port: str(port.device)):
        texts = []
        for text in (port.description, port.manufacturer):
            # pyserial writes "n/a" for a port without a description.
            if text and text != "n/a":
                texts.append(text)
        what = ", ".join(texts) or "port"
        ports.append(ListedDevice(f"serial://{port.device}", what))
    return ports


def _emulated() -> list[ListedDevice]:
    """Return the boards that can be emulated."""
    # The host runs its own code: that is `local:`.
    names = [name for name in boards() if name != "host"]
    return [ListedDevice(f"emulated:{name}", Board.load(name).model) for name in names]


def _machines() -> list[ListedDevice]:
    """Return the whole emulated machines that are on, by each way to them."""
    devices = []
    for machine in machines():
        model = f"{machine.facts()['model']}, a whole emulated machine, on"
        devices.append(ListedDevice(machine.ssh_url, model))
        console = f"the serial console of {machine.alias}"
        devices.append(ListedDevice(machine.serial_url, console))
    return devices


def _asked(devices: Sequence[ListedDevice]) -> list[ListedDevice]:
    """Return the devices with their answers; all are asked at once."""
    if not devices:
        return []

    def ask(device: ListedDevice) -> ListedDevice:
        try:
            outcome = status([device.url], timeout=ASK_S)[0]
        except EdgecError as e:
            # A device that is off is no error of a list.
            return replace(device, answers=f"no: {e.what}")
        answer = outcome.what if outcome.ok else f"no: {outcome.what}"
        return replace(device, answers=answer)

    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(ask, devices))
