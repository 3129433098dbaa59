"""Collects the facts of a machine that may be shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgec_devices.measurement import Identity
from edgec_runtime.device_end.facts import MODULES

Facts = Mapping[str, Any]


def machine_row(facts: Facts) -> dict[str, Any]:
    """Return the fields of schema.MACHINE from what `edgec doctor` collects.

    facts: of device_end/facts.py; a fact that an older device end lacks is None.
    """
    # The facts come from the device, so that each of them may be of any type.
    packages = _object(facts.get("packages"))
    clock = _object(facts.get("clock"))
    library = _object(facts.get("libedgetpu"))
    system = _object(facts.get("os"))
    pcie = facts.get("pcie")
    return {
        "board": facts.get("board"),
        "cores": str(facts.get("cpu", "")).split(" + "),
        "code": facts.get("target"),
        "memory_mb": facts.get("memory_mb"),
        "page": facts.get("page"),
        "os": system.get("name"),
        "kernel": facts.get("kernel"),
        "glibc": facts.get("glibc"),
        "python": facts.get("python"),
        "numpy": packages.get("numpy"),
        "emulated": facts.get("emulated"),
        "governor": clock.get("governor"),
        "khz": clock.get("khz"),
        "max_khz": clock.get("max_khz"),
        "celsius": facts.get("celsius"),
        "throttled": facts.get("throttled"),
        **_interpreters(facts),
        "libedgetpu": library.get("version"),
        "edgetpu_usb_mbps": [stick.get("mbps") for stick in _rows(facts.get("usb"))],
        "edgetpu_pcie": len(pcie) if isinstance(pcie, (list, tuple)) else None,
    }


def board_row(device: Identity) -> dict[str, Any]:
    """Return the fields that are known of a board that is not there."""
    # A model of a board has no system and no clock that changes.
    return {
        "board": device.board,
        "cores": device.cpu.split(" + "),
        "code": device.target,
        "emulated": device.emulated,
    }


def _interpreters(facts: Facts) -> dict[str, Any]:
    """Return the version of each interpreter, and whether it works."""
    # By their names in schema.MACHINE.
    names = {module: name.replace("-", "_") for name, module in MODULES.items()}
    versions = {}
    for trial in _rows(facts.get("trials")):
        name = names.get(str(trial.get("module")))
        # A newer device end may know an interpreter that this list does not.
        if name is not None:
            versions[name] = trial.get("version")
            versions[f"{name}_works"] = trial.get("reached") == "done"
    return versions


def _object(value: Any) -> Mapping[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none for anything else."""
    if not isinstance(value, (list, tuple)):
        return []
    return [row for row in value if isinstance(row, Mapping)]
