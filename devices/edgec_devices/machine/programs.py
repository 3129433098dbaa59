"""Programs of the host that the emulated machine is made and run with."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from edgec_runtime import ToolError

# Where a missing program comes from: Debian's package of it.
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
    """The path of a program.  Raises ToolError with the command that installs it."""
    found = _which(name)
    if not found:
        raise ToolError(
            f"{name} is not installed", hint=f"sudo apt-get install {PACKAGES[name]}"
        )
    return found


def require(*names: str) -> None:
    """Raises ToolError with one command for all of these that are missing."""
    missing = [n for n in names if not _which(n)]
    if missing:
        packages = " ".join(sorted({PACKAGES[n] for n in missing}))
        raise ToolError(
            f"{', '.join(missing)}: not installed",
            hint=f"sudo apt-get install {packages}",
        )


def _which(name: str) -> str | None:
    folders = os.environ.get("PATH", os.defpath)
    # where mke2fs is
    return shutil.which(name, path=os.pathsep.join((folders, "/usr/sbin", "/sbin")))


def run(
    *command: str | Path,
    given: str = "",
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    hint: str,
    timeout: float = 900.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a program, by its name or path, that must succeed.  Raises ToolError.

    given: its standard input.  variables: of its environment, beside those of this one.
    """
    words = [program(str(command[0])), *map(str, command[1:])]
    try:
        done = subprocess.run(
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
    if done.returncode:
        said = [s for s in (done.stderr or done.stdout).strip().splitlines() if s]
        errors = [s for s in said if s.startswith("E:")] or said
        last = "; ".join(errors[-2:])[-400:] or "no message"
        raise ToolError(
            f"{command[0]} ended with status {done.returncode}: {last}", hint=hint
        )
    return done
