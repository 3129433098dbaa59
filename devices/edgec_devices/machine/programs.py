"""Runs the programs of the host that make and run the emulated machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from edgec_runtime import ToolError

# Debian's package of each program.
PACKAGES = {
    "apt-get": "apt",
    "apt-cache": "apt",
    "dpkg": "dpkg",
    "dpkg-deb": "dpkg",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "qemu-system-aarch64": "qemu-system-arm",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


def program(name: str) -> str:
    """Return the path of a program.

    Raises ToolError with the command that installs it.
    """
    path = _which(name)
    if not path:
        raise ToolError(
            f"{name} is not installed", hint=f"sudo apt-get install {PACKAGES[name]}"
        )
    return path


def require(*names: str) -> None:
    """Raise ToolError with one command for all missing programs."""
    # All at once, so that a person installs only one time.
    missing = [n for n in names if not _which(n)]
    if missing:
        packages = " ".join(sorted({PACKAGES[n] for n in missing}))
        raise ToolError(
            f"{', '.join(missing)}: not installed",
            hint=f"sudo apt-get install {packages}",
        )


def _which(name: str) -> str | None:
    """Return the path of a program, or None."""
    folders = os.environ.get("PATH", os.defpath)
    # mke2fs is in a folder that is not on every user's PATH.
    return shutil.which(name, path=os.pathsep.join((folders, "/usr/sbin", "/sbin")))


def run(
    *command: str | Path,
    given: str = "",
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    hint: str,
    timeout: float = 900.0,
) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed; raises ToolError.

    Args:
        command: name or path of the program, and its arguments
        given: its standard input
        cwd: its folder
        variables: variables of its environment beside the inherited ones
        hint: remedy, for the message
        timeout: limit, s
    """
    words = [program(str(command[0])), *map(str, command[1:])]
    try:
        result = subprocess.run(
            words,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=cwd,
            env={
                **os.environ,
                "LC_ALL": "C.UTF-8",
                "DEBIAN_FRONTEND": "noninteractive",
                **(variables or {}),
            },
        )
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"{command[0]} did not end within {timeout:.0f} s", hint=hint
        ) from None
    if result.returncode:
        last = _last_errors(result.stderr or result.stdout)
        raise ToolError(
            f"{command[0]} ended with status {result.returncode}: {last}", hint=hint
        )
    return result


def _last_errors(output: str) -> str:
    """Return the last lines of a program's output, or the last errors of apt."""
    lines = [line for line in output.strip().splitlines() if line]
    # apt goes on to print hints after its errors.
    errors = [line for line in lines if line.startswith("E:")] or lines
    return "; ".join(errors[-2:])[-400:] or "no message"
