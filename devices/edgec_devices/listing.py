"""What bundles could be put on or run on from here: serial ports, hosts of edgec.toml, boards to emulate, Edge TPUs."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgec_runtime import EdgecError, InputError
from edgec_runtime.errors import did_you_mean
from serial.tools.list_ports import comports

from edgec_devices.boards import Board, boards
from edgec_devices.device import link_module
from edgec_devices.doctor import edgetpus
from edgec_devices.flash import status

CONFIG = "edgec.toml"


@dataclass(frozen=True)
class Found:
    """url: as --to and --on take it, or "" for what has none.  answers: None where it was not asked."""

    url: str
    what: str
    answers: str | None = None


def read_config(folder: Path) -> dict[str, Any]:
    """edgec.toml of a folder as it is written, empty where there is no such file.  Raises InputError."""
    path = folder / CONFIG
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise InputError(f"cannot read {CONFIG}: {e}", at=str(path), hint="correct it") from e


def configured(folder: Path) -> dict[str, str]:
    """Name and URL of the [devices] of edgec.toml, none where there is no such file.  Raises InputError."""
    table = read_config(folder).get("devices", {})
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        what, hint = "[devices] is not names and URLs", 'for example: attic = "ssh://pi@attic"'
        raise InputError(what, at=str(folder / CONFIG), hint=hint)
    return table


def resolve(name: str, folder: Path) -> str:
    """The URL of a device that is given by its name in [devices] of edgec.toml, or by its URL.  A name comes first.

    Raises InputError for what is neither, and for a URL that its link does not take; no device is asked.
    """
    known = configured(folder)
    url = known.get(name.strip(), name.strip())
    try:
        _, module, rest = link_module(url)
        module.open_device(rest)
        if hasattr(module, "open_stream"):
            module.open_stream(rest)
    except InputError as e:
        if name.strip() in known:
            what = e.what if url in e.what else f'"{url}": {e.what}'
            raise InputError(what, at=f"{folder / CONFIG}, [devices] {name.strip()}", hint=e.hint) from e
        if not known:
            raise
        meant = did_you_mean(name, known)
        what = f'"{name}" is no device{meant}' if meant else e.what
        raise InputError(what, at=e.at, hint=f"{e.hint}, or a name of {CONFIG}: {', '.join(known)}") from e
    return url


def listing(folder: Path, probe: bool = False) -> tuple[Found, ...]:
    """Everything.  Hosts of edgec.toml are asked whether they answer.

    probe: serial ports too.  They are not asked by default: what hangs on a port may be no console, and typing into it
    does something there.
    """
    hosts = [Found(url, name) for name, url in configured(folder).items()]
    ports = [
        Found(
            f"serial://{p.device}", ", ".join(s for s in (p.description, p.manufacturer) if s and s != "n/a") or "port"
        )
        for p in sorted(comports(), key=lambda p: str(p.device))
    ]
    hosts = _asked(hosts)
    ports = _asked(ports) if probe else ports
    emulated = [Found(f"emulated:{b}", Board.load(b).model) for b in boards() if b != "host"]
    sticks = [Found("", f"Coral Edge TPU {where}") for where in edgetpus()]
    return (Found("local:", "this machine"), *hosts, *ports, *emulated, *sticks)


def _asked(found: Sequence[Found]) -> list[Found]:
    if not found:
        return []

    def ask(f: Found) -> Found:
        try:
            outcome = status([f.url])[0]
        except EdgecError as e:
            return replace(f, answers=f"no: {e.what}")
        return replace(f, answers=outcome.what if outcome.ok else f"no: {outcome.what}")

    with ThreadPoolExecutor(len(found)) as pool:
        return list(pool.map(ask, found))
