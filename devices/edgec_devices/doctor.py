"""Examines this machine or a device: what is there, what is missing, and the remedy.

The facts of both come from the same collector (edgec_runtime/device_end/facts.py), and
findings.py judges them. This file has the checks for a machine that compiles.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator

from edgec_runtime import EdgecError
from edgec_runtime.bundle.cache import cache_dir
from edgec_runtime.device_end.facts import collect, edgetpus_here
from edgec_runtime.device_end.requests import FACTS, Empty

from edgec_devices.device import TIMEOUT_S
from edgec_devices.findings import EDGETPU_STATES, DoctorReport, Facts, Finding, judge
from edgec_devices.plugin import host_compilers
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for

HOST_PYTHON = (3, 11)
DEVICE_PYTHON = (3, 9)
LOOK_S = 240.0
"""Limit of collecting facts, s: slow boards import numpy and an interpreter, twice."""
FREE_BYTES = 1 << 30
"""Free bytes that the cache should have."""


def examine(
    url: str | None = None, ask: bool = False, timeout: float = TIMEOUT_S
) -> DoctorReport:
    """Examine a device, or this machine and its compilers if `url` is None.

    A check that fails is a finding too. Raises InputError or DeviceError if the device
    cannot be reached.
    """
    if url is not None:
        there = device_facts(url, ask, timeout)
        return DoctorReport(tuple(judge(there, DEVICE_PYTHON)), url, there)
    # This machine compiles, and so needs more than a device.
    facts = local_facts()
    findings = list(judge(facts, HOST_PYTHON))
    for check in CHECKS:
        try:
            findings += check()
        except (OSError, EdgecError, subprocess.SubprocessError) as e:
            # One check that fails must not hide the others.
            findings.append(
                Finding(
                    check.__name__.strip("_"),
                    "warn",
                    f"could not look: {e}".replace("\n", " "),
                )
            )
    return DoctorReport(tuple(findings), facts=facts)


def device_facts(url: str, ask: bool = False, timeout: float = TIMEOUT_S) -> Facts:
    """Collect facts about a device; raises InputError or DeviceError."""
    with Connection(stream_for(url, ask, timeout)) as connection:
        return connection.ask(FACTS, Empty(), limit=LOOK_S)[0].facts


def local_facts() -> Facts:
    """Collect facts about this machine and the folder of `local:`."""
    return collect(os.path.expanduser(os.environ.get("EDGEC_ROOT") or "~/.edgec"))


def edgetpus() -> list[str]:
    """Return the Edge TPUs of this machine, in words."""
    usb, pcie = edgetpus_here()
    texts = [f"on USB, {EDGETPU_STATES[stick['id']]}" for stick in usb]
    texts += [f"on PCIe, {path}" for path in pcie]
    return texts


def version(distribution: str) -> str | None:
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _compilers() -> Iterator[Finding]:
    """Look for zig and for a C compiler of this machine."""
    zig = version("ziglang")
    fix = "" if zig else "pip install ziglang"
    yield Finding(
        "zig (compiles for the boards)", "ok" if zig else "bad", zig or "missing", fix
    )
    compilers = host_compilers()
    if compilers:
        yield Finding("C compiler for this machine", "ok", " ".join(compilers[0]))
    else:
        yield Finding(
            "C compiler for this machine", "warn", "none", "sudo apt-get install gcc"
        )


def _qemu() -> Iterator[Finding]:
    """Look for the user-mode emulators of boards."""
    for name, what in (
        ("qemu-aarch64", "emulated boards"),
        ("qemu-arm", "emulated boards, 32 bits"),
    ):
        path = shutil.which(name) or shutil.which(f"{name}-static")
        if path is None:
            yield Finding(
                what, "warn", f"{name} is missing", "sudo apt-get install qemu-user"
            )
            continue
        # A limit, since a broken installation may hang.
        output = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20
        ).stdout
        match = re.search(r"version (\S+)", output)
        number = match.group(1) if match else "?"
        yield Finding(what, "ok", f"{name} {number}")


def _edgetpu_compiler() -> Iterator[Finding]:
    """Look for Google's edgetpu_compiler."""
    path = shutil.which("edgetpu_compiler")
    if path:
        yield Finding("edgetpu_compiler", "ok", path)
        return
    text = "not on the PATH; Edge TPU segments run as C until it has compiled them"
    if platform.machine() != "x86_64":
        yield Finding(
            "edgetpu_compiler", "warn", f"{text}; Google builds it for x86-64 only"
        )
        return
    text += " (it is in Coral's archive alone, which this adds to apt)"
    yield Finding(
        "edgetpu_compiler",
        "warn",
        text,
        f"{ADD_CORAL_ARCHIVE} && sudo apt-get install edgetpu-compiler",
    )


_CORAL_KEYRING = "/usr/share/keyrings/coral.gpg"
_CORAL_ARCHIVE = "https://packages.cloud.google.com/apt"
ADD_CORAL_ARCHIVE = (
    f"curl -fsSL {_CORAL_ARCHIVE}/doc/apt-key.gpg | sudo gpg --dearmor --yes -o "
    f"{_CORAL_KEYRING} && "
    f"echo 'deb [signed-by={_CORAL_KEYRING}] {_CORAL_ARCHIVE} coral-edgetpu-stable main' "
    "| sudo tee /etc/apt/sources.list.d/coral.list && sudo apt-get update"
)
"""Commands that add Coral's archive to apt.

The key is trusted for this archive alone; apt-key, which trusted keys for every
archive, is gone since Debian 13.
"""


def _cache() -> Iterator[Finding]:
    """Look for free space in the cache."""
    folder = cache_dir()
    free = shutil.disk_usage(folder).free
    text = f"{free / 2**30:.1f} GiB free in {folder}"
    enough = free >= FREE_BYTES
    # EDGEC_CACHE may name a folder with other things in it, and even with other files/.
    files = folder / "files"
    is_ours = files.is_dir() and all(
        re.fullmatch(r"[0-9a-f]{64}", path.name) for path in files.iterdir()
    )
    fix = (
        f"rm -r {shlex.quote(str(files))}"
        if is_ours
        else f"df -h {shlex.quote(str(folder))}"
    )
    yield Finding("cache", "ok" if enough else "warn", text, "" if enough else fix)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _compilers,
    _qemu,
    _edgetpu_compiler,
    _cache,
)
