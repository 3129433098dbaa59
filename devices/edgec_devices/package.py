"""Packages a bundle for fleets, as a Debian package or as a .tar.gz with install.sh.

Both have the same tree (docs/packages.md):

    /usr/lib/edgec/<app>/model.edgec            the bundle's files for this architecture
    /usr/lib/edgec/<app>/main                   the program; weights.bin and edgetpu.bin beside it
    /usr/lib/edgec/<app>/python/edgec_runtime/  the runtime, one for each application,
                                                so that two never collide
    /usr/lib/systemd/system/edgec-<app>.service
    /etc/default/edgec-<app>                    COMMAND: the command of the service
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import edgec_runtime
from edgec_runtime import Bundle, BundleError, InputError, write_bundle
from edgec_runtime.bundle.atomic_write import atomic_write
from edgec_runtime.device_end.bundles import EDGETPU_FILE, WEIGHTS_FILE
from edgec_runtime.device_end.disk import Refused
from edgec_runtime.device_end.printable import printable
from edgec_runtime.device_end.units import RUNS, unit_name, unit_text

from edgec_devices.debian_package import File, deb, tar_gz
from edgec_devices.temporary import temporary_folder
from edgec_devices.transfer import app_name
from edgec_devices.wheel_transfer import runtime_sources

FORMATS = ("deb", "tar")
ARCHITECTURES = {
    "arm64": "linux-aarch64",
    "armhf": "linux-armv7",
    "amd64": "linux-x86_64",
}
MAINTAINER = "edgec <edgec@localhost>"
_VERSION = re.compile(r"(\d+:)?\d[A-Za-z0-9.+~-]*")
_MAINTAINER = re.compile(r"[^<>\n]+ <[^<>\s@]+@[^<>\s@]+>")
# The service has a user of its own, who may use the camera and the Edge TPU, and write
# to /var/lib/edgec-<app>.
_EXTRA = """DynamicUser=yes
SupplementaryGroups=video plugdev
StateDirectory={name}
Environment=PYTHONPATH={folder}/python
"""


@dataclass(frozen=True)
class Package:
    """A package that is not written yet; its name is edgec-<app>."""

    name: str
    version: str
    architecture: str
    data: bytes
    suffix: str

    @property
    def file_name(self) -> str:
        """Return the name of the file by Debian's rules."""
        # An epoch ("1:2.0") is part of the version, but not of the file's name.
        version = self.version.partition(":")[2] or self.version
        return f"{self.name}_{version}_{self.architecture}{self.suffix}"


@dataclass(frozen=True)
class _Content:
    """The content of both formats; `files` is by path without the leading /."""

    name: str
    version: str
    architecture: str
    files: dict[str, File]
    needs_python: bool
    summary: str


def package(
    bundle: Path,
    format: str = "deb",
    arch: str | None = None,
    app: str | None = None,
    version: str | None = None,
    maintainer: str = MAINTAINER,
) -> Package:
    """Return a package of a bundle; raises BundleError or InputError.

    Args:
        bundle: the bundle
        format: "deb" or "tar"
        arch: "arm64", "armhf" or "amd64"; needed if the bundle has several programs
        app: name of the application; the model's name by default
        version: Debian's version; by default edgec's version and the bundle's hash,
            which does not tell newer from older
        maintainer: maintainer of the package
    """
    if format not in FORMATS:
        raise InputError(
            f'"{format}" is not a format of a package',
            hint=f"use {' or '.join(FORMATS)}",
        )
    if not _MAINTAINER.fullmatch(maintainer) or maintainer != printable(maintainer):
        raise InputError(
            f'"{maintainer}" is not a maintainer',
            hint='for example --maintainer "Ann <ann@example.org>"',
        )
    with Bundle.open(bundle) as opened:
        opened.manifest.check_alone(
            str(bundle), hint="put it on devices with edgec flash"
        )
        content = _content(opened, arch, app, version)
    if format == "deb":
        data = _deb(content, maintainer)
        suffix = ".deb"
    else:
        data = _tar(content)
        suffix = ".tar.gz"
    return Package(content.name, content.version, content.architecture, data, suffix)


def write(package: Package, output: Path | None = None) -> Path:
    """Write a package, whole or not at all.

    `output` is a file or a folder; by default it is the package's file name here.
    """
    path = output or Path(package.file_name)
    path = path / package.file_name if path.is_dir() else path
    try:
        with atomic_write(path) as temporary:
            temporary.write_bytes(package.data)
    except OSError as e:
        raise InputError(
            f"cannot write {path}: {e.strerror}", hint="check the folder and -o"
        ) from e
    return path


def package_name(app: str) -> str:
    """Return edgec-<app> in the letters that Debian allows."""
    allowed = re.sub(r"[^a-z0-9.]+", "-", app.lower()).strip("-.")
    return f"edgec-{allowed or 'model'}"


def _content(
    bundle: Bundle, arch: str | None, app: str | None, version: str | None
) -> _Content:
    """Return the files of a package and the facts for its control file."""
    m = bundle.manifest
    name = package_name(app or app_name(m.name))
    version = version or f"{m.edgec}+{bundle.sha256[:8]}"
    if not _VERSION.fullmatch(version):
        raise InputError(
            f'"{version}" is not a version of a Debian package',
            hint="for example --version 1.2.0",
        )
    # The bundle is checked before files are read: it may have no code for this.
    architecture = _architecture(bundle, arch)
    target = ARCHITECTURES[architecture]
    folder = f"usr/lib/edgec/{name[6:]}"
    settings = f"etc/default/{name}"
    try:
        unit = unit_name(name[6:])
        text = unit_text(
            name[6:],
            f"/{folder}",
            (f"/{folder}/main", "--runs", str(RUNS), "--json"),
            f"/{settings}",
            extra=_EXTRA.format(name=name, folder=f"/{folder}"),
        )
    except Refused as e:
        raise InputError(e.what, hint=e.hint) from e
    files = {
        f"{folder}/model.edgec": File(_reduced(bundle, target)),
        f"{folder}/main": File(bundle.read(m.programs[target]), 0o755),
        f"usr/lib/systemd/system/{unit}": File(text.encode()),
        settings: File(_settings(name, folder).encode(), conffile=True),
        f"usr/share/doc/{name}/copyright": File(_COPYRIGHT.encode()),
        **_runtime(f"{folder}/python"),
    }
    # Debian installs what a package depends on; a recommendation can be left out.
    # The program without Python uses a stick alone, and prepares no images.
    uses_tpu = any(s.edgetpu for s in m.segments)
    prepares = any(not p.assumed for p in m.preprocess.values())
    if target in m.weights:
        files[f"{folder}/{WEIGHTS_FILE}"] = File(bundle.read(m.weights[target]))
    if EDGETPU_FILE in bundle.names:
        beside = f"{folder}/{PurePosixPath(EDGETPU_FILE).name}"
        files[beside] = File(bundle.read(EDGETPU_FILE))
    summary = f"{m.name} for {m.target}, compiled by edgec"
    # A field of the control file ends with its line.
    summary = re.sub(r"\s+", " ", printable(summary))[:79]
    return _Content(name, version, architecture, files, prepares or uses_tpu, summary)


def _architecture(bundle: Bundle, arch: str | None) -> str:
    """Return the architecture to package; raises an error if it is none or unclear."""
    available = _architectures(bundle)
    if arch is None and len(available) == 1:
        return available[0]
    if arch is None and available:
        raise InputError(
            f"the bundle has programs for {', '.join(available)}",
            hint="say for which with --arch",
        )
    if arch is not None and arch not in ARCHITECTURES:
        raise InputError(
            f'"{arch}" is not an architecture of Debian',
            hint=f"use {', '.join(ARCHITECTURES)}",
        )
    if arch is None or arch not in available:
        message = (
            f"the bundle has no program for {arch or 'any board'}; "
            f"it has {', '.join(available) or 'none'}"
        )
        raise BundleError(
            message,
            at=str(bundle.path),
            hint="compile it with the --target of the board",
        )
    return arch


def _architectures(bundle: Bundle) -> list[str]:
    """Return the architectures that a bundle has programs for."""
    architectures = []
    for architecture, target in ARCHITECTURES.items():
        if bundle.manifest.programs.get(target) in bundle.names:
            architectures.append(architecture)
    return architectures


def _reduced(bundle: Bundle, target: str) -> bytes:
    """Return the bundle without sources, reports and code for other machines.

    Its programs are left out too: the package has the program beside the bundle.
    """
    # A board's disk is small, and sources and reports are for the developer.
    m = bundle.manifest
    paths = set()
    for segment in m.segments:
        paths |= {path for path in (segment.tflite, segment.edgetpu) if path}
    manifest: dict[str, Any] = bundle.manifest_fields()
    manifest["programs"] = {}
    for field, files in (("libraries", m.libraries), ("weights", m.weights)):
        manifest[field] = {}
        if target in files:
            manifest[field][target] = files[target]
            paths.add(files[target])

    with temporary_folder("package") as folder:
        file = folder / "model.edgec"
        write_bundle(file, manifest, {path: bundle.read(path) for path in paths})
        return file.read_bytes()


def _runtime(folder: str) -> dict[str, File]:
    """Return the files of the runtime, by path."""
    source = Path(edgec_runtime.__file__).parent
    files = {}
    for path in runtime_sources(source):
        name = f"{folder}/edgec_runtime/{path.relative_to(source)}"
        files[name] = File(path.read_bytes())
    return files


def _settings(name: str, folder: str) -> str:
    """Return the text of /etc/default/edgec-<app>."""
    return f"""# What {unit_name(name[6:])} runs: one command, as a shell reads it.
# Started again when it fails.
# Its folder is /{folder}; the bundle is $EDGEC_BUNDLE; `import edgec_runtime` works in
# its Python. Without a COMMAND it times the model {RUNS} times, writes that to the
# journal, and ends.
#COMMAND="python3 /opt/camera/app.py"
"""


def _deb(c: _Content, maintainer: str) -> bytes:
    """Return the Debian package."""
    python = "python3 (>= 3.9), python3-numpy"
    control = {
        "Package": c.name,
        "Version": c.version,
        "Architecture": c.architecture,
        "Maintainer": maintainer,
        "Depends" if c.needs_python else "Recommends": python,
        "Section": "misc",
        "Priority": "optional",
        "Description": f"{c.summary}\n A vision model as a program, a bundle, "
        "the runtime and a systemd service.\n"
        f" What the service runs is set in /etc/default/{c.name}.",
    }
    unit = unit_name(c.name[6:])
    scripts = {}
    for name, text in _SCRIPTS.items():
        scripts[name] = _SCRIPT + text.replace("@UNIT@", unit)
    return deb(control, scripts, c.files)


def _tar(c: _Content) -> bytes:
    """Return the .tar.gz with install.sh."""
    lines = []
    # Sorted, so that the same bundle gives the same bytes.
    for name, file in sorted(c.files.items()):
        # Settings that are there already stay as they are.
        keep = " keep" if file.conffile else ""
        lines.append(f"put {file.mode:o} {name}{keep}")
    script = _INSTALL.replace("@UNIT@", unit_name(c.name[6:]))
    script = script.replace("@FILES@", "\n".join(lines))

    files = {"install.sh": File(script.encode(), 0o755)}
    for name, file in c.files.items():
        files[f"root/{name}"] = file
    return tar_gz(files, f"{c.name}-{c.version}")


_SCRIPT = "#!/bin/sh\nset -e\n"
# A unit that the administrator disabled stays so.  Without a running systemd (an image
# that is being built) it is only enabled, and starts at the first boot.
_SCRIPTS = {
    "postinst": """if [ "$1" = configure ]; then
    if [ -z "$2" ] && command -v systemctl >/dev/null; then
        systemctl enable @UNIT@ >/dev/null 2>&1 || echo "@UNIT@ could not be enabled" >&2
    fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
        if systemctl is-enabled --quiet @UNIT@; then systemctl --no-block restart @UNIT@ || true; fi
    fi
fi
""",
    "prerm": """if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop @UNIT@ || true
fi
""",
    "postrm": """if [ "$1" = purge ]; then
    rm -f /etc/systemd/system/multi-user.target.wants/@UNIT@
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
""",
}
_INSTALL = """#!/bin/sh
# Usage: install.sh [ROOT]     ROOT: of an image that is being built; default is this
# machine, /.
set -eu
from="$(cd "$(dirname "$0")" && pwd)/root"
root="${1:-}"

put() { # MODE PATH [keep]: aside and renamed, so that a program that runs is replaced safely
    if [ "${3:-}" = keep ] && [ -e "$root/$2" ]; then return; fi
    mkdir -p "$root/$(dirname "$2")"
    cp "$from/$2" "$root/$2.edgec-new"
    chmod "$1" "$root/$2.edgec-new"
    mv -f "$root/$2.edgec-new" "$root/$2"
}
@FILES@

wants=/etc/systemd/system/multi-user.target.wants
mkdir -p "$root$wants"
ln -sf /usr/lib/systemd/system/@UNIT@ "$root$wants/@UNIT@"
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl restart @UNIT@
fi
"""
_COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Comment: The model, and code generated from it, are under the terms of the model,
 which edgec does not know.

Files: usr/lib/edgec/*/python/*
Copyright: The edgec authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""
