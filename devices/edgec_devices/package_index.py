"""Downloads wheels of the package index, by pip on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import InputError, ToolError

from edgec_devices.temporary import temporary_folder
from edgec_devices.wheel import Wheel, architecture, minor_version

DOWNLOAD_SECONDS = 900.0
"""Limit of a download, s."""
# Versions 2.x of the GNU C library, up to that of Debian 10. With --platform, pip does
# not accept an older tag for a newer one: each must be named.
_OLDEST_GLIBC = 17
_NEWEST_GLIBC = 28


@dataclass(frozen=True)
class WheelsFor:
    """The machine that wheels are for.

    Attributes:
        machine: the machine in words, for messages
        python: minor version of its CPython, for example "3.11"
        platforms: tags of platforms (PEP 425), without those of any platform
        instead: remedy where the index has no such wheel
        offline: remedy without a connection to the index
    """

    machine: str
    python: str
    platforms: Sequence[str]
    instead: str
    offline: str = "see that this machine has a network"

    def options(self) -> list[str]:
        """Return the options of `pip download` for this machine."""
        options = ["--only-binary=:all:", "--implementation", "cp"]
        options += ["--python-version", self.python]
        for platform in self.platforms:
            options += ["--platform", platform]
        return options


def download(names: Sequence[str], target: str, python: str) -> list[Wheel]:
    """Return the newest wheels of projects and their requirements that fit a device.

    Raises InputError if there is none, and ToolError without pip or the index.

    Args:
        names: names of the projects
        target: kind of code of the device, for example "linux-aarch64"
        python: version of its Python, for example "3.13.5"
    """
    if not names:
        return []
    minor = minor_version(python)
    # Wheels for Python 3.13 fit all of its patch versions.
    arch = architecture(target)
    platforms = []
    for version in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1):
        platforms.append(f"manylinux_2_{version}_{arch}")
    platforms.append(f"manylinux2014_{arch}")
    device = WheelsFor(
        machine=f"{arch} with Python {minor}",
        python=minor,
        platforms=platforms,
        instead=(
            "give the .whl of another version; without an interpreter the Edge "
            "TPU's part runs on the CPU"
        ),
    )
    with temporary_folder("wheels") as folder:
        download_into(folder, names, device)
        return [Wheel.of(path) for path in sorted(folder.glob("*.whl"))]


def download_into(
    folder: Path, names: Sequence[str], request: WheelsFor, *, requirements: bool = True
) -> None:
    """Download the wheels of projects into a folder.

    Raises InputError if there is none, and ToolError without pip or the index.

    Args:
        folder: where the wheels go
        names: names of the projects, perhaps with versions: "extra==1.0"
        request: machine that the wheels are for
        requirements: whether wheels that these require are downloaded too
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        *request.options(),
    ]
    if not requirements:
        command.append("--no-deps")
    command += ["--dest", str(folder), "--", *names]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"pip did not download {', '.join(names)} within {DOWNLOAD_SECONDS:.0f} s",
            hint="check the network, then try again",
        ) from None
    if result.returncode:
        raise _failure(result.stderr, request, names)


def _failure(
    output: str, request: WheelsFor, names: Sequence[str]
) -> InputError | ToolError:
    """Return the error of a download from pip's error output."""
    lines = output.strip().splitlines()
    errors = []
    for line in lines:
        if line.startswith("ERROR: "):
            errors.append(line.removeprefix("ERROR: "))
    messages = errors or lines or ["no message"]
    what = messages[0][:300]
    hint = request.offline
    # Without a connection, pip reports "no matching distribution" too.
    if "connection" in output.lower():
        what = "no connection to the package index"
    elif "No module named pip" in output:
        return ToolError(
            "pip is not installed beside edgec", hint=f"{sys.executable} -m ensurepip"
        )
    elif "No space left on device" in output:
        what = "no space left on the disk"
        hint = "free some space, or set TMPDIR to a folder on another disk"
    elif "No matching distribution" in output:
        return InputError(
            f"the package index has no {', '.join(names)} for {request.machine}: {what}",
            hint=request.instead,
        )
    return ToolError(f"pip cannot download {', '.join(names)}: {what}", hint=hint)
