"""What decides how fast a machine is just now, before, during and after a run: clock,
governor, heat, throttling.

What the kernel tells any user, read below a given root so that a test can show another
machine; and of a Raspberry Pi what its firmware tells, of which there are three
tellers:

- `vcgencmd get_throttled`, a process: flags of now (bits 0 to 3) and of since the boot
  (16 to 19).
- soc:firmware/get_throttled of Raspberry Pi's own kernels, a file: the same word as the
  kernel's driver rpi_volt got it last, every 2 s, when it also has the upper bits
  cleared; those are of the last 2 s there. A Pi 5 has no such file.
- in0_lcrit_alarm of the driver rpi_volt, a file: under-voltage within the last 2 s
  (docs.kernel.org/hwmon).

When the firmware lowers the clock, the kernel's scaling_cur_freq stays where it was
(raspberrypi/linux#2986): then `vcgencmd measure_clock arm` is asked.

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
TOOL_EVERY_S = 2.0  # vcgencmd during a run, at most
# vcgencmd answers in some ms; where every CPU is busy, a process that steps back takes
# longer
TOOL_S = 5.0
MAX_SAMPLES = 128
FLAGS_NOW = 0xF
Execute = Callable[..., "subprocess.CompletedProcess[bytes]"]
Vitals = Dict[str, Any]

_CPU = "sys/devices/system/cpu"


class Files:
    """The small files of a machine, below a root."""

    def __init__(self, root: str = "/") -> None:
        self.root = root

    def text(self, path: str) -> str:
        """A file's text; empty where it cannot be read."""
        try:
            with open(
                os.path.join(self.root, path), encoding="utf-8", errors="replace"
            ) as f:
                return f.read(1 << 22)
        except OSError:
            return ""

    def number(self, path: str) -> Optional[int]:
        """Return the number at the start of a file, None without one."""
        found = re.match(r"\s*(-?\d+)", self.text(path))
        return int(found.group(1)) if found else None

    def numbers(self, paths: List[str]) -> List[int]:
        """Return the numbers in the readable files."""
        return [n for n in map(self.number, paths) if n is not None]

    def glob(self, pattern: str) -> List[str]:
        """Paths relative to the root, sorted."""
        return sorted(
            os.path.relpath(p, self.root)
            for p in glob.glob(os.path.join(self.root, pattern))
        )


class Sensors(Files):
    """The files and programs with the vitals of this machine: found once, read often."""

    def __init__(self, root: str = "/", execute: Execute = subprocess.run) -> None:
        super().__init__(root)
        self.execute = execute
        # one policy for the CPUs that share a clock
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
        self._zone = next((z for z in zones if self.number(z) is not None), None)
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
        self._word = next(
            iter(self.glob("sys/devices/platform/soc*/soc*:firmware/get_throttled")),
            None,
        )
        names = self.glob("sys/class/hwmon/hwmon*/name")
        volts = [
            os.path.dirname(p) for p in names if self.text(p).strip() == "rpi_volt"
        ]
        self._alarm = f"{volts[0]}/in0_lcrit_alarm" if volts else None
        self._tool = shutil.which("vcgencmd")

    @property
    def asks(self) -> bool:
        """Whether the firmware's flags come from a process only, not from a file."""
        return self._tool is not None and self._word is None

    def read(self) -> Vitals:
        """All vitals; what the machine does not tell is None.

        ns: CLOCK_MONOTONIC. governor: of all CPUs, "a/b" where they differ. khz:
        [lowest, highest] of the CPUs now. max_khz: of the fastest CPU. celsius: of the
        CPU or SoC. throttled: the word of get_throttled; throttled_by: "vcgencmd" or
        "sysfs", whose upper bits mean different times. undervoltage: the alarm of
        rpi_volt. cooling: by how many steps the kernel has lowered the clock for its
        temperature. throttle_count: of x86, how often the CPUs and packages lowered
        theirs. load1: processes that wanted to run, mean of a minute.
        """
        governors = {
            self.text(f"{p}/scaling_governor").strip() for p in self._policies
        } - {""}
        load = re.match(r"\d+\.\d+", self.text("proc/loadavg"))
        counts = self.numbers(self._counters)
        found = self.glance()
        word, by = self.flags()
        found.update(
            governor="/".join(sorted(governors)) or None,
            max_khz=max(
                self.numbers([f"{p}/cpuinfo_max_freq" for p in self._policies]),
                default=None,
            ),
            throttled=word,
            throttled_by=by,
            throttle_count=sum(counts) if counts else None,
            load1=float(load.group()) if load else None,
        )
        return found

    def glance(self) -> Vitals:
        """Return the changing values from files alone: ns, khz, celsius, throttled,
        throttled_by, undervoltage, cooling.
        """
        khz = self.numbers([f"{p}/scaling_cur_freq" for p in self._policies])
        thousandths = self.number(self._zone) if self._zone else None
        alarm = self.number(self._alarm) if self._alarm else None
        word = _word(self.text(self._word)) if self._word else None
        return {
            "ns": time.monotonic_ns(),
            "khz": [min(khz), max(khz)] if khz else None,
            "celsius": None if thousandths is None else thousandths / 1000,
            "throttled": word,
            "throttled_by": None if word is None else "sysfs",
            "undervoltage": None if alarm is None else bool(alarm),
            "cooling": max(self.numbers(self._coolers), default=None),
        }

    def flags(self) -> Tuple[Optional[int], Optional[str]]:
        """Return the bits of get_throttled, and their source: "vcgencmd", or "sysfs"
        where vcgencmd does not answer. None, None: neither tells.
        """
        word = _word(self._ask("get_throttled"))
        if word is not None:
            return word, "vcgencmd"
        word = _word(self.text(self._word)) if self._word else None
        return word, None if word is None else "sysfs"

    def arm_khz(self) -> Optional[int]:
        """The clock of the Arm cores of a Raspberry Pi, measured by its firmware."""
        found = re.match(r"frequency\(\d+\)=(\d+)", self._ask("measure_clock", "arm"))
        return int(found.group(1)) // 1000 if found else None

    def _ask(self, *words: str) -> str:
        """Return the answer of vcgencmd; after a failure it is never asked again."""
        if self._tool is None:
            return ""
        try:
            command = [self._tool, *words]
            done = self.execute(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_S
            )
            if done.returncode == 0:
                return done.stdout.decode(errors="replace").strip()
        except (OSError, subprocess.SubprocessError):
            pass
        self._tool = None
        return ""


def read(root: str = "/", execute: Execute = subprocess.run) -> Vitals:
    """The vitals of a machine now, see Sensors.read()."""
    return Sensors(root, execute).read()


def _word(text: str) -> Optional[int]:
    found = re.fullmatch(r"(?:throttled=)?(?:0x)?([0-9a-fA-F]+)", text.strip())
    return int(found.group(1), 16) if found else None


class VitalsWatch:
    """Reads the vitals before what is in its `with`, every half second meanwhile, and
    after it.

    What is measured must be another process.  It is not disturbed: the thread that
    reads here is of SCHED_IDLE, which the kernel lets run only on a CPU that nothing
    else wants; it reads a few files, and where the firmware's flags are in no file it
    asks vcgencmd, of SCHED_IDLE as well, once in 2 s and not in the first 2 s.  (Where
    the flags say that the clock is lowered, it is asked for the clock: that run is
    spoilt already.)
    """

    def __init__(
        self, root: str = "/", execute: Execute = subprocess.run, every: float = EVERY_S
    ) -> None:
        """every: seconds; doubled each time that MAX_SAMPLES are there, and these are
        merged by twos.
        """
        self.sensors = Sensors(root, execute)
        self._every = every
        self.before: Vitals = {}
        self.during: List[Vitals] = []
        self.after: Vitals = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._asked = 0.0
        self._lowered = False

    def __enter__(self) -> VitalsWatch:
        self.before = self.sensors.read()
        self._lowered = bool((self.before["throttled"] or 0) & FLAGS_NOW)
        self._asked = time.monotonic()
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
        """{"before": vitals, "during": [the changing ones of them], "after": vitals},
        as JSON.
        """
        return {"before": self.before, "during": list(self.during), "after": self.after}

    def _run(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            # 0: this thread, and what it starts
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while not self._end.wait(self._every):
            sample = self.sensors.glance()
            if time.monotonic() - self._asked >= TOOL_EVERY_S:
                self._ask(sample)
            word = sample["throttled"]
            self._lowered = self._lowered if word is None else bool(word & FLAGS_NOW)
            self.during.append(sample)
            if len(self.during) >= MAX_SAMPLES:
                self.during = [
                    _merged(a, b) for a, b in zip(self.during[::2], self.during[1::2])
                ]
                self._every *= 2

    def _ask(self, sample: Vitals) -> None:
        """One question to the firmware: the clock if it was said to be lowered, then
        the flags again.
        """
        if self._lowered:
            sample["arm_khz"] = self.sensors.arm_khz()
            self._lowered = False
        elif self.sensors.asks:
            sample["throttled"], sample["throttled_by"] = self.sensors.flags()
        else:
            return
        self._asked = time.monotonic()


def _merged(a: Vitals, b: Vitals) -> Vitals:
    """Return the worst of two samples, so that no event is lost."""
    worst: Dict[str, Callable[[Any, Any], Any]] = {
        "ns": min,
        "khz": lambda x, y: [min(x[0], y[0]), max(x[1], y[1])],
        "arm_khz": min,
        "throttled": lambda x, y: x | y,
        "throttled_by": max,
    }
    found = {**a, **b}
    for key in found:
        x = a.get(key)
        y = b.get(key)
        found[key] = (
            (y if x is None else x)
            if x is None or y is None
            else worst.get(key, max)(x, y)
        )
    return found
