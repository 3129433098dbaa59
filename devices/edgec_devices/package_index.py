"""Wheels of the package index for a device: pip downloads them here, for the device's
Python and processor.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from edgec_runtime import InputError, ToolError

from edgec_devices.temporary import temporary_folder
from edgec_devices.wheel import Wheel, architecture, minor_version

DOWNLOAD_SECONDS = 900.0
# Of the GNU C library, 2.x: up to that of Debian 10.  pip takes no older tag for a
# newer one when --platform is given.
_OLDEST_GLIBC = 17
_NEWEST_GLIBC = 28


def download(names: Sequence[str], target: str, python: str) -> list[Wheel]:
    """The newest wheels of these projects that such a device can use, and of what they
    require.

    target: "linux-aarch64", for example; python: "3.13.5".  Raises InputError where
    there is none, ToolError where pip or the index is not there.
    """
    if not names:
        return []
    minor = minor_version(python)
    arch = architecture(target)
    tags = [
        f"manylinux_2_{n}_{arch}" for n in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)
    ]
    platforms = [
        word for tag in (*tags, f"manylinux2014_{arch}") for word in ("--platform", tag)
    ]
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
            done = subprocess.run(
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
        if done.returncode:
            raise _failure(done.stderr, f"{arch} with Python {minor}", names)
        return [Wheel.of(path) for path in sorted(folder.glob("*.whl"))]


def _failure(said: str, device: str, names: Sequence[str]) -> InputError | ToolError:
    errors = [
        line.removeprefix("ERROR: ")
        for line in said.strip().splitlines()
        if line.startswith("ERROR: ")
    ]
    what = (errors or said.strip().splitlines() or ["no message"])[0][:300]
    if "connection" in said.lower():  # pip then finds "no matching distribution", too
        what = "no connection to the package index"
    elif "No module named pip" in said:
        return ToolError(
            "pip is not installed beside edgec", hint=f"{sys.executable} -m ensurepip"
        )
    elif "No matching distribution" in said:
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
