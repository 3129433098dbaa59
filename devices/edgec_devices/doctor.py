"""Looks at this machine and says what is there, what is not, and what to type about it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import EdgecError
from edgec_runtime.cache import cache_dir
from edgec_runtime.interpreters import MODULES
from edgec_runtime.session import machine_target

from edgec_devices.plugin import host_compilers

USB_DEVICES = Path("/sys/bus/usb/devices")
CORAL_PCIE = Path("/dev/apex_0")
CORAL_IDS = {
    "1a6e:089a": "before its first inference (Global Unichip)",
    "18d1:9302": "in use or used since it was plugged in (Google)",
}
FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    """status: "ok", "warn" (something optional is missing) or "bad" (edgec cannot work).  fix: one command, or ""."""

    name: str
    status: str
    seen: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """All findings about this machine."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing is bad: edgec works here, if not with everything."""
        return all(f.status != "bad" for f in self.findings)

    def table(self) -> str:
        """One line per finding, and under it what to type."""
        width = max((len(f.name) for f in self.findings), default=0)
        lines = []
        for f in self.findings:
            lines.append(f"{f.status:4}  {f.name:{width}}  {f.seen}")
            if f.fix:
                lines.append(f"{'':4}  {'':{width}}  → {f.fix}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """For `--json`."""
        return {"ok": self.ok, "findings": [dict(vars(f)) for f in self.findings]}


def examine() -> Report:
    """Looks at everything.  A check that fails is a finding too."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check()
        except (OSError, EdgecError, subprocess.SubprocessError) as e:
            found.append(Finding(check.__name__.strip("_"), "warn", f"could not look: {e}".replace("\n", " ")))
    return Report(tuple(found))


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11)
    fix = "" if ok else "python3.11 -m venv .venv"
    yield Finding("Python", "ok" if ok else "bad", f"{platform.python_version()} on {machine_target()}", fix)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numpy() -> Iterator[Finding]:
    version = _version("numpy")
    yield Finding("numpy", "ok" if version else "bad", version or "missing", "" if version else "pip install numpy")


def _interpreters() -> Iterator[Finding]:
    there = [f"{name} {_version(dist) or '?'}" for name, dist in _distributions() if _importable(MODULES[name])]
    if there:
        yield Finding("TFLite interpreter", "ok", ", ".join(there))
    else:
        seen = "none; bundles run as C, but not on the Edge TPU"
        yield Finding("TFLite interpreter", "warn", seen, "pip install ai-edge-litert")


def _distributions() -> list[tuple[str, str]]:
    return [(name, module.split(".")[0].replace("_", "-")) for name, module in MODULES.items()]


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _compilers() -> Iterator[Finding]:
    zig = _version("ziglang")
    fix = "" if zig else "pip install ziglang"
    yield Finding("zig (compiles for the boards)", "ok" if zig else "bad", zig or "missing", fix)
    found = host_compilers()
    if found:
        yield Finding("C compiler for this machine", "ok", " ".join(found[0]))
    else:
        yield Finding("C compiler for this machine", "warn", "none", "sudo apt-get install gcc")


def _qemu() -> Iterator[Finding]:
    for name, what in (("qemu-aarch64", "emulated boards"), ("qemu-arm", "emulated boards, 32 bits")):
        path = shutil.which(name) or shutil.which(f"{name}-static")
        if path is None:
            yield Finding(what, "warn", f"{name} is missing", "sudo apt-get install qemu-user")
            continue
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout
        version = re.search(r"version (\S+)", said)
        yield Finding(what, "ok", f"{name} {version.group(1) if version else '?'}")


def _edgetpu_compiler() -> Iterator[Finding]:
    path = shutil.which("edgetpu_compiler")
    if path:
        yield Finding("edgetpu_compiler", "ok", path)
        return
    seen = "not on the PATH; Edge TPU segments run as C until it has compiled them"
    if platform.machine() != "x86_64":
        yield Finding("edgetpu_compiler", "warn", f"{seen}; Google builds it for x86-64 only")
        return
    seen += " (in Google's apt repository, see coral.ai/docs/edgetpu/compiler)"
    yield Finding("edgetpu_compiler", "warn", seen, "sudo apt-get install edgetpu-compiler")


def _libedgetpu() -> Iterator[Finding]:
    library = find_library("edgetpu")
    if library:
        yield Finding("libedgetpu", "ok", library)
    else:
        seen = "missing; no Coral stick can be used here (in Google's apt repository, see coral.ai/software)"
        yield Finding("libedgetpu", "warn", seen, "sudo apt-get install libedgetpu1-std")


def usb_ids(root: Path = USB_DEVICES) -> list[str]:
    """vendor:product of what is plugged in."""
    found = []
    for vendor in sorted(root.glob("*/idVendor")):
        try:
            found.append(f"{vendor.read_text().strip()}:{(vendor.parent / 'idProduct').read_text().strip()}")
        except OSError:
            continue  # it was unplugged between the two reads
    return found


def _coral() -> Iterator[Finding]:
    sticks = [CORAL_IDS[i] for i in usb_ids() if i in CORAL_IDS]
    if CORAL_PCIE.exists():
        sticks.append(f"on PCIe, {CORAL_PCIE}")
    if sticks:
        yield Finding("Coral Edge TPU", "ok", "; ".join(sticks))
    else:
        yield Finding("Coral Edge TPU", "warn", f"none: no USB {' or '.join(CORAL_IDS)}, no {CORAL_PCIE}", "lsusb")


def _pycoral() -> Iterator[Finding]:
    """Google never published its pycoral on PyPI; the package of that name there is someone else's."""
    version = _version("pycoral")
    # Looked up without importing it: it may be anything.
    spec = importlib.util.find_spec("pycoral")
    if version is None and spec is None:
        return
    folders = list(spec.submodule_search_locations or []) if spec else []
    if any(Path(folder, "utils", "edgetpu.py").exists() for folder in folders):
        yield Finding("pycoral", "ok", f"{version or '?'}, Google's; edgec does not need it")
        return
    seen = (
        f"{version or '?'} is not Google's (no pycoral.utils.edgetpu): PyPI's package of that name is another project"
    )
    yield Finding("pycoral", "bad", seen, "pip uninstall pycoral")


def _page_size() -> Iterator[Finding]:
    size = os.sysconf("SC_PAGE_SIZE")
    if size == 4096:
        yield Finding("page size", "ok", "4096 bytes")
    else:
        # The Pi 5's default kernel; some prebuilt wheels and libedgetpu builds are linked for 4 KiB pages only.
        seen = f"{size} bytes; some prebuilt libraries want 4096"
        yield Finding("page size", "warn", seen, "add kernel=kernel8.img to /boot/firmware/config.txt and reboot")


def _space() -> Iterator[Finding]:
    folder = cache_dir()
    free = shutil.disk_usage(folder).free
    seen = f"{free / 2**30:.1f} GiB free in {folder}"
    enough = free >= FREE_BYTES
    yield Finding("disk", "ok" if enough else "warn", seen, "" if enough else f"rm -r {folder}")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _numpy,
    _interpreters,
    _compilers,
    _qemu,
    _edgetpu_compiler,
    _libedgetpu,
    _coral,
    _pycoral,
    _page_size,
    _space,
)
