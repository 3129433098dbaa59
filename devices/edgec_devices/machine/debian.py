"""Debian packages of another release and architecture, fetched with this machine's apt
and nothing of it changed.

apt gets sources, state and cache folders of its own, so no root is needed and the
host's packages, lists and architectures stay as they are.  Mirrors and proxies are
those of /etc/apt; apt checks signatures with Debian's keys.
"""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from edgec_runtime import ToolError

from .programs import require, run

ARCHITECTURE = "arm64"
RELEASES = ("trixie", "bookworm")
"""Debian 13 with Python 3.13, as Raspberry Pi OS is now; Debian 12 with Python 3.11, as
it was until October 2025.
"""
# Debian's kernel with drivers for virtual machines only: a third of the size
KERNEL = "linux-image-cloud-arm64"
PACKAGES = (
    "?essential",
    "usr-is-merged",
    "usrmerge-",  # the other way to a merged /usr; wants Perl
    "systemd-sysv",
    "udev",
    "dbus",
    "openssh-server",
    "login",  # no longer essential in trixie
    "sudo",
    "python3",
    "busybox-static",  # for the initial RAM disk
)
# With drivers of cameras, and of USB controllers for a stick
FULL_KERNEL = "linux-image-arm64"
# As a person installs them on a Pi for its webcam, and for libedgetpu
FULL_PACKAGES = ("python3-numpy", "python3-pil", "libusb-1.0-0")
# What /etc/apt may call a release of Debian
_SUITES = (
    *RELEASES,
    "bullseye",
    "forky",
    "sid",
    "stable",
    "oldstable",
    "testing",
    "unstable",
)
_HINT = (
    "this needs Debian's arm64 packages; try: "
    "sudo apt-get install debian-archive-keyring, and see that /etc/apt names "
    "a Debian mirror"
)
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Where /etc/apt names no mirror of Debian, as on Ubuntu
_MIRRORS = (
    ("http://deb.debian.org/debian/", ""),
    ("http://deb.debian.org/debian-security/", "-security"),
)


def fetch(folder: Path, release: str, full: bool = False) -> tuple[Path, list[Path]]:
    """The kernel's package and those of the root file system, downloaded into `folder`.

    Raises ToolError.

    release: one of RELEASES.  full: a kernel with drivers of cameras and USB, and what
    a webcam and a stick need.
    """
    require("apt-get", "apt-cache", "dpkg-deb")
    options = _private(folder, release, ARCHITECTURE)
    packages = (*PACKAGES, *(FULL_PACKAGES if full else ()))
    run("apt-get", *options, "update", hint=_HINT)
    run(
        "apt-get",
        *options,
        "install",
        "-y",
        "--download-only",
        "--no-install-recommends",
        *packages,
        hint=_HINT,
    )
    archives = sorted((folder / "cache" / "archives").glob("*.deb"))
    return _kernel(folder, options, FULL_KERNEL if full else KERNEL), archives


def fetch_python(folder: Path, release: str) -> list[Path]:
    """The release's Python interpreter for this machine and the libraries that it is
    linked with, downloaded into `folder`.  Raises ToolError.
    """
    options = _private(
        folder, release, run("dpkg", "--print-architecture", hint=_HINT).stdout.strip()
    )
    run("apt-get", *options, "update", hint=_HINT)
    python = _dependency(options, "python3-minimal", r"python3\.\d+-minimal")
    run(
        "apt-get",
        *options,
        "download",
        python,
        "libc6",
        "libexpat1",
        "zlib1g",
        cwd=folder,
        hint=_HINT,
    )
    return sorted(folder.glob("*.deb"))


def _mirrors() -> Collection[tuple[str, str]]:
    """Debian's mirrors of /etc/apt, each with what follows a release's name there: ""
    or "-security".
    """
    format = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    listed = run(
        "apt-get",
        "indextargets",
        "--no-release-info",
        "--format",
        format,
        "Created-By: Packages",
        hint=_HINT,
    )
    mirrors = set()
    for line in listed.stdout.splitlines():
        mirror, suite, component = line.split()
        name, dash, rest = suite.partition("-")
        if component == "main" and rest in ("", "security") and name in _SUITES:
            mirrors.add((mirror, dash + rest))
    return mirrors or _MIRRORS


def _private(folder: Path, release: str, architecture: str) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "state" / "status").touch()
    sources = folder / "sources.list"
    lines = [
        f"deb [signed-by={_KEYS}] {mirror} {release}{suffix} main\n"
        for mirror, suffix in sorted(_mirrors())
    ]
    sources.write_text("".join(lines))
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",  # the host's own pins
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": folder / "state",
        "Dir::State::lists": folder / "state" / "lists",
        "Dir::State::status": folder / "state" / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": getpass.getuser(),  # apt's own user may not look into this folder
        "APT::Keep-Downloaded-Packages": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    return [
        word for name, value in settings.items() for word in ("-o", f"{name}={value}")
    ]


def _kernel(folder: Path, options: Sequence[str], kernel: str) -> Path:
    newest = _dependency(options, kernel, r"linux-image-\S+")
    archives = folder / "kernel"
    archives.mkdir()
    run("apt-get", *options, "download", newest, cwd=archives, hint=_HINT)
    return next(archives.glob("*.deb"))


def _dependency(options: Sequence[str], package: str, pattern: str) -> str:
    """What a package that stands for the newest of its kind depends on.

    Raises ToolError where that is nothing.
    """
    listed = run(
        "apt-cache", *options, "depends", "--important", package, hint=_HINT
    ).stdout
    match = re.search(rf"Depends: ({pattern})", listed)
    if match is None:
        raise ToolError(
            f"apt has no package {package}, and none that provides it", hint=_HINT
        )
    return match[1]
