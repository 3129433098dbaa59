"""The doctor: facts of a machine that is shown to it, here and over a link; the judge;
one command for each finding.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from edgec_devices import doctor
from edgec_devices.doctor import DEVICE_PYTHON, examine
from edgec_devices.findings import DoctorReport, Finding, judge
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for
from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.agent import Service, serve
from edgec_runtime.device_end.facts import alignment, collect
from edgec_runtime.device_end.wire import ACK, HELLO, LAST, Decoder, Frame, pack

from edgec.cli.main import cli
from tests.runtime import tiny_model

FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
RULE = 'SUBSYSTEM=="usb",ATTRS{idVendor}=="1a6e",GROUP="plugdev"\nSUBSYSTEM=="usb",ATTRS{idVendor}=="18d1"\n'
PACKAGE = """Package: libcamera0.5
Status: install ok installed
Priority: optional
Section: libs
Installed-Size: 1410
Architecture: arm64
Multi-Arch: same
Source: libcamera
Version: 0.5.2+rpt20250903-1
Depends: libc6 (>= 2.38), libcamera-ipa

Package: libedgetpu1-std
Status: install ok installed
Priority: optional
Section: misc
Installed-Size: 1230
Maintainer: Coral <coral-support@google.com>
Architecture: arm64
Source: libedgetpu
Version: {}
Replaces: libedgetpu1-max, libedgetpu1-legacy-max, libedgetpu1-legacy-std
Depends: libc++1, libgcc-s1, libusb-1.0-0
Description: Support library for Edge TPU

"""
"""Of /var/lib/dpkg/status: dpkg -l shows the second as "ii  libedgetpu1-std:arm64
16.0tf2.19.1-1  arm64".
"""
LSPCI = (
    "0001:01:00.0 System peripheral [0880]: Global Unichip Corp. Coral Edge TPU "
    "[1ac1:089a]"
)
"""A line of lspci -nn."""
UNAME = (
    "Linux attic 6.12.47+rpt-rpi-2712 #1 SMP PREEMPT Debian 1:6.12.47-1+rpt1 "
    "(2025-09-16) aarch64 GNU/Linux"
)
"""uname -a."""
LDD = (
    "ldd (Debian GLIBC 2.41-12+rpt1) 2.41\nCopyright (C) 2024 Free Software "
    "Foundation, Inc.\n"
)
"""ldd --version, the first lines."""


def elf(align: int) -> bytes:
    """A 64-bit shared object of one segment."""
    head = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack(
        "<QQIHHHHHH", 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0, 0, align)


class Pi:
    """The files of a Raspberry Pi with a stick, below a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/device-tree/model", "Raspberry Pi 5 Model B Rev 1.0\0")
        self.write(
            "etc/os-release",
            'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n',
        )
        self.write(FIRMWARE, "0\n")
        self.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "ondemand\n")
        self.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1500000\n")
        self.write("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "2400000\n")
        self.write("sys/class/thermal/thermal_zone0/temp", "48200\n")
        self.write("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n")
        self.write("sys/class/video4linux/video10/name", "bcm2835-codec-decode\n")
        self.write("sys/class/video4linux/video0/name", "unicam\n")
        self.write("etc/udev/rules.d/60-libedgetpu1-std.rules", RULE)
        self.plug("1-1", "046d", "c077", 12, 2)
        self.plug("2-1", "1a6e", "089a", 5000, 3)
        self.write("var/lib/dpkg/status", PACKAGE.format("16.0tf2.19.1-1"))
        self.write("usr/lib/aarch64-linux-gnu/libedgetpu.so.1", elf(65536))

    def write(self, path: str, data: str | bytes) -> None:
        """A file with its folders."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(data.encode() if isinstance(data, str) else data)

    def put_on_pci(self, line: str, driver: str | None = None) -> None:
        """A card, of a line of `lspci -nn`: what Linux says of it in the file uevent."""
        slot, kind, ids = re.fullmatch(
            r"(\S+) .*\[(\w{4})\]: .*\[(\w{4}:\w{4})\]", line
        ).groups()  # type: ignore[union-attr]
        head = f"DRIVER={driver}\n" if driver is not None else ""
        text = f"{head}PCI_CLASS={kind}00\nPCI_ID={ids.upper()}\nPCI_SUBSYS_ID={ids.upper()}\nPCI_SLOT_NAME={slot}\n"
        self.write(f"sys/bus/pci/devices/{slot}/uevent", text)

    def plug(
        self, port: str, vendor: str, product: str, speed: int, number: int
    ) -> None:
        """A USB device."""
        for name, value in (
            ("idVendor", vendor),
            ("idProduct", product),
            ("speed", speed),
            ("busnum", 2),
            ("devnum", number),
        ):
            self.write(f"sys/bus/usb/devices/{port}/{name}", f"{value}\n")
        self.write(f"dev/bus/usb/002/{number:03}", "")

    def facts(
        self, *, reached: str = "done", status: int | None = 0, said: str = ""
    ) -> dict[str, Any]:
        """As the device end would collect them; interpreters end as given."""

        def execute(
            command: list[str], **options: Any
        ) -> subprocess.CompletedProcess[bytes]:
            assert options["timeout"]
            if status is None:
                raise subprocess.TimeoutExpired(
                    command, options["timeout"], b"import\n%s\n" % reached.encode(), b""
                )
            return subprocess.CompletedProcess(
                command, status, f"import\n{reached}\n".encode(), said.encode()
            )

        facts = collect(str(self.root), str(self.root) + "/", execute)
        facts["packages"]["pycoral"] = None
        json.dumps(facts)
        return facts


@pytest.fixture
def pi(tmp_path: Path) -> Pi:
    return Pi(tmp_path / "pi")


def judged(facts: dict[str, Any]) -> dict[str, Finding]:
    found = {f.name: f for f in judge(facts, DEVICE_PYTHON)}
    for f in found.values():
        assert f.status in ("ok", "warn", "bad")
        assert (f.status == "ok") == (f.fix == ""), f
        assert "\n" not in f.fix + f.seen
    return found


def test_a_healthy_pi(pi: Pi) -> None:
    found = judged(pi.facts())
    assert {f.name for f in found.values() if f.status != "ok"} == set()
    assert found["system"].seen.startswith(
        "Raspberry Pi 5 Model B Rev 1.0, Debian GNU/Linux 12 (bookworm), kernel "
    )
    assert "USB 1a6e:089a, not yet initialised" in found["Coral Edge TPU"].seen
    assert "on USB 3 (5000 Mb/s)" in found["Coral Edge TPU"].seen
    assert found["Edge TPU permission"].seen.startswith(
        "/dev/bus/usb/002/003, /etc/udev/"
    )
    assert "libedgetpu1-std 16.0tf2.19.1-1" in found["libedgetpu"].seen
    assert "tried, it works" in found["Edge TPU delegate"].seen
    assert found["CPU clock"].seen == "ondemand, 1500 of 2400 MHz"
    assert found["temperature"].seen == "48 °C"
    assert found["camera"].seen.startswith("/dev/video0 unicam")
    assert "codec" not in found["camera"].seen


@pytest.mark.parametrize(
    ("flags", "status", "words", "fix"),
    [
        ("0", "ok", "no flag", ""),
        ("50005", "bad", "under-voltage, throttled now (0x50005)", "dmesg"),
        ("50000", "warn", "under-voltage, throttled since it was booted", "dmesg"),
        ("80008", "warn", "soft temperature limit now", "vcgencmd measure_temp"),
        ("20002", "warn", "clock capped now", "vcgencmd measure_temp"),
    ],
)
def test_power_flags(pi: Pi, flags: str, status: str, words: str, fix: str) -> None:
    pi.write(FIRMWARE, flags + "\n")
    power = judged(pi.facts())["power"]
    assert power.status == status
    assert words in power.seen
    assert power.fix.startswith(fix)


def test_power_flags_of_vcgencmd(pi: Pi, monkeypatch: pytest.MonkeyPatch) -> None:
    (pi.root / FIRMWARE).unlink()
    assert pi.facts()["throttled"] is None or shutil.which("vcgencmd")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")

    def execute(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, 0, b"throttled=0x50000\n", b"")

    assert collect(str(pi.root), str(pi.root) + "/", execute)["throttled"] == 0x50000


def test_sticks(pi: Pi) -> None:
    pi.plug("2-1", "18d1", "9302", 480, 3)
    coral = judged(pi.facts())["Coral Edge TPU"]
    assert "18d1:9302, initialised, on USB 2 (480 Mb/s)" in coral.seen
    assert (coral.status, coral.fix) == ("warn", "lsusb -t")
    shutil.rmtree(pi.root / "sys/bus/usb/devices/2-1")
    assert judged(pi.facts())["Coral Edge TPU"].fix == "lsusb"
    pi.write("dev/apex_0", "")
    assert judged(pi.facts())["Coral Edge TPU"].seen == "on PCIe, /dev/apex_0"


def test_permission(pi: Pi) -> None:
    facts = pi.facts()
    facts["user"] = {"name": "pi", "groups": ["pi", "video"]}
    facts["usb"][0].update(allowed=False, group="plugdev")
    assert judged(facts)["Edge TPU permission"].fix == "sudo usermod -aG plugdev pi"
    facts["user"]["groups"].append("plugdev")
    assert judged(facts)["Edge TPU permission"].fix.startswith("sudo udevadm control")
    facts["udev"] = []
    assert "| sudo tee /etc/udev/rules.d/" in judged(facts)["Edge TPU permission"].fix
    assert judged(facts)["Edge TPU permission"].status == "bad"


def test_a_card_without_a_driver(pi: Pi, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with the kernel, and with what mends it; with its driver the node is
    what counts.
    """
    shutil.rmtree(pi.root / "sys/bus/usb/devices/2-1")
    monkeypatch.setattr("platform.release", lambda: UNAME.split()[2])
    pi.put_on_pci(
        "0000:00:00.0 PCI bridge [0604]: Broadcom Inc. and subsidiaries BCM2712 PCIe "
        "Bridge [14e4:2712]"
    )
    assert judged(pi.facts())["Coral Edge TPU"].seen.startswith("none: ")
    pi.put_on_pci(LSPCI)
    coral = judged(pi.facts())["Coral Edge TPU"]
    assert coral.status == "bad"
    for words in (
        "PCIe at 0001:01:00.0 (1ac1:089a)",
        "kernel 6.12.47+rpt-rpi-2712",
        "gasket and apex",
    ):
        assert words in coral.seen
    assert coral.fix == "sudo apt-get install ./gasket-dkms_*.deb"
    pi.write("dev/apex_0", "")
    assert judged(pi.facts())["Coral Edge TPU"].seen == "on PCIe, /dev/apex_0"


def test_a_card_whose_driver_makes_no_node(pi: Pi) -> None:
    shutil.rmtree(pi.root / "sys/bus/usb/devices/2-1")
    pi.put_on_pci(LSPCI, "apex")
    coral = judged(pi.facts())["Coral Edge TPU"]
    assert "with the driver apex, which made no /dev/apex_0" in coral.seen
    assert "dtoverlay=pciex1-compat-pi5,no-mip" in coral.fix
    pi.write("proc/device-tree/model", "Raspberry Pi Compute Module 5 Rev 1.0\0")
    assert "pciex1-compat-pi5" in judged(pi.facts())["Coral Edge TPU"].fix
    pi.write("proc/device-tree/model", "Raspberry Pi Compute Module 4 Rev 1.0\0")
    assert "dmesg" in judged(pi.facts())["Coral Edge TPU"].fix


def test_an_interpreter_that_needs_a_newer_c_library(pi: Pi) -> None:
    said = (
        "Traceback (most recent call last):\nImportError: "
        "/lib/aarch64-linux-gnu/libc.so.6: version `GLIBC_2.34' not "
        "found (required by "
        "/home/pi/venv/lib/python3.9/site-packages/ai_edge_litert/libpywrap_litert_common.so)"
    )
    facts = {**pi.facts(reached="import", status=1, said=said), "glibc": "2.31"}
    found = judged(facts)["TFLite interpreter"]
    assert "needs the GNU C library 2.34; this system has 2.31" in found.seen
    assert "tflite-runtime" in found.fix
    for glibc, package in (
        (LDD.split("\n")[0].split()[-1], "ai-edge-litert"),
        ("2.31", "tflite-runtime"),
    ):
        assert (
            package
            in judged({**facts, "trials": [], "glibc": glibc})["TFLite interpreter"].fix
        )


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("16.0", True),
        ("15.0", True),
        ("16.0tf2.19.1-1", False),
        ("16.0TF2.17.1-1", False),
        ("16.0tf2.17.1-1.bookworm", False),
        ("16.0tf2.5.0-1", True),
    ],
)
def test_rebuilds_are_known_by_the_tensorflow_in_their_version(
    pi: Pi, version: str, known: bool
) -> None:
    pi.write("var/lib/dpkg/status", PACKAGE.format(version))
    shutil.rmtree(pi.root / "sys/bus/usb/devices/2-1")
    facts = pi.facts(reached="delegate", status=1)
    assert facts["libedgetpu"]["version"] == version
    assert ("known to crash, " in judged(facts)["Edge TPU delegate"].seen) == known


@pytest.mark.parametrize(
    ("version", "reached", "status", "judgement", "words"),
    [
        ("16.0tf2.19.1-1", "done", 0, "ok", "tried, it works"),
        ("16.0", "done", 0, "ok", "tried, it works"),
        (
            "16.0",
            "interpreter with the delegate",
            -11,
            "bad",
            "making the interpreter with the delegate (SIGSEGV)",
        ),
        (
            "16.0tf2.19.1-1",
            "delegate",
            None,
            "bad",
            "it hung for 40 s making the delegate",
        ),
        ("16.0", "delegate", 1, "bad", "known to crash"),
        (
            "16.0tf2.19.1-1",
            "delegate",
            1,
            "bad",
            "it failed making the delegate: no stick",
        ),
        (
            "16.0tf2.19.1-1",
            "call",
            1,
            "bad",
            "it failed at the first call: no stick; rebuilds for newer ones",
        ),
        (
            "16.0tf2.19.1-1",
            "call",
            -11,
            "bad",
            "it crashed at the first call (SIGSEGV); rebuilds for newer ones",
        ),
    ],
)
def test_the_pair(
    pi: Pi, version: str, reached: str, status: int | None, judgement: str, words: str
) -> None:
    pi.write("var/lib/dpkg/status", PACKAGE.format(version))
    found = judged(pi.facts(reached=reached, status=status, said="Traceback\nno stick"))
    assert found["Edge TPU delegate"].status == judgement
    assert words in found["Edge TPU delegate"].seen
    assert found["TFLite interpreter"].status == "ok"


def test_without_a_stick_a_pair_is_judged_by_version(pi: Pi) -> None:
    shutil.rmtree(pi.root / "sys/bus/usb/devices/2-1")
    facts = pi.facts(reached="delegate", status=1)
    assert "could not be tried" in judged(facts)["Edge TPU delegate"].seen
    facts["libedgetpu"]["version"] = "16.0"
    assert judged(facts)["Edge TPU delegate"].status == "warn"
    for version, known in (
        ("2.5.0.post1", False),
        ("2.11.0", False),
        ("2.12.0", True),
        ("2.14.0", True),
    ):
        facts["trials"] = [
            {
                **facts["trials"][0],
                "module": "tflite_runtime.interpreter",
                "version": version,
            }
        ]
        assert ("known to crash," in judged(facts)["Edge TPU delegate"].seen) == known


def test_an_interpreter_that_cannot_be_imported(pi: Pi) -> None:
    found = judged(pi.facts(reached="import", status=-4))
    assert "crashed importing it (SIGILL)" in found["TFLite interpreter"].seen
    assert found["TFLite interpreter"].status == "bad"
    assert "Edge TPU delegate" not in found


@pytest.mark.slow
def test_a_real_trial_that_crashes_and_one_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own, so the doctor lives on."""
    package = tmp_path / "tflite_runtime"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    for code, status in (
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("import time; time.sleep(600)", None),
    ):
        if status is None:
            monkeypatch.setattr("edgec_runtime.device_end.facts.TRIAL_S", 8.0)
        (package / "interpreter.py").write_text(code)
        trial = next(
            t
            for t in collect(str(tmp_path))["trials"]
            if t["module"].startswith("tflite_runtime")
        )
        assert (trial["status"], trial["reached"]) == (status, "import")


def test_pages_of_16_kilobytes(pi: Pi) -> None:
    facts = pi.facts()
    facts["page"] = 16384
    assert facts["libedgetpu"]["align"] == 65536
    for trial in facts["trials"]:
        trial["align"] = 65536
    assert judged(facts)["page size"].status == "ok"
    pi.write("usr/lib/aarch64-linux-gnu/libedgetpu.so.1", elf(4096))
    facts["libedgetpu"] = pi.facts()["libedgetpu"]
    page = judged(facts)["page size"]
    assert page.status == "bad"
    assert "libedgetpu cannot be loaded" in page.seen
    assert "kernel8.img" in page.fix


@pytest.mark.cc
@pytest.mark.parametrize(
    "target",
    [
        "linux-aarch64",
        # zig builds a C library for it, which takes two minutes.
        pytest.param("linux-armv7", marks=pytest.mark.sweep(0)),
    ],
)
def test_bundles_are_linked_for_large_pages(tmp_path: Path, target: str) -> None:
    """What the finding about the page size says of them."""
    assert alignment(str(tiny_model.build_program(tmp_path, target))) == 65536


def test_alignment_of_what_is_no_library(tmp_path: Path) -> None:
    for data in (b"", b"text", elf(4096)[:70], b"\x7fELF"):
        (tmp_path / "x").write_bytes(data)
        assert alignment(str(tmp_path / "x")) is None
    assert alignment(str(tmp_path / "none")) is None


CHANGES: list[tuple[dict[str, Any], str, str]] = [
    ({"machine": "armv6l"}, "architecture", "bad"),
    ({"target": "linux-riscv64"}, "architecture", "bad"),
    ({"target": "linux-armv7", "bits": 32}, "architecture", "warn"),
    ({"python": "3.8.10"}, "Python", "bad"),
    ({"python": "3.10.2"}, "Python", "ok"),
    ({"packages": {"numpy": None, "pycoral": None}}, "numpy", "warn"),
    ({"trials": []}, "TFLite interpreter", "warn"),
    ({"libedgetpu": None}, "libedgetpu", "warn"),
    (
        {"packages": {"numpy": "1", "pycoral": "0.1"}, "pycoral": "other"},
        "pycoral",
        "bad",
    ),
    ({"pycoral": "google"}, "pycoral", "ok"),
    (
        {"clock": {"governor": "powersave", "khz": 600000, "max_khz": 600000}},
        "CPU clock",
        "warn",
    ),
    ({"celsius": 82.0}, "temperature", "warn"),
    ({"celsius": 86.0}, "temperature", "bad"),
    ({"disk": None}, "disk", "bad"),
    (
        {"disk": {"path": "/", "free": 10, "read_only": False, "allowed": True}},
        "disk",
        "warn",
    ),
    (
        {"disk": {"path": "/", "free": 1 << 40, "read_only": True, "allowed": True}},
        "disk",
        "bad",
    ),
    (
        {"disk": {"path": "/", "free": 1 << 40, "read_only": False, "allowed": False}},
        "disk",
        "bad",
    ),
    ({"cameras": []}, "camera", "warn"),
    ({"udev": []}, "Edge TPU permission", "warn"),
]


@pytest.mark.parametrize(("change", "name", "status"), CHANGES)
def test_each_finding(pi: Pi, change: dict[str, Any], name: str, status: str) -> None:
    assert judged({**pi.facts(), **change})[name].status == status


def test_facts_that_cannot_be_found_out_are_no_errors(pi: Pi) -> None:
    facts = pi.facts()
    for key in (
        "user",
        "usb",
        "pcie",
        "udev",
        "libedgetpu",
        "throttled",
        "clock",
        "celsius",
        "cameras",
        "disk",
    ):
        judged({**copy.deepcopy(facts), key: None})
    shutil.rmtree(pi.root)
    pi.root.mkdir()
    assert judged(pi.facts())["Coral Edge TPU"].status == "warn"


def test_pip_of_a_system_that_manages_its_python(pi: Pi) -> None:
    for managed, fix in ((False, "litert"), (True, "litert --break-system-packages")):
        found = judged(
            {**pi.facts(), "trials": [], "managed": managed, "glibc": "2.41"}
        )
        assert found["TFLite interpreter"].fix.endswith(fix)


@pytest.mark.parametrize("genuine", [True, False])
def test_pycoral(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, genuine: bool
) -> None:
    (tmp_path / "pycoral" / "utils").mkdir(parents=True)
    (tmp_path / "pycoral" / "__init__.py").write_text(
        "raise SystemExit('the doctor must not run this')"
    )
    if genuine:
        (tmp_path / "pycoral" / "utils" / "edgetpu.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {f.name: f for f in examine().findings}["pycoral"]
    assert found.status == ("ok" if genuine else "bad")
    assert found.fix.startswith("python3 -m pip uninstall pycoral") != genuine


# ---- this machine, and others over a link


def test_this_machine() -> None:
    report = examine()
    found = {f.name: f for f in report.findings}
    assert found["Python"].status == found["numpy"].status == "ok"
    assert "litert" in found["TFLite interpreter"].seen
    assert "zig (compiles for the boards)" in found
    assert all(name in report.table() for name in found)


def test_a_machine_that_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    monkeypatch.setattr(doctor, "version", lambda _: None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    report = examine()
    found = {f.name: f for f in report.findings}
    assert found["zig (compiles for the boards)"].fix == "pip install ziglang"
    assert found["emulated boards"].fix == "sudo apt-get install qemu-user"
    assert found["edgetpu_compiler"].fix.endswith(
        "&& sudo apt-get install edgetpu-compiler"
    )
    assert "signed-by=" in found["edgetpu_compiler"].fix
    assert "apt-key add" not in found["edgetpu_compiler"].fix
    assert not report.ok


def test_a_check_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    def _broken() -> Iterator[Finding]:
        raise PermissionError("no")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (_broken,))
    assert examine().findings[-1] == Finding("broken", "warn", "could not look: no")
    assert not DoctorReport((Finding("x", "bad", "y", "z"),)).ok


def test_over_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    report = examine("local:")
    here = {f.name: f for f in judge(doctor.local_facts(), DEVICE_PYTHON)}
    assert {f.name for f in report.findings} == set(here), (
        "the same collector and the same judge"
    )
    assert report.url == "local:"
    assert not (tmp_path / "root").exists(), "looking changes nothing"
    with pytest.raises(InputError) as e:
        examine("emulated:pi4")
    assert e.value.hint


def test_a_device_without_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python and nothing else."""
    venv.create(tmp_path / "bare")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    found = {f.name: f for f in examine("local:").findings}
    assert found["numpy"].status == found["TFLite interpreter"].status == "warn"


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEC_ROOT", str(tmp_path / "root"))
    done = CliRunner().invoke(cli, ["doctor", "--on", "local:", "--json"])
    said = json.loads(done.output)
    assert said["url"] == "local:"
    assert done.exit_code == (0 if said["ok"] else 1)
    monkeypatch.setenv("EDGEC_ROOT", "/proc/1/nothing")
    done = CliRunner().invoke(cli, ["doctor", "--on", "local:"])
    assert done.exit_code == 1
    assert "→ ls -ld" in done.output or "→ sudo mount" in done.output


def test_a_request_that_the_device_end_does_not_have() -> None:
    with (
        Connection(stream_for("local:")) as c,
        pytest.raises(DeviceError, match="has no 'dance'"),
    ):
        c.request("dance", {})


def test_a_request_is_acknowledged_before_it_is_done(tmp_path: Path) -> None:
    """Trials and runs take longer than the host waits for a line on which nothing is
    acknowledged.
    """
    (source, host_out), (host_in, sink) = os.pipe(), os.pipe()
    seen: list[int] = []

    class Slow(Service):
        def work(self) -> None:
            if self.delivery.messages:
                seen.extend(
                    f.kind & 0x7F for f in Decoder().feed(os.read(host_in, 1 << 16))
                )
            super().work()

    os.write(
        host_out,
        Frame(HELLO, 7, 0, b"{}").encode()
        + Frame(LAST, 7, 0, pack({"do": "info", "id": 1})).encode(),
    )
    os.close(host_out)
    serve(source, sink, Slow(str(tmp_path)))
    assert ACK in seen
    for fd in (source, host_in, sink):
        os.close(fd)
