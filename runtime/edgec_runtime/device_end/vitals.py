"""Reads the vitals of a machine before, during and after a run: clock, governor,
temperature and throttling, which decide how fast it is.

The kernel's files are read below a root, so that a test can stand for another machine.
The firmware of a Raspberry Pi is a second source, which is read in three ways:

- The process `vcgencmd get_throttled` prints a bit field: bits 0 to 3 are the
  conditions of now, bits 16 to 19 those since the boot.
- The file soc:firmware/get_throttled of Raspberry Pi's kernels has the same bit field
  as the driver rpi_volt read it last. The driver reads it every 2 s and clears the upper
  bits then, so that they mean the last 2 s. A Pi 5 has no such file.
- The file in0_lcrit_alarm of the driver rpi_volt says whether the voltage was too low
  within the last 2 s (docs.kernel.org/hwmon).

When the firmware lowers the clock, the kernel's scaling_cur_freq does not change
(raspberrypi/linux#2986), so that the clock is read by `vcgencmd measure_clock arm`.

This is part of the device end, see wire.py; the host reads its own machine with it too.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

EVERY_S = 0.5
TOOL_EVERY_S = 2.0  # shortest time between two calls of vcgencmd during a run
# vcgencmd answers within milliseconds, but with SCHED_IDLE it waits while every CPU is
# busy
TOOL_S = 5.0
MAX_SAMPLES = 128
FLAGS_NOW = 0xF
Execute = Callable[..., "subprocess.CompletedProcess[bytes]"]
Vitals = Dict[str, Any]

_CPU = "sys/devices/system/cpu"


class Files:
    """Reads small files of a machine, whose paths are relative to a root."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def text(self, path: str) -> str:
        """Return the text of a file; it is empty if the file cannot be read."""
        try:
            with open(
                os.path.join(self.root, path), encoding="utf-8", errors="replace"
            ) as f:
                return f.read(1 << 22)
        except OSError:
            return ""

    def number(self, path: str) -> Optional[int]:
        """Return the number at the start of a file; None if there is none."""
        match = re.match(r"\s*(-?\d+)", self.text(path))
        return int(match.group(1)) if match else None

    def numbers(self, paths: List[str]) -> List[int]:
        """Return the numbers in the readable files."""
        return [n for n in map(self.number, paths) if n is not None]

    def glob(self, pattern: str) -> List[str]:
        """Return the paths that match a pattern, relative to the root and sorted."""
        return sorted(
            os.path.relpath(p, self.root)
            for p in glob.glob(os.path.join(self.root, pattern))
        )


class Sensors(Files):
    """Reads the vitals of this machine from files and programs.

    It looks for these once, when it is made, so that each reading is quick.
    """

    def __init__(self, root: str = "/", execute: Execute = subprocess.run) -> None:
        super().__init__(root)
        self.execute = execute
        # CPUs that share a clock have one policy
        self._policies = self.glob(f"{_CPU}/cpufreq/policy*") or self.glob(
            f"{_CPU}/cpu[0-9]*/cpufreq"
        )
        zones = self.glob("sys/class/thermal/thermal_zone*/temp")
        zones.sort(
            key=lambda p: (
                not re.search(
                    "cpu|soc|pkg", self.text(os.path.join(os.path.dirname(p), "type"))
                )
            )
        )
        self._temperature_file = next(
            (z for z in zones if self.number(z) is not None), None
        )
        coolers = [
            os.path.dirname(p)
            for p in self.glob("sys/class/thermal/cooling_device*/type")
        ]
        self._coolers = [
            f"{c}/cur_state"
            for c in coolers
            if re.search("cpufreq|Processor", self.text(f"{c}/type"))
        ]
        self._counters = self.glob(
            f"{_CPU}/cpu[0-9]*/thermal_throttle/*_throttle_count"
        )
        self._throttled_file = next(
            iter(self.glob("sys/devices/platform/soc*/soc*:firmware/get_throttled")),
            None,
        )
        names = self.glob("sys/class/hwmon/hwmon*/name")
        volts = [
            os.path.dirname(p) for p in names if self.text(p).strip() == "rpi_volt"
        ]
        self._undervoltage_file = f"{volts[0]}/in0_lcrit_alarm" if volts else None
        self._vcgencmd = shutil.which("vcgencmd")

    @property
    def asks(self) -> bool:
        """Whether only a process can tell the firmware's flags, not a file."""
        return self._vcgencmd is not None and self._throttled_file is None

    def read(self) -> Vitals:
        """Return all vitals; a value that the machine does not tell is None.

        The keys are:

        - ns: time of CLOCK_MONOTONIC, ns
        - governor: frequency governor of all CPUs, "a/b" if they differ
        - khz: [lowest, highest] current clock of the CPUs, kHz
        - max_khz: highest possible clock of the fastest CPU, kHz
        - celsius: temperature of the CPU or SoC, °C
        - throttled: bit field of get_throttled
        - throttled_by: its source, "vcgencmd" or "sysfs"; the upper bits of each cover
          another time
        - undervoltage: whether rpi_volt has raised its alarm
        - cooling: steps by which the kernel has lowered the clock because of heat
        - throttle_count: on x86, how often CPUs and packages have lowered their clock
        - load1: mean number of runnable processes in the last minute
        """
        governors = {
            self.text(f"{p}/scaling_governor").strip() for p in self._policies
        } - {""}
        load = re.match(r"\d+\.\d+", self.text("proc/loadavg"))
        counts = self.numbers(self._counters)
        vitals = self.glance()
        bits, by = self.flags()
        vitals.update(
            governor="/".join(sorted(governors)) or None,
            max_khz=max(
                self.numbers([f"{p}/cpuinfo_max_freq" for p in self._policies]),
                default=None,
            ),
            throttled=bits,
            throttled_by=by,
            throttle_count=sum(counts) if counts else None,
            load1=float(load.group()) if load else None,
        )
        return vitals

    def glance(self) -> Vitals:
        """Return the changing values from files alone: ns, khz, celsius, throttled,
        throttled_by, undervoltage, cooling.
        """
        khz = self.numbers([f"{p}/scaling_cur_freq" for p in self._policies])
        thousandths = (
            self.number(self._temperature_file) if self._temperature_file else None
        )
        alarm = (
            self.number(self._undervoltage_file) if self._undervoltage_file else None
        )
        bits = (
            _bit_field(self.text(self._throttled_file))
            if self._throttled_file
            else None
        )
        return {
            "ns": time.monotonic_ns(),
            "khz": [min(khz), max(khz)] if khz else None,
            "celsius": None if thousandths is None else thousandths / 1000,
            "throttled": bits,
            "throttled_by": None if bits is None else "sysfs",
            "undervoltage": None if alarm is None else bool(alarm),
            "cooling": max(self.numbers(self._coolers), default=None),
        }

    def flags(self) -> Tuple[Optional[int], Optional[str]]:
        """Return the bit field of get_throttled and its source.

        The source is "vcgencmd", or "sysfs" if vcgencmd does not answer; both values
        are None if neither does.
        """
        bits = _bit_field(self._call("get_throttled"))
        if bits is not None:
            return bits, "vcgencmd"
        bits = (
            _bit_field(self.text(self._throttled_file))
            if self._throttled_file
            else None
        )
        return bits, None if bits is None else "sysfs"

    def arm_khz(self) -> Optional[int]:
        """Return the clock of a Pi's Arm cores in kHz, as its firmware measures it.

        None without vcgencmd.
        """
        match = re.match(r"frequency\(\d+\)=(\d+)", self._call("measure_clock", "arm"))
        return int(match.group(1)) // 1000 if match else None

    def _call(self, *words: str) -> str:
        """Return the output of vcgencmd; after a failure it is not called again."""
        if self._vcgencmd is None:
            return ""
        try:
            command = [self._vcgencmd, *words]
            process = self.execute(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_S
            )
            if process.returncode == 0:
                return process.stdout.decode(errors="replace").strip()
        except (OSError, subprocess.SubprocessError):
            pass
        self._vcgencmd = None
        return ""


def read(root: str = "/", execute: Execute = subprocess.run) -> Vitals:
    """Return the present vitals of a machine, see Sensors.read()."""
    return Sensors(root, execute).read()


def _bit_field(text: str) -> Optional[int]:
    match = re.fullmatch(r"(?:throttled=)?(?:0x)?([0-9a-fA-F]+)", text.strip())
    return int(match.group(1), 16) if match else None


class VitalsWatch:
    """Reads the vitals before a `with` block, every half second during it, and after it.

    The program under measurement has to be another process, which is hardly disturbed:
    the thread that reads has the policy SCHED_IDLE, so that it runs only on a CPU that
    is otherwise idle. It reads a few files. If no file has the firmware's flags, it
    calls vcgencmd, also with SCHED_IDLE, at most every 2 s and not in the first 2 s.
    After flags of a lowered clock it calls vcgencmd for the clock, since such a run is
    no valid measurement anyway.

    Attributes:
        before: the vitals at the beginning
        during: samples of the changing vitals, see Sensors.glance()
        after: the vitals at the end
    """

    def __init__(
        self, root: str = "/", execute: Execute = subprocess.run, every: float = EVERY_S
    ) -> None:
        """Prepare the watch.

        Args:
            root: where the machine's files are
            execute: starts vcgencmd
            every: seconds between two samples; each time that there are MAX_SAMPLES,
                pairs of them are merged, and it is doubled
        """
        self.sensors = Sensors(root, execute)
        self._every = every
        self.before: Vitals = {}
        self.during: List[Vitals] = []
        self.after: Vitals = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._last_call = 0.0
        # whether the newest flags say that the clock is lowered, and the clock has not
        # been read since
        self._lowered = False

    def __enter__(self) -> VitalsWatch:
        self.before = self.sensors.read()
        self._lowered = bool((self.before["throttled"] or 0) & FLAGS_NOW)
        self._last_call = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._end.set()
        self._thread.join(TOOL_S + 1.0)
        self.after = self.sensors.read()

    def as_dict(self) -> Dict[str, Any]:
        """Return before, during and after, as JSON has them."""
        return {"before": self.before, "during": list(self.during), "after": self.after}

    def _run(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # 0 is this thread; the processes that it starts inherit the policy
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while not self._end.wait(self._every):
            sample = self.sensors.glance()
            if time.monotonic() - self._last_call >= TOOL_EVERY_S:
                self._add_firmware(sample)
            bits = sample["throttled"]
            self._lowered = self._lowered if bits is None else bool(bits & FLAGS_NOW)
            self.during.append(sample)
            if len(self.during) >= MAX_SAMPLES:
                self.during = [
                    _merged(a, b) for a, b in zip(self.during[::2], self.during[1::2])
                ]
                self._every *= 2

    def _add_firmware(self, sample: Vitals) -> None:
        """Add to a sample the clock if it is lowered, otherwise the flags.

        One call of vcgencmd for each sample is enough of a disturbance.
        """
        if self._lowered:
            sample["arm_khz"] = self.sensors.arm_khz()
            self._lowered = False
        elif self.sensors.asks:
            sample["throttled"], sample["throttled_by"] = self.sensors.flags()
        else:
            return
        self._last_call = time.monotonic()


def _merged(a: Vitals, b: Vitals) -> Vitals:
    """Return a sample with the worse value of two for each key, so that no event is lost."""
    worst: Dict[str, Callable[[Any, Any], Any]] = {
        "ns": min,
        "khz": lambda x, y: [min(x[0], y[0]), max(x[1], y[1])],
        "arm_khz": min,
        "throttled": lambda x, y: x | y,
        "throttled_by": max,
    }
    merged = {**a, **b}
    for key in merged:
        x = a.get(key)
        y = b.get(key)
        merged[key] = (
            (y if x is None else x)
            if x is None or y is None
            else worst.get(key, max)(x, y)
        )
    return merged
