"""Collects the facts of a machine as plain JSON for `edgec doctor`.

The host judges them (doctor.py). The kernel's files are read below a root, so that a
test can stand for another machine. An interpreter with the Edge TPU's library, which may
crash, is tried in a process of its own. This is part of the device end, see wire.py; the
host collects its own facts with it, too.
"""

from __future__ import annotations

import contextlib
import glob
import grp
import os
import platform
import pwd
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from typing import Any, Callable, Dict, List, Optional, Tuple

from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.trial_model import COMPILED
from edgec_runtime.device_end.vitals import Execute, Files, read

MODULES = {
    "litert": "ai_edge_litert.interpreter",
    "tflite-runtime": "tflite_runtime.interpreter",
}
EDGETPU_LIBRARIES = ("libedgetpu.so.1", "libedgetpu.so")
EDGETPU_IDS = ("1a6e:089a", "18d1:9302")  # before and after its firmware was loaded
EDGETPU_PCI = "PCI_ID=1AC1:089A"
UDEV_RULES = "/etc/udev/rules.d/60-edgetpu.rules"
ADD_UDEV_RULES = (
    'printf \'SUBSYSTEM=="usb", ATTRS{idVendor}=="%s", GROUP="plugdev"\\n\' 1a6e 18d1 '
    f"| sudo tee {UDEV_RULES} && sudo udevadm control --reload-rules && sudo udevadm "
    "trigger"
)
EDGETPU_PACKAGES = ("libedgetpu1-std", "libedgetpu1-max")
CAMERA_PROGRAMS = ("rpicam-hello", "libcamera-hello", "cam")
TRIAL_S = 40.0
# Part numbers of ARM Ltd. in MIDR_EL1, which /proc/cpuinfo shows.
CORES = {
    0xB76: "ARM1176",
    0xC07: "Cortex-A7",
    0xC08: "Cortex-A8",
    0xC09: "Cortex-A9",
    0xC0F: "Cortex-A15",
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77",
    0xD40: "Neoverse-V1",
    0xD41: "Cortex-A78",
    0xD49: "Neoverse-N2",
    0xD4F: "Neoverse-V2",
}
ARM_LTD = 0x41
Facts = Dict[str, Any]

# A .tflite of one RELU, compressed. It makes an interpreter hand its graph to the
# delegate, which crashes if their versions do not fit.
_MODEL = (
    "eNqTYGBgCHHzMWZg4GMQYRBg4GHgAIqwAHkMQB4DgwwQ3wBiZiBmBGKILAhC+CA1PHCdLEASImYDxA5A7IKkjoGBCywPUscFNYsHKg/DDFj4TEBs"
    "AraXgeHB////kfVVQuUZofI8UB8wQN2CrLYCTS3C/TwM3Eh6hCHWCgMAAWgKDA=="
)
CALL = "call"
"""The last step of a trial: an inference on the Edge TPU. A libedgetpu that was built for
an older TensorFlow opens the device, and fails or crashes here."""
# Prints each step before taking it, so that after a crash the last line is its step.
TRIAL = f"""
import ctypes, importlib, sys, zlib, base64
def step(name):
    print(name, flush=True)
step("import")
module = importlib.import_module(sys.argv[1])
model = zlib.decompress(base64.b64decode("{_MODEL}"))
step("interpreter")
module.Interpreter(model_content=model).allocate_tensors()
delegate = None
if sys.argv[2]:
    step("library")
    ctypes.CDLL(sys.argv[2])
    step("delegate")
    delegate = module.load_delegate(sys.argv[2])
    step("interpreter with the delegate")
    module.Interpreter(model_content=model, experimental_delegates=[delegate]).allocate_tensors()
    step("{CALL}")
    model = zlib.decompress(base64.b64decode("{COMPILED}"))
    interpreter = module.Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.invoke()
    del interpreter  # before its delegate
step("done")
"""


def collect(folder: str, root: str = "/", execute: Execute = subprocess.run) -> Facts:
    """Return all facts; an unknown one is None or empty.

    Args:
        folder: the folder of applications
        root: where the kernel's files are
        execute: starts programs
    """
    m = _Machine(root, execute)
    facts: Facts = {
        **m.identity(),
        "os": m.release(),
        "machine": platform.machine(),
        "bits": struct.calcsize("P") * 8,
        "target": machine_target(),
        "memory_mb": _safely(m.memory_mb),
        "page": os.sysconf("SC_PAGE_SIZE"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {
            name: _version(name)
            for name in ("numpy", "pycoral", *map(distribution, MODULES.values()))
        },
        "pycoral": _pycoral(),
        "managed": _managed(),
        "glibc": platform.libc_ver()[1],
    }
    for name, collector in (
        ("user", m.user),
        ("usb", m.edgetpus),
        ("pcie", m.pcie),
        ("pci", m.pci),
        ("udev", m.udev_rules),
        ("libedgetpu", m.libedgetpu),
        ("cameras", m.cameras),
    ):
        facts[name] = _safely(collector)
    vitals = read(root, execute)
    facts["throttled"], facts["celsius"] = vitals["throttled"], vitals["celsius"]
    khz = vitals["khz"] and vitals["khz"][-1]
    facts["clock"] = {
        "governor": vitals["governor"],
        "khz": khz,
        "max_khz": vitals["max_khz"],
    }
    facts["camera_program"] = next(
        (p for p in CAMERA_PROGRAMS if shutil.which(p)), None
    )
    facts["disk"] = _safely(lambda: disk(folder))
    facts["trials"] = m.trials(facts["libedgetpu"] or {})
    return facts


def identity(root: str = "/") -> Facts:
    """Return the identity of the machine.

    The keys are "board" (by the device tree), "cpu", "os" and "kernel", each "" if
    unknown, and "emulated": True if an emulator certainly executes its instructions, so
    that times are not those of hardware.
    """
    return _Machine(root, subprocess.run).identity()


def edgetpus_here() -> Tuple[List[Facts], List[str]]:
    """Return facts about the Edge TPUs on USB, and the device nodes of those on PCIe."""
    m = _Machine("/", subprocess.run)
    return m.edgetpus(), m.pcie()


def _safely(collector: Callable[[], Any]) -> Any:
    """Return the facts of a collector; None if they cannot be read."""
    try:
        return collector()
    except (OSError, ValueError, KeyError, LookupError):
        return None


class _Machine(Files):
    """The files below a root and the programs of a machine."""

    def __init__(self, root: str, execute: Execute) -> None:
        super().__init__(root)
        self.execute = execute

    def identity(self) -> Facts:
        """Return the identity of the machine, see the function `identity`."""
        return {
            "board": self.text("proc/device-tree/model").strip("\0\n "),
            "cpu": self.cpu(),
            "os": self.release()["name"],
            "kernel": platform.release(),
            "emulated": self.emulated(),
        }

    def cpu(self) -> str:
        """Return the kinds of CPU cores, e.g. "Cortex-A53 + Cortex-A72".

        Unknown Arm cores are named by numbers, other CPUs by their model's name.
        """
        text = self.text("proc/cpuinfo")
        named = re.search(r"^model name\s*:\s*(.+?)\s*$", text, re.M)
        makers = re.findall(
            r"^CPU implementer\s*:\s*(\w+)(?:\n.+)*?\nCPU part\s*:\s*(\w+)", text, re.M
        )
        cores = [
            CORES.get(int(part, 16)) if int(maker, 16) == ARM_LTD else None
            for maker, part in makers
        ]
        unknown = [f"implementer {maker} part {part}" for maker, part in makers]
        names = dict.fromkeys(core or other for core, other in zip(cores, unknown))
        return " + ".join(names) or (named.group(1) if named else "")

    def emulated(self) -> bool:
        """Return whether QEMU emulates the CPU.

        The signs are a CPU that only QEMU has ("max", and its x86 CPUs), or QEMU's timer
        with another Arm CPU.  That timer has 62.5 MHz, which no board has; Linux shows
        it as BogoMIPS, two for each tick.  A guest of KVM has the timer of its host, and
        the host's speed.
        """
        text = self.text("proc/cpuinfo")
        if re.search(
            r"^model name\s*:.*QEMU TCG|^CPU implementer\s*:\s*0x0*$", text, re.M
        ):
            return True
        tree = self.text("proc/device-tree/compatible") + self.text(
            "sys/class/dmi/id/sys_vendor"
        )
        # boards of QEMU; a real Pi has another timer
        boards = re.search("linux,dummy-virt|raspberrypi,|QEMU", tree)
        return bool(boards and re.search(r"^BogoMIPS\s*:\s*125\.00$", text, re.M))

    def release(self) -> Facts:
        """Return name and identifier of the system, from /etc/os-release."""
        fields = dict(
            re.findall(r'^([A-Z_]+)="?([^"\n]*)', self.text("etc/os-release"), re.M)
        )
        return {
            "name": fields.get("PRETTY_NAME") or platform.platform(),
            "id": fields.get("ID", ""),
        }

    def memory_mb(self) -> Optional[int]:
        """Return the memory that the kernel manages, in MB of 10^6 bytes."""
        match = re.search(r"^MemTotal:\s*(\d+) kB", self.text("proc/meminfo"), re.M)
        return int(match.group(1)) * 1024 // 1_000_000 if match else None

    def user(self) -> Facts:
        """Return name and groups of the user who would run bundles."""
        groups = []
        for number in {os.getegid(), *os.getgroups()}:
            with contextlib.suppress(KeyError):
                groups.append(grp.getgrgid(number).gr_name)
        return {"name": pwd.getpwuid(os.geteuid()).pw_name, "groups": sorted(groups)}

    def edgetpus(self) -> List[Facts]:
        """Return the Edge TPUs on USB.

        Each has "id" (vendor:product), "mbps" (speed in Mb/s), "node", "group" (the
        node's owner) and "allowed" (whether the user may open it; None without a node).
        """
        devices = []
        for path in self.glob("sys/bus/usb/devices/*/idVendor"):
            folder = os.path.dirname(path)
            vendor = self.text(path).strip()
            product = self.text(os.path.join(folder, "idProduct")).strip()
            identifier = f"{vendor}:{product}"
            if identifier not in EDGETPU_IDS:
                continue
            bus, number = (
                self.number(os.path.join(folder, n)) for n in ("busnum", "devnum")
            )
            node = f"/dev/bus/usb/{bus or 0:03}/{number or 0:03}"
            real = os.path.join(self.root, node[1:])
            group = _safely(
                lambda real=real: grp.getgrgid(os.stat(real).st_gid).gr_name  # type: ignore[misc]
            )
            speed = self.number(os.path.join(folder, "speed"))
            if os.path.exists(real):
                allowed = os.access(real, os.R_OK | os.W_OK)
            else:
                allowed = None
            devices.append(
                {
                    "id": identifier,
                    "mbps": speed,
                    "node": node,
                    "group": group,
                    "allowed": allowed,
                }
            )
        return devices

    def pcie(self) -> List[str]:
        """Return the device nodes of Edge TPUs on PCIe."""
        return ["/" + p for p in self.glob("dev/apex_[0-9]*")]

    def pci(self) -> List[str]:
        """Return the uevent file of each Edge TPU on PCIe."""
        return [
            t
            for t in map(self.text, self.glob("sys/bus/pci/devices/*/uevent"))
            if EDGETPU_PCI in t
        ]

    def udev_rules(self) -> List[str]:
        """Return the files with a rule for the Edge TPU on USB."""
        paths = [
            p
            for d in ("etc", "lib", "usr/lib")
            for p in self.glob(f"{d}/udev/rules.d/*.rules")
        ]
        return [
            "/" + p
            for p in paths
            if all(i.split(":")[0] in self.text(p) for i in EDGETPU_IDS)
        ]

    def libedgetpu(self) -> Facts:
        """Return facts about the Edge TPU's library.

        The keys are "path", "name", "align" (page size for which it is linked),
        "package" and "version" of that; each is None if unknown.
        """
        folders = ("usr/lib", "usr/lib/*", "usr/local/lib", "lib")
        places = [
            p
            for name in EDGETPU_LIBRARIES
            for folder in folders
            for p in self.glob(f"{folder}/{name}")
        ]
        facts: Facts = {
            "path": None,
            "name": None,
            "align": None,
            "package": None,
            "version": None,
        }
        if places:
            align = alignment(os.path.join(self.root, places[0]))
            facts.update(
                path="/" + places[0], name=os.path.basename(places[0]), align=align
            )
        for package in EDGETPU_PACKAGES:
            stanza = re.search(
                rf"^Package: {package}\n(?:.+\n)*",
                self.text("var/lib/dpkg/status"),
                re.M,
            )
            if stanza:
                version = re.search(r"^Version: (\S+)", stanza.group(0), re.M)
            else:
                version = None
            if stanza and version and " installed\n" in stanza.group(0):
                facts.update(package=package, version=version.group(1))
        return facts

    def cameras(self) -> List[Facts]:
        """Return "node" and "name" of each camera.

        A Pi's codecs and image processors have such nodes, too, and are left out.
        """
        cameras = []
        for path in self.glob("sys/class/video4linux/video*/name"):
            name = self.text(path).strip()
            if not re.search(r"codec|isp|hevc|rpivid", name, re.I):
                cameras.append({"node": f"/dev/{path.split('/')[-2]}", "name": name})
        return cameras

    def trials(self, libedgetpu: Facts) -> List[Facts]:
        """Try each installed interpreter, with the Edge TPU's library if there is one.

        Each trial is a process of its own, since it may crash.

        Args:
            libedgetpu: the facts about the library

        Returns:
            for each trial "module", "version", "reached" (the last step, "done" at the
            end), "status" (exit status of the process; negative for a signal, None if it
            did not end in time), "said" (the end of its standard error) and "align"
            (page size for which its libraries are linked)
        """
        trials = []
        for module in MODULES.values():
            spec = _spec(module.split(".")[0])
            if spec is None:
                continue
            folders = list(spec.submodule_search_locations or [])
            libraries = [
                p
                for f in folders
                for p in glob.glob(os.path.join(f, "**", "*.so*"), recursive=True)
            ]
            alignments = [a for a in map(alignment, libraries) if a]
            status, output, errors = self._try([module, libedgetpu.get("name") or ""])
            steps = output.split("\n")[:-1]
            trials.append(
                {
                    "module": module,
                    "version": _version(distribution(module)),
                    "reached": steps[-1].strip() if steps else "start",
                    "status": status,
                    "said": errors.strip()[-400:],
                    "align": min(alignments) if alignments else None,
                }
            )
        return trials

    def _try(self, arguments: List[str]) -> Any:
        try:
            command = [sys.executable, "-c", TRIAL, *arguments]
            # Python imports from the working directory first; / has no modules.
            process = self.execute(
                command,
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRIAL_S,
            )
        except subprocess.TimeoutExpired as e:
            return (
                None,
                (e.stdout or b"").decode(errors="replace"),
                (e.stderr or b"").decode(errors="replace"),
            )
        except OSError as e:
            return 127, "", str(e)
        return (
            process.returncode,
            process.stdout.decode(errors="replace"),
            process.stderr.decode(errors="replace"),
        )


def disk(folder: str) -> Facts:
    """Return the free bytes of the nearest existing folder, and whether it is writable."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    read_only = bool(status.f_flag & getattr(os, "ST_RDONLY", 1))
    allowed = os.access(folder, os.W_OK | os.X_OK)
    return {
        "path": folder,
        "free": status.f_bavail * status.f_frsize,
        "read_only": read_only,
        "allowed": allowed,
    }


def distribution(module: str) -> str:
    """Return the name on PyPI of an interpreter's module."""
    return module.split(".")[0].replace("_", "-")


def _version(name: str) -> Optional[str]:
    # It takes a slow board longer than all other imports together.
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _managed() -> bool:
    """Return whether pip refuses to install for this Python by default (PEP 668)."""
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and os.path.exists(marker)


def _spec(module: str) -> Any:
    """Return the spec of a module, which is not imported, since it may be any code."""
    import importlib.util

    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _pycoral() -> Optional[str]:
    """Return whose pycoral is installed: "google", "other", or None for none.

    Google has never published its pycoral on PyPI, where another has that name.
    """
    spec = _spec("pycoral")
    if spec is None and _version("pycoral") is None:
        return None
    folders = list(spec.submodule_search_locations or []) if spec else []
    if any(os.path.exists(os.path.join(f, "utils", "edgetpu.py")) for f in folders):
        return "google"
    return "other"


def alignment(path: str) -> Optional[int]:
    """Return the largest page size with which a shared object can be loaded.

    That is the least p_align of its PT_LOAD segments; None if it is not one.
    """
    try:
        with open(path, "rb") as f:
            head = f.read(64)
            if head[:4] != b"\x7fELF" or head[5] != 1:
                return None
            wide = head[4] == 2
            if wide:
                start = struct.unpack_from("<Q", head, 32)[0]
            else:
                start = struct.unpack_from("<I", head, 28)[0]
            size, count = struct.unpack_from("<HH", head, 54 if wide else 42)
            f.seek(start)
            table = f.read(size * count)
        alignments = []
        for at in range(0, size * count, size):
            if struct.unpack_from("<I", table, at)[0] == 1:
                alignments.append(
                    struct.unpack_from("<Q", table, at + 48)[0]
                    if wide
                    else struct.unpack_from("<I", table, at + 28)[0]
                )
    except (OSError, struct.error, IndexError):
        return None
    return min(alignments, default=None)
