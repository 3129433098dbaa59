"""Debian packages of another architecture, fetched with this machine's apt configuration and nothing of it changed.

apt gets state and cache folders of its own, so no root is needed and the host's packages, lists and architectures stay
as they are.  Suite, mirrors, proxies and keys are those of /etc/apt; apt checks the signatures.
"""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Sequence
from pathlib import Path

from edgec_runtime import ToolError

from .programs import require, run

ARCHITECTURE = "arm64"
KERNEL = "linux-image-cloud-arm64"  # Debian's kernel with drivers for virtual machines only: a third of the size
PACKAGES = (
    "?essential",
    "usr-is-merged",
    "usrmerge-",  # the other way to a merged /usr; wants Perl
    "systemd-sysv",
    "udev",
    "dbus",
    "openssh-server",
    "sudo",
    "python3",
    "busybox-static",  # for the initial RAM disk
)
CAMERA_KERNEL = "linux-image-arm64"  # Debian's full one, which has drivers of cameras
CAMERA_PACKAGES = ("python3-numpy", "python3-pil")  # as a person installs them on a Pi for its webcam
_HINT = "this needs Debian's arm64 packages; try: apt-get update, and see that /etc/apt names a Debian mirror"


def fetch(folder: Path, cameras: bool = False) -> tuple[Path, list[Path]]:
    """The kernel's package and those of the root file system, downloaded into `folder`.  Raises ToolError.

    cameras: a kernel that has drivers of them, and what a webcam needs.
    """
    require("apt-get", "apt-cache", "dpkg-deb")
    options, packages = _private(folder), (*PACKAGES, *(CAMERA_PACKAGES if cameras else ()))
    run("apt-get", *options, "update", hint=_HINT)
    run("apt-get", *options, "install", "-y", "--download-only", "--no-install-recommends", *packages, hint=_HINT)
    archives = sorted((folder / "cache" / "archives").glob("*.deb"))
    return _kernel(folder, options, CAMERA_KERNEL if cameras else KERNEL), archives


def _private(folder: Path) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "state" / "status").touch()
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::lists": folder / "state" / "lists",
        "Dir::State::status": folder / "state" / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": ARCHITECTURE,
        "APT::Architectures": ARCHITECTURE,
        "APT::Sandbox::User": getpass.getuser(),  # apt's own user may not look into this folder
        "APT::Keep-Downloaded-Packages": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _kernel(folder: Path, options: Sequence[str], kernel: str) -> Path:
    said = run("apt-cache", *options, "depends", "--important", kernel, hint=_HINT)
    names = [line.split()[1] for line in said.stdout.splitlines() if line.strip().startswith("Depends: linux-image-")]
    if not names:
        raise ToolError(f"apt knows no kernel for {kernel}", hint=_HINT)
    archives = folder / "kernel"
    archives.mkdir()
    run("apt-get", *options, "download", names[0], cwd=archives, hint=_HINT)
    return next(archives.glob("*.deb"))
