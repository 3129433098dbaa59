"""Judges the facts of a machine (device_end/facts.py), with a remedy each."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from edgec_runtime.device_end.elf import MACHINES
from edgec_runtime.device_end.facts import (
    ADD_UDEV_RULES,
    CALL,
    EDGETPU_IDS,
    EDGETPU_PCI,
    MODULES,
    TRIAL_S,
    distribution,
)

from edgec_devices.throttling import (
    HOT,
    POWER_BITS,
    SINCE_BOOT,
    TOO_HOT,
    UNDER_VOLTAGE,
    set_governor,
)

Facts = dict[str, Any]
FREE_BYTES = 256 << 20
EDGETPU_STATES = dict(
    zip(
        EDGETPU_IDS,
        ("not yet initialised (18d1:9302 from its first use on)", "initialised"),
        strict=True,
    )
)
# Google's 16.0 was built with TensorFlow 2.5; interpreters from 2.12 on pass it other
# structures and crash (google-coral/edgetpu#812). Maintained rebuilds have their
# TensorFlow in the version: 16.0tf2.19.1-1.
LAST_PARTNER = (2, 11)
REBUILT = re.compile(r"tf(\d+)\.(\d+)", re.I)
RELEASES = "github.com/feranick/libedgetpu/releases"
PARTNERS = f"rebuilds for newer ones: {RELEASES}"
# No Debian and no Raspberry Pi OS has libedgetpu, the PCIe driver or edgetpu_compiler
# (docs/troubleshooting.md).
LIBEDGETPU_DEB = "sudo apt-get install ./libedgetpu1-std_*.deb"
GASKET_RELEASES = "github.com/feranick/gasket-driver/releases"
GASKET_DEB = "sudo apt-get install ./gasket-dkms_*.deb"
PI5_INTERRUPTS = (
    "echo dtoverlay=pciex1-compat-pi5,no-mip | sudo tee -a "
    "/boot/firmware/config.txt "
    "&& sudo reboot"
)
LITERT_GLIBC = (2, 34)
"""The GNU C library that LiteRT's wheels for Arm need from 2.3 on, whatever their tags
say.
"""


@dataclass(frozen=True)
class Finding:
    """A finding about a machine.

    Attributes:
        name: the subject
        status: "ok", "warn" (an optional part is missing) or "bad" (edgec cannot work)
        seen: the facts in words
        fix: one command, or ""
    """

    name: str
    status: str
    seen: str
    fix: str = ""


@dataclass(frozen=True)
class DoctorReport:
    """All findings about a machine.

    Attributes:
        findings: the findings
        url: URL of the machine
        facts: what they were found in
    """

    findings: tuple[Finding, ...]
    url: str = "local:"
    facts: Facts = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Return whether nothing is bad, so that edgec works there."""
        return all(f.status != "bad" for f in self.findings)

    def table(self) -> str:
        """Return a line for each finding, and below it the command."""
        width = max((len(f.name) for f in self.findings), default=0)
        lines = []
        for f in self.findings:
            lines.append(f"{f.status:4}  {f.name:{width}}  {f.seen}")
            if f.fix:
                lines.append(f"{'':4}  {'':{width}}  → {f.fix}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the JSON form, for `--json`."""
        return {
            "url": self.url,
            "ok": self.ok,
            "findings": [dict(vars(f)) for f in self.findings],
        }


def judge(facts: Facts, python: tuple[int, int]) -> Iterator[Finding]:
    """Yield findings about any machine; `python` is the oldest version that will do."""
    checks: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
        _system,
        lambda f: _python(f, python),
        _numpy,
        _page_size,
        _interpreters,
        _libedgetpu,
        _pair,
        _edgetpu,
        _pycoral,
        _power,
        _clock,
        _temperature,
        _disk,
        _camera,
    )
    for check in checks:
        yield from check(facts)


def _system(f: Facts) -> Iterator[Finding]:
    """Name the system, and judge its architecture."""
    names = (f["board"], f["os"]["name"], f"kernel {f['kernel']}")
    yield Finding("system", "ok", ", ".join(filter(None, names)))
    text = f"{f['machine']} kernel, {f['bits']}-bit programs: {f['target']}"
    if f["machine"] == "armv6l":
        yield Finding(
            "architecture",
            "bad",
            f"{f['machine']} has no NEON; the code is for ARMv7 and later",
            "uname -m",
        )
    elif f["target"] not in MACHINES:
        yield Finding(
            "architecture",
            "bad",
            f"{text}; nothing is compiled for that",
            "dpkg --print-architecture",
        )
    elif f["target"] == "linux-armv7":
        text += "; a bundle has code for that only where it was compiled for it"
        yield Finding(
            "architecture",
            "warn",
            text,
            "edgec compile MODEL --target pi4 --also armv7",
        )
    else:
        yield Finding("architecture", "ok", text)


def _python(f: Facts, oldest: tuple[int, int]) -> Iterator[Finding]:
    """Judge the version of Python."""
    version = tuple(int(n) for n in re.findall(r"\d+", f["python"])[:2])
    text = f"{f['python']}, {f['executable']}"
    if version >= oldest:
        yield Finding("Python", "ok", text)
    else:
        fix = f"sudo apt-get install python{oldest[0]}.{oldest[1]}"
        yield Finding("Python", "bad", text, fix)


def _numpy(f: Facts) -> Iterator[Finding]:
    """Judge whether numpy is installed."""
    version = f["packages"]["numpy"]
    if version:
        yield Finding("numpy", "ok", version)
    else:
        text = (
            "missing; the bundle's program runs without it, "
            "edgec_runtime's Session does not"
        )
        yield Finding("numpy", "warn", text, "sudo apt-get install python3-numpy")


def _page_size(f: Facts) -> Iterator[Finding]:
    """Judge the size of a page, which a library must be linked for."""
    page = f["page"]
    libraries = [("libedgetpu", f["libedgetpu"] or {})]
    for trial in f["trials"]:
        libraries.append((trial["module"].split(".")[0], trial))
    small = []
    for name, library in libraries:
        if library.get("align") and library["align"] < page:
            small.append(name)
    text = f"{page} bytes"
    if page != 4096:
        text += "; bundles are linked for 65536 and less"
    if small:
        text += f"; {' and '.join(small)} cannot be loaded: linked for smaller pages"
        # The other kernel of a Raspberry Pi 5 has pages of 4096 bytes.
        fix = (
            "echo kernel=kernel8.img | sudo tee -a /boot/firmware/config.txt && "
            "sudo "
            "reboot"
        )
        yield Finding("page size", "bad", text, fix)
    else:
        yield Finding("page size", "ok", text)


def _interpreters(f: Facts) -> Iterator[Finding]:
    """Judge each TFLite interpreter by a trial."""
    if not f["trials"]:
        text = "none; bundles run as C, but not on the Edge TPU"
        yield Finding(
            "TFLite interpreter",
            "warn",
            text,
            _pip(f, f"install {_interpreter_for(f)}"),
        )
    for trial in f["trials"]:
        package = distribution(trial["module"])
        text = f"{package} {trial['version'] or '?'}"
        needs = re.search(r"GLIBC_([\d.]+)' not found", trial["said"])
        if needs:
            text += (
                f" needs the GNU C library {needs[1]}; "
                "this system has "
                f"{f['glibc'] or 'another'}"
            )
            yield Finding(
                "TFLite interpreter", "bad", text, _pip(f, "install tflite-runtime")
            )
        elif trial["reached"] in ("import", "interpreter", "start"):
            fix = _pip(f, f"install --force-reinstall {package}")
            yield Finding("TFLite interpreter", "bad", f"{text}: {_ended(trial)}", fix)
        else:
            yield Finding("TFLite interpreter", "ok", text)


def _interpreter_for(f: Facts) -> str:
    """Return the interpreter's package that runs with this system's C library."""
    glibc = tuple(int(n) for n in re.findall(r"\d+", f["glibc"] or "")[:2])
    return "ai-edge-litert" if glibc >= LITERT_GLIBC else "tflite-runtime"


def _pip(f: Facts, command: str) -> str:
    """Return a command of pip, also for a Python that the system manages."""
    text = f"python3 -m pip {command}"
    if f.get("managed"):
        text += " --break-system-packages"
    return text


def _ended(trial: Facts) -> str:
    """Return how and where a trial failed, in words."""
    at = {
        "start": "starting Python",
        "import": "importing it",
        "library": "loading libedgetpu",
        CALL: "at the first call",
    }.get(trial["reached"], f"making the {trial['reached']}")
    if trial["status"] is None:
        return f"it hung for {TRIAL_S:.0f} s {at}"
    if trial["status"] < 0:
        try:
            name = signal.Signals(-trial["status"]).name
        except ValueError:
            name = f"signal {-trial['status']}"
        return f"it crashed {at} ({name})"
    last = trial["said"].splitlines()[-1:] or [f"status {trial['status']}"]
    return f"it failed {at}: {last[0][:160]}"


def _libedgetpu(f: Facts) -> Iterator[Finding]:
    """Judge whether libedgetpu is installed."""
    library = f["libedgetpu"] or {}
    if not library.get("name"):
        text = (
            "missing; edgec drives a stick on USB without it, and no Edge TPU on PCIe; "
            "for this system's "
            f"release it is at {RELEASES}"
        )
        yield Finding("libedgetpu", "warn", text, LIBEDGETPU_DEB)
        return
    if library["package"]:
        package = f"{library['package']} {library['version']}"
    else:
        package = "of no Debian package"
    yield Finding("libedgetpu", "ok", f"{package}, {library['path']}")


def _plugged(f: Facts) -> bool:
    """Return whether an Edge TPU is attached."""
    return bool(f["usb"] or f["pcie"])


PCI_ID = EDGETPU_PCI.partition("=")[2].lower()
"""ID of an Edge TPU on PCIe, as `lspci -nn` shows it."""


def _pair(f: Facts) -> Iterator[Finding]:
    """Judge whether interpreter and libedgetpu work together.

    A trial tells; without an Edge TPU to try, the known versions do.
    """
    library = f["libedgetpu"] or {}
    if not library.get("name"):
        return
    for trial in f["trials"]:
        name = f"{distribution(trial['module'])} {trial['version'] or '?'}"
        pair = f"{name} with libedgetpu {library['version'] or '?'}"
        status = "bad" if _plugged(f) else "warn"
        if trial["reached"] == "done":
            yield Finding("Edge TPU delegate", "ok", f"{pair}: tried, it works")
        elif trial["reached"] in ("import", "interpreter", "start"):
            # The interpreter itself has failed, which is a finding already.
            continue
        elif trial["status"] is None or trial["status"] < 0 or trial["reached"] == CALL:
            yield Finding(
                "Edge TPU delegate",
                status,
                f"{pair}: {_ended(trial)}; {PARTNERS}",
                _partner(library),
            )
        elif known_to_crash(trial, library):
            text = (
                f"{pair}: known to crash, Google's is for interpreters up to 2.11; "
                f"{PARTNERS}"
            )
            yield Finding("Edge TPU delegate", status, text, _partner(library))
        elif _plugged(f):
            yield Finding(
                "Edge TPU delegate",
                "bad",
                f"{pair}: {_ended(trial)}",
                "dmesg | grep -i usb | tail",
            )
        else:
            yield Finding(
                "Edge TPU delegate",
                "ok",
                f"{pair}: could not be tried without an Edge TPU; not known to crash",
            )


def known_to_crash(trial: Facts, library: Facts) -> bool:
    """Return whether an interpreter is known to crash with a libedgetpu, by versions.

    It crashes if it is newer than the TensorFlow that libedgetpu was built for.
    """
    version = library.get("version") or ""
    rebuilt = REBUILT.search(version)
    if not version or (rebuilt and (int(rebuilt[1]), int(rebuilt[2])) > LAST_PARTNER):
        return False
    numbers = tuple(int(n) for n in re.findall(r"\d+", trial["version"] or "")[:2])
    # LiteRT's numbers started again at 1, after TensorFlow 2.17.
    litert = trial["module"] == MODULES["litert"]
    return litert or numbers > LAST_PARTNER


def _partner(library: Facts) -> str:
    """Return the command that installs a downloaded rebuild of libedgetpu."""
    return LIBEDGETPU_DEB.replace(
        "libedgetpu1-std", library.get("package") or "libedgetpu1-std"
    )


def _edgetpu(f: Facts) -> Iterator[Finding]:
    """Judge each Edge TPU and the permission to use it."""
    if f["pci"] and not f["pcie"]:
        yield _without_driver(f)
    elif not _plugged(f):
        text = f"none: no USB {' or '.join(EDGETPU_IDS)}, no PCIe {PCI_ID}"
        yield Finding("Coral Edge TPU", "warn", text, "lsusb")
    for path in f["pcie"] or ():
        yield Finding("Coral Edge TPU", "ok", f"on PCIe, {path}")
    for stick in f["usb"] or ():
        text = f"USB {stick['id']}, {EDGETPU_STATES[stick['id']]}"
        # USB 2 works, but slowly.
        speed = stick["mbps"]
        if speed is not None and speed < 5000:
            generation = "USB 2" if speed == 480 else "USB 1"
            text += (
                f", on {generation} ({speed} Mb/s): transfers take up to ten "
                "times "
                "as long as on USB 3"
            )
            yield Finding("Coral Edge TPU", "warn", text, "lsusb -t")
        else:
            yield Finding(
                "Coral Edge TPU",
                "ok",
                text + (f", on USB 3 ({speed} Mb/s)" if speed else ""),
            )
        if stick["allowed"] is False:
            yield _forbidden(f, stick)
        elif not f["udev"]:
            text = (
                "no udev rule for 1a6e and 18d1; the stick can be used now, "
                "perhaps not by other users"
            )
            yield Finding("Edge TPU permission", "warn", text, ADD_UDEV_RULES)
        else:
            yield Finding(
                "Edge TPU permission", "ok", f"{stick['node']}, {f['udev'][0]}"
            )


def _without_driver(f: Facts) -> Finding:
    """Judge an Edge TPU on PCIe without /dev/apex_0.

    The drivers gasket and apex make this device.
    """
    slots = ", ".join(re.findall(r"^PCI_SLOT_NAME=(.+)$", "\n".join(f["pci"]), re.M))
    if any("DRIVER=apex\n" in uevent for uevent in f["pci"]):
        text = (
            f"on PCIe at {slots} with the driver apex, which made no /dev/apex_0: "
            "its interrupts may be missing"
        )
        # A Raspberry Pi 5 gives a card message-signalled interrupts only with this
        # overlay; so does a Compute Module 5.
        if f["board"].startswith(("Raspberry Pi 5", "Raspberry Pi Compute Module 5")):
            fix = PI5_INTERRUPTS
        else:
            fix = "sudo dmesg | grep -iE 'apex|gasket'"
        return Finding("Coral Edge TPU", "bad", text, fix)
    text = (
        f"on PCIe at {slots} ({PCI_ID}), but no /dev/apex_0: "
        f"kernel {f['kernel']} has no driver for it (gasket and "
        f"apex, as a DKMS package that builds on current kernels: {GASKET_RELEASES})"
    )
    return Finding("Coral Edge TPU", "bad", text, GASKET_DEB)


def _forbidden(f: Facts, stick: Facts) -> Finding:
    """Judge a stick that the user may not open."""
    user = f["user"] or {"name": "?", "groups": []}
    text = f"{user['name']} may not open {stick['node']}"
    if not f["udev"]:
        return Finding(
            "Edge TPU permission", "bad", f"{text}: no udev rule for it", ADD_UDEV_RULES
        )
    # A user is never put into the group root.
    group = stick["group"] if stick["group"] not in (None, "root") else "plugdev"
    if group not in user["groups"]:
        fix = f"sudo usermod -aG {group} {user['name']}"
        return Finding(
            "Edge TPU permission",
            "bad",
            f"{text}: not in the group {group} (log in again after this)",
            fix,
        )
    fix = "sudo udevadm control --reload-rules && sudo udevadm trigger"
    return Finding(
        "Edge TPU permission",
        "bad",
        f"{text}: the rule in {f['udev'][0]} is not in effect",
        fix,
    )


def _pycoral(f: Facts) -> Iterator[Finding]:
    """Judge the package named pycoral."""
    if f["pycoral"] == "google":
        yield Finding(
            "pycoral",
            "ok",
            f"{f['packages']['pycoral'] or '?'}, Google's; edgec does not need it",
        )
    elif f["pycoral"]:
        text = (
            f"{f['packages']['pycoral'] or '?'} is not Google's (it has no "
            "pycoral.utils.edgetpu): "
        )
        text += "PyPI's package of that name is another project"
        yield Finding("pycoral", "bad", text, _pip(f, "uninstall pycoral"))


def _power(f: Facts) -> Iterator[Finding]:
    """Judge the power supply and throttling by the firmware's flags."""
    flags = f["throttled"]
    if flags is None:
        return
    now = []
    before = []
    for bit, text in POWER_BITS.items():
        if flags >> bit & 1:
            now.append(text)
        elif flags >> bit + SINCE_BOOT & 1:
            before.append(text)
    parts = []
    if now:
        parts.append(f"{', '.join(now)} now")
    if before:
        parts.append(f"{', '.join(before)} since it was booted")
    if not parts:
        yield Finding("power", "ok", f"no flag is set (0x{flags:x})")
        return
    seen = f"{'; '.join(parts)} (0x{flags:x})"
    low = flags & (1 << UNDER_VOLTAGE | 1 << UNDER_VOLTAGE + SINCE_BOOT)
    seen += ": use a stronger power supply" if low else ": cool it better"
    fix = "dmesg | grep -i voltage" if low else "vcgencmd measure_temp"
    yield Finding("power", "bad" if flags & 1 else "warn", seen, fix)


def _clock(f: Facts) -> Iterator[Finding]:
    """Judge the governor of the CPU clock."""
    clock = f["clock"] or {}
    if not clock.get("governor"):
        return
    mhz = [f"{clock[k] / 1000:.0f}" for k in ("khz", "max_khz") if clock.get(k)]
    text = f"{clock['governor']}, {' of '.join(mhz)} MHz"
    slow = clock["governor"] == "powersave"
    yield Finding(
        "CPU clock",
        "warn" if slow else "ok",
        text,
        set_governor("ondemand") if slow else "",
    )


def _temperature(f: Facts) -> Iterator[Finding]:
    """Judge the temperature."""
    celsius = f["celsius"]
    if celsius is None:
        return
    status = "bad" if celsius >= TOO_HOT else "warn" if celsius >= HOT else "ok"
    text = f"{celsius:.0f} °C" + ("" if status == "ok" else ": the clock is lowered")
    yield Finding(
        "temperature", status, text, "" if status == "ok" else "vcgencmd measure_temp"
    )


def _disk(f: Facts) -> Iterator[Finding]:
    """Judge the folder for bundles."""
    disk = f["disk"]
    if disk is None:
        yield Finding(
            "disk",
            "bad",
            "the folder for bundles cannot be looked at",
            "ls -ld ~/.edgec",
        )
    elif disk["read_only"]:
        yield Finding(
            "disk", "bad", f"{disk['path']} is read-only", "sudo mount -o remount,rw /"
        )
    elif not disk["allowed"]:
        yield Finding(
            "disk",
            "bad",
            f"{disk['path']} cannot be written to by this user",
            f"ls -ld {disk['path']}",
        )
    else:
        low = disk["free"] < FREE_BYTES
        text = f"{disk['free'] / 2**30:.1f} GiB free in {disk['path']}"
        yield Finding("disk", "warn" if low else "ok", text, "df -h ~" if low else "")


def _camera(f: Facts) -> Iterator[Finding]:
    """Judge whether a camera is attached."""
    text = ", ".join(f"{c['node']} {c['name']}" for c in f["cameras"] or ())
    program = f["camera_program"]
    if text:
        yield Finding(
            "camera", "ok", text + (f"; {program} is there" if program else "")
        )
    elif f["board"]:
        if program:
            fix = f"{program} --list-cameras"
        else:
            fix = "sudo apt-get install rpicam-apps"
        yield Finding("camera", "warn", "none in /sys/class/video4linux", fix)
