"""Downloads wheels of the package index for a device, by pip on this machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from edgec_runtime import InputError, ToolError

from edgec_devices.temporary import temporary_folder
from edgec_devices.wheel import Wheel, architecture, minor_version

DOWNLOAD_SECONDS = 900.0
"""Limit of a download, s."""
# Versions 2.x of the GNU C library, up to that of Debian 10. With --platform, pip does
# not accept an older tag for a newer one: each must be named.
_OLDEST_GLIBC = 17
_NEWEST_GLIBC = 28


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
        platforms += ["--platform", f"manylinux_2_{version}_{arch}"]
    platforms += ["--platform", f"manylinux2014_{arch}"]
    with temporary_folder("wheels") as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
        ]
        command += [
            "--only-binary=:all:",
            "--python-version",
            minor,
            *platforms,
            "--dest",
            str(folder),
            "--",
            *names,
        ]
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
                f"pip did not end within {DOWNLOAD_SECONDS:.0f} s", hint="try again"
            ) from None
        if result.returncode:
            device = f"{arch} with Python {minor}"
            raise _failure(result.stderr, device, names)
        return [Wheel.of(path) for path in sorted(folder.glob("*.whl"))]


def _failure(output: str, device: str, names: Sequence[str]) -> InputError | ToolError:
    """Return the error of a download from pip's error output."""
    lines = output.strip().splitlines()
    errors = []
    for line in lines:
        if line.startswith("ERROR: "):
            errors.append(line.removeprefix("ERROR: "))
    messages = errors or lines or ["no message"]
    what = messages[0][:300]
    # Without a connection, pip reports "no matching distribution" too.
    if "connection" in output.lower():
        what = "no connection to the package index"
    elif "No module named pip" in output:
        return ToolError(
            "pip is not installed beside edgec", hint=f"{sys.executable} -m ensurepip"
        )
    elif "No matching distribution" in output:
        hint = (
            "give the .whl of another version; without an interpreter the Edge "
            "TPU's part runs on the CPU"
        )
        return InputError(
            f"the package index has no {', '.join(names)} for {device}: {what}",
            hint=hint,
        )
    return ToolError(
        f"pip cannot download {', '.join(names)}: {what}",
        hint="see that this machine has a network",
    )
