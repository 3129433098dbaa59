"""What slows a device down: read before, during and after a run of machines that are
shown to it, and judged.
"""

from __future__ import annotations

import builtins
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.throttling import Throttling, judge
from edgec_runtime.device_end import vitals
from edgec_runtime.device_end.agent import Service
from edgec_runtime.device_end.disk import Refused
from edgec_runtime.device_end.facts import identity
from edgec_runtime.device_end.requests import Empty, RunRequest
from edgec_runtime.device_end.trust import Key
from edgec_runtime.device_end.vitals import Sensors, VitalsWatch, read

from tests.waiting import LIMIT_S

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
WORD = "sys/devices/platform/soc/soc:firmware/get_throttled"
ZONE = "sys/class/thermal/thermal_zone0"
ALARM = "sys/class/hwmon/hwmon1/in0_lcrit_alarm"
NONE = {
    "governor",
    "khz",
    "max_khz",
    "celsius",
    "throttled",
    "throttled_by",
    "undervoltage",
    "cooling",
    "load1",
}


class Machine:
    """The files of a machine below a folder, and the vcgencmd that it may have."""

    def __init__(self, root: Path, files: dict[str, str]) -> None:
        self.root = root
        root.mkdir()
        for path, text in files.items():
            self.write(path, text)
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []

    def write(self, path: str, text: str) -> None:
        """A file; its reader sees the old text or the new, as of sysfs."""
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        new = full.with_suffix(".new")
        new.write_text(text + "\n")
        new.rename(full)

    def execute(
        self, command: list[str], **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """As subprocess.run."""
        assert options["timeout"] <= vitals.TOOL_S
        self.asked.append(command[1])
        return subprocess.CompletedProcess(command, 0, self.answers[command[1]], b"")

    def read(self) -> dict[str, Any]:
        """All vitals."""
        return read(str(self.root), self.execute)

    def watch(self) -> VitalsWatch:
        """Many samples in a short time."""
        return VitalsWatch(str(self.root), self.execute, every=0.005)


@pytest.fixture
def pi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A healthy Pi 4 with Raspberry Pi's kernel, without vcgencmd."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    files = {
        f"{POLICY}/scaling_governor": "performance",
        f"{POLICY}/scaling_cur_freq": "1800000",
        f"{POLICY}/cpuinfo_max_freq": "1800000",
        f"{ZONE}/temp": "48212",
        f"{ZONE}/type": "cpu-thermal",
        "sys/class/thermal/cooling_device0/type": "pwm-fan",
        "sys/class/thermal/cooling_device0/cur_state": "3",
        "sys/class/hwmon/hwmon0/name": "cpu_thermal",
        "sys/class/hwmon/hwmon1/name": "rpi_volt",
        ALARM: "0",
        WORD: "0",
        "proc/loadavg": "0.08 0.03 0.01 1/131 1022",
    }
    return Machine(tmp_path / "pi", files)


def with_vcgencmd(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    machine.answers = {
        "get_throttled": b"throttled=0x0\n",
        "measure_clock": b"frequency(48)=1800457088\n",
    }


def during(watch: VitalsWatch, what: Callable[[], bool]) -> None:
    """Waits until it is so, as a program that is measured would run."""
    end = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < end, watch.as_dict()
        time.sleep(0.002)


def more(watch: VitalsWatch, number: int = 2) -> None:
    """Waits for samples."""
    there = len(watch.during)
    during(watch, lambda: len(watch.during) >= there + number)


def test_a_healthy_pi(pi: Machine) -> None:
    found = pi.read()
    assert found.pop("ns") > 0
    assert found == {
        "governor": "performance",
        "khz": [1800000, 1800000],
        "max_khz": 1800000,
        "celsius": 48.212,
        "throttled": 0,
        "throttled_by": "sysfs",
        "undervoltage": False,
        "cooling": None,
        "throttle_count": None,
        "load1": 0.08,
    }
    with pi.watch() as w:
        more(w)
    said = w.as_dict()
    assert (
        said["before"]["ns"]
        < said["during"][0]["ns"]
        < said["during"][1]["ns"]
        < said["after"]["ns"]
    )
    assert judge([said]) == Throttling(
        False, (), (), True, "performance", 48.212, 48.212, 48.212, 1800, 1800, 1800
    )
    assert judge([said]).table() == "governor performance, 1800 of 1800 MHz, 48.2 °C"


def test_a_pi_that_throttles_half_way(pi: Machine) -> None:
    with pi.watch() as w:
        more(w)
        pi.write(f"{ZONE}/temp", "82100")
        pi.write(f"{POLICY}/scaling_cur_freq", "600000")
        pi.write(WORD, "60006")
        more(w)
        pi.write(f"{ZONE}/temp", "61300")
        pi.write(f"{POLICY}/scaling_cur_freq", "1800000")
        pi.write(WORD, "0")
        more(w)
    found = judge([w.as_dict()])
    assert found.throttled
    assert found.reasons == (
        "the firmware throttled the CPU at 82.1 °C",
        "the clock was capped at 600 MHz of 1800",
    )
    assert (found.celsius_before, found.celsius_max, found.celsius_after) == (
        48.212,
        82.1,
        61.3,
    )
    assert (
        found.table()
        == "governor performance, 600 to 1800 of 1800 MHz, 48.2 to 82.1 °C"
    )
    assert (w.before["throttled"], w.after["throttled"]) == (0, 0), (
        "neither look at the ends has it"
    )


def test_the_clock_that_the_firmware_lowers_is_asked_of_it(
    pi: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel goes on saying 1800 MHz.

    While the flags are fine nothing is started.
    """
    monkeypatch.setattr(vitals, "TOOL_EVERY_S", 0.02)
    with_vcgencmd(pi, monkeypatch)
    with pi.watch() as w:
        more(w, 8)
        assert pi.asked == ["get_throttled"], "before the run, not in it"
        pi.answers["measure_clock"] = b"frequency(48)=600169920\n"
        pi.write(WORD, "2")
        during(w, lambda: "measure_clock" in pi.asked)
    found = judge([w.as_dict()])
    assert found.reasons == ("the clock was capped at 600 MHz of 1800",)
    assert (found.mhz_min, found.mhz_max) == (600.169, 1800)


def test_flags_without_a_file_are_asked_for_now_and_then(
    pi: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pi 5: the flags that came and went in between stay set in the upper half."""
    monkeypatch.setattr(vitals, "TOOL_EVERY_S", 3600)
    with_vcgencmd(pi, monkeypatch)
    (pi.root / WORD).unlink()
    with pi.watch() as w:
        more(w)
        assert pi.asked == ["get_throttled"], "before the run, not at each sample"
        monkeypatch.setattr(vitals, "TOOL_EVERY_S", 0)
        during(w, lambda: len(pi.asked) >= 4)
        pi.answers["get_throttled"] = b"throttled=0x50000\n"
    assert set(pi.asked) == {"get_throttled"}
    asked = [s for s in w.during if s["throttled"] is not None]
    assert 2 <= len(asked) < len(w.during), "those that were due"
    assert w.after["throttled_by"] == "vcgencmd"
    found = judge([w.as_dict()])
    assert found.reasons[0].startswith(
        "under-voltage: use the power supply made for the board"
    )
    assert (
        found.reasons[1]
        == "the firmware throttled the CPU at 48.2 °C, or for the under-voltage"
    )


def test_no_process_in_a_short_run(
    pi: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Five samples take longer than usual on a busy machine.
    monkeypatch.setattr(vitals, "TOOL_EVERY_S", 30 * vitals.TOOL_EVERY_S)
    with_vcgencmd(pi, monkeypatch)
    (pi.root / WORD).unlink()
    with pi.watch() as w:
        more(w, 5)
        assert pi.asked == ["get_throttled"]
    assert pi.asked == ["get_throttled"] * 2


def test_under_voltage_that_only_the_kernel_tells(pi: Machine) -> None:
    (pi.root / WORD).unlink()
    with pi.watch() as w:
        more(w)
        pi.write(ALARM, "1")
        more(w)
        pi.write(ALARM, "0")
    found = judge([w.as_dict()])
    assert (found.throttled, found.known) == (True, False), (
        "hot or not, nobody can tell"
    )
    assert found.notes == (
        "the device does not tell whether it throttles, only whether it has under-voltage",
    )
    assert [r.split(":")[0] for r in found.reasons] == ["under-voltage"]


def test_a_laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    files = {
        "proc/loadavg": "3.25 0.9 0.4 2/400 7",
        "sys/class/thermal/thermal_zone0/type": "acpitz",
    }
    files |= {
        f"{ZONE}/temp": "27800",
        "sys/class/thermal/thermal_zone1/type": "x86_pkg_temp",
    }
    files |= {
        "sys/class/thermal/thermal_zone1/temp": "71000",
        "sys/class/thermal/cooling_device2/type": "Processor",
    }
    files |= {"sys/class/thermal/cooling_device2/cur_state": "0"}
    for cpu, khz in enumerate((800000, 3600000)):
        policy = f"sys/devices/system/cpu/cpufreq/policy{cpu}"
        files |= {
            f"{policy}/scaling_cur_freq": str(khz),
            f"{policy}/cpuinfo_max_freq": "4200000",
        }
        files |= {f"{policy}/scaling_governor": "powersave"}
        files |= {
            f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle/{n}_throttle_count": "5"
            for n in ("core", "package")
        }
    laptop = Machine(tmp_path / "laptop", files)
    assert laptop.read()["throttle_count"] == 20
    with laptop.watch() as w:
        more(w)
    found = judge([w.as_dict()])
    assert (found.throttled, found.known, found.celsius_max) == (False, True, 71.0)
    assert found.table() == "governor powersave, 800 to 3600 of 4200 MHz, 71.0 °C"
    governor, busy = found.notes
    assert governor.startswith("the governor is powersave, not performance")
    assert "echo performance | sudo tee" in governor
    assert busy == "the device was busy before the run: load average 3.25"
    with laptop.watch() as w:
        laptop.write(
            "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "9"
        )
    reason = (
        "the CPU lowered its clock for its temperature at 71.0 °C: "
        "its throttle counts rose by 4"
    )
    assert judge([w.as_dict()]).reasons == (reason,)


def test_a_kernel_that_cools_the_cpu(pi: Machine) -> None:
    """As on boards whose kernel, not firmware, lowers the clock; a fan that turns is
    nothing.
    """
    pi.write("sys/class/thermal/cooling_device1/type", "thermal-cpufreq-0")
    pi.write("sys/class/thermal/cooling_device1/cur_state", "0")
    with pi.watch() as w:
        more(w)
        pi.write("sys/class/thermal/cooling_device1/cur_state", "2")
        more(w)
    assert judge([w.as_dict()]).reasons == (
        "the kernel lowered the clock by 2 steps to cool the CPU at 48.2 °C",
    )


def test_a_machine_that_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    bare = Machine(tmp_path / "bare", {})
    found = bare.read()
    assert {k for k, v in found.items() if v is None} == NONE | {"throttle_count"}
    with bare.watch() as w:
        more(w)
    report = judge([w.as_dict()])
    assert (report.throttled, report.known) == (False, False)
    assert report.notes == ("the device does not tell whether it throttles",)
    assert report.table() == "the device tells neither clock nor temperature"
    assert judge([]).notes == judge([{}]).notes == (judge([]).notes[0],)


def test_this_machine() -> None:
    with VitalsWatch(every=0.01) as w:
        subprocess.run(["sleep", "0.05"], check=True)
    judge([w.as_dict()])
    assert identity()["kernel"] == os.uname().release


# ---- what watching costs


def test_a_sample_reads_four_files_and_starts_nothing(
    pi: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_vcgencmd(pi, monkeypatch)
    sensors = Sensors(str(pi.root), pi.execute)
    opened = []
    real = builtins.open

    def counting(path: Any, *rest: Any, **options: Any) -> Any:
        opened.append(str(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(builtins, "open", counting)
    sensors.glance()
    assert sorted(os.path.basename(p) for p in opened) == [
        "get_throttled",
        "in0_lcrit_alarm",
        "scaling_cur_freq",
        "temp",
    ]
    assert pi.asked == []


def test_the_thread_that_reads_steps_back(pi: Machine) -> None:
    policies = []
    w = pi.watch()
    real = w.sensors.glance
    w.sensors.glance = lambda: (policies.append(os.sched_getscheduler(0)), real())[1]  # type: ignore[method-assign, func-returns-value]
    with w:
        policies.clear()
        more(w)
        assert set(policies) == {os.SCHED_IDLE}
    assert os.sched_getscheduler(0) != os.SCHED_IDLE, "what is measured does not"


def test_samples_are_few_and_nothing_is_lost(
    pi: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "MAX_SAMPLES", 8)
    words = iter([0x0, 0x2, 0x0, 0x50000, *[0] * 1000])
    temperatures = iter([50, 51, 83, *[50] * 1000])
    w = pi.watch()
    w._every = 1e-4
    real = w.sensors.glance
    taken = []

    def glance() -> dict[str, Any]:
        sample = {
            **real(),
            "throttled": next(words),
            "celsius": float(next(temperatures)),
        }
        taken.append(sample)
        return sample

    with w:
        w.sensors.glance = glance  # type: ignore[method-assign]
        during(w, lambda: len(taken) >= 30)
        w.sensors.glance = real  # type: ignore[method-assign]
    assert len(w.during) < 8
    assert w._every >= 8e-4
    found = judge([w.as_dict()])
    assert found.celsius_max == 83
    assert {r.split(":")[0].split(" at ")[0] for r in found.reasons} == {
        "the clock was capped",
        "under-voltage",
        "the firmware throttled the CPU",
    }


@pytest.mark.parametrize(
    "text",
    ["sleep 60", "echo error=1 error_msg=; exit 1", "echo VCHI initialization failed"],
)
def test_a_vcgencmd_that_hangs_or_fails(
    pi: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    """It is given up, the file's flags are taken, and the run goes on."""
    tool = tmp_path / "vcgencmd"
    tool.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/log\n{text}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(shutil, "which", lambda name: str(tool))
    # One that does not hang has its time, whatever else the machine does.
    monkeypatch.setattr(vitals, "TOOL_S", 2.0 if "sleep" in text else LIMIT_S)
    monkeypatch.setattr(vitals, "TOOL_EVERY_S", 0.01)
    with VitalsWatch(str(pi.root), every=0.005) as w:
        more(w, 4)
    assert w.before["throttled_by"] == w.after["throttled_by"] == "sysfs"
    asked = len((tmp_path / "log").read_text().split())
    assert asked == (2 if "VCHI" in text else 1), (
        "one that hangs or fails is not asked again"
    )


# ---- the agent


def service_with(
    program: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Service, list[list[str]]]:
    """A device end whose application is there; its programs say `program`."""
    commands: list[list[str]] = []

    class Slot:
        name = "tiny"

        def program(self, slot: str) -> list[str]:
            return [f"/{slot}/main"]

        def trusted(self) -> list[Key]:
            return []

    def execute(
        command: list[str], **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, program, b"")

    service = Service(str(tmp_path / "root"), execute=execute)
    monkeypatch.setattr(service, "_open", lambda head, lock=True: Slot())
    return service, commands


def test_the_agent_watches_when_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    service, commands = service_with(b"{}", tmp_path, monkeypatch)
    request = RunRequest("tiny", "try", limit=5)
    plain, _ = service.run(request, b"")
    assert plain.vitals is None
    assert commands[-1][:2] == ["/try/main", "--json"]
    assert "--launched" not in commands[-1]
    timing = ["--runs", "50", "--seconds", "0.5", "--warmup", "0.25"]
    earliest = time.monotonic_ns()
    watched = request._replace(watch=True, launched=True, options=timing)
    said, _ = service.run(watched, b"")
    vitals = said.vitals
    assert vitals is not None
    assert set(vitals) == {"before", "during", "after"}
    assert commands[-1][1:8] == [*timing, "--json"]
    assert commands[-1][-2] == "--launched"
    launched = int(commands[-1][-1])
    assert earliest < vitals["before"]["ns"] < launched < vitals["after"]["ns"]
    judge([vitals])


@pytest.mark.parametrize(
    "options",
    [
        ["--output", "/etc"],
        ["--runs"],
        ["--runs", "-1"],
        ["--runs", "1 --output /etc"],
        ["--runs", "1\n"],
    ],
)
def test_a_host_says_only_how_it_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    service, commands = service_with(b"{}", tmp_path, monkeypatch)
    with pytest.raises(Refused, match="is not run with"):
        service.run(RunRequest("tiny", "a", options, limit=5), b"")
    assert commands == []


def test_what_the_device_says_of_itself(tmp_path: Path) -> None:
    said = Service(str(tmp_path)).info(Empty(), b"")
    assert {k: getattr(said, k) for k in identity()} == identity()
    assert (said.kernel, said.emulated) == (os.uname().release, False)


# ---- which machine it is


def cpus(
    part: str, mips: str = "108.00", implementer: str = "0x41", number: int = 2
) -> str:
    """/proc/cpuinfo of ARM."""
    one = (
        f"BogoMIPS\t: {mips}\nFeatures\t: fp asimd\nCPU implementer\t: "
        f"{implementer}\nCPU architecture: 8\n"
    )
    one += f"CPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: 3\n"
    return "\n".join(f"processor\t: {i}\n{one}" for i in range(number))


@pytest.mark.parametrize(
    ("cpuinfo", "tree", "cpu", "emulated"),
    [
        (cpus("0xd08"), "raspberrypi,4-model-b\0brcm,bcm2711", "Cortex-A72", False),
        (cpus("0xd03", "38.40"), "raspberrypi,3-model-b", "Cortex-A53", False),
        (
            cpus("0xd08", "125.00"),
            "linux,dummy-virt",
            "Cortex-A72",
            True,
        ),  # the whole emulated Pi
        (
            cpus("0xd08", "125.00"),
            "raspberrypi,4-model-b",
            "Cortex-A72",
            True,
        ),  # -M raspi4b
        (
            cpus("0xd0b", "125.00"),
            "acme,board",
            "Cortex-A76",
            False,
        ),  # a timer alone proves nothing
        (
            cpus("0xd0c", "50.00"),
            "linux,dummy-virt",
            "Neoverse-N1",
            False,
        ),  # a guest of KVM
        (
            cpus("0x051", "2000.00", "0x00"),
            "linux,dummy-virt",
            "implementer 0x00 part 0x051",
            True,
        ),  # -cpu max
        (cpus("0xd05") + "\n" + cpus("0xd0b"), "", "Cortex-A55 + Cortex-A76", False),
        (cpus("0x001", implementer="0x61"), "", "implementer 0x61 part 0x001", False),
        (
            "processor\t: 0\nmodel name\t: ARMv7 Processor rev 3 (v7l)\n"
            + cpus("0xd08")[14:],
            "",
            "Cortex-A72",
            False,
        ),
        (
            "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n",
            "",
            "AMD EPYC",
            False,
        ),
        (
            "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\n",
            "",
            "QEMU TCG CPU version 2.5+",
            True,
        ),
        ("", "", "", False),
    ],
)
def test_the_cpu_and_whether_it_is_emulated(
    tmp_path: Path, cpuinfo: str, tree: str, cpu: str, emulated: bool
) -> None:
    machine = Machine(
        tmp_path / "m", {"proc/cpuinfo": cpuinfo, "proc/device-tree/compatible": tree}
    )
    found = identity(str(machine.root))
    assert (found["cpu"], found["emulated"]) == (cpu, emulated)
