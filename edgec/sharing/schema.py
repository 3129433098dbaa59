"""Every field that `--share` writes, with the values that it may have.

A new field stands here first, and docs/measured.md lists it: else it does not leave the
machine.
"""

from __future__ import annotations

from functools import cache

from edgec_devices.boards import boards
from edgec_devices.cores import FOLDER
from edgec_devices.estimates import COST_MODEL
from edgec_runtime.bundle.manifest import PLACES
from edgec_runtime.device_end.facts import CORES

from edgec.ir import OpDef
from edgec.sharing.rules import (
    SharedList,
    SharedRecord,
    choice,
    choices,
    flag,
    form,
    number,
    numbers,
)

SCHEMA = 1
"""The version of the file: it grows where a field changes its meaning."""

GOVERNORS = (
    "performance",
    "powersave",
    "ondemand",
    "conservative",
    "schedutil",
    "userspace",
)
"""Of Linux (docs.kernel.org/admin-guide/pm/cpufreq)."""
CODE = ("linux-aarch64", "linux-armv7", "linux-x86_64")
"""Kinds of code."""
BACKENDS = ("c", "delegate", "interpreter", COST_MODEL)
ORIGINS = ("measured", "emulator", "estimate")
"""By a board's clock, by that of an emulated machine, or by models of the board."""
_END = r"(?![\d.])"
"""Not within more numbers: four of them are an address."""
VERSION = rf"\d{{1,2}}(\.\d{{1,4}}){{1,2}}(tf\d{{1,2}}(\.\d{{1,2}}){{1,2}})?{_END}"
"""A version without its local parts; libedgetpu's rebuilds name their TensorFlow."""

_PI = (
    r"Raspberry Pi (Zero 2 W|Zero W|Zero|Compute Module \d|[45]00|[1-5])"
    r"( Lite)?( Model [AB])?( Plus)?( Rev \d\.\d)?"
)
_OTHERS = (
    r"Google Coral Dev Board|Freescale i\.MX8MQ Phanbell"
    r"|Radxa (ROCK ?\d( Model)? ?[ABC]( Plus| Lite)?|ROCK 5 ITX|ZERO 3[EW]?|CM[35])"
    r"|(Xunlong )?Orange Pi (5|3B|CM4)( Plus| Max| Pro|B)?"
    r"|FriendlyElec NanoPi R[56][CS]"
    r"|Hardkernel ODROID-M1"
)
_OS = (
    r"(Debian GNU/Linux|Raspbian GNU/Linux|Raspberry Pi OS|Ubuntu|Mendel GNU/Linux)"
    r" \d{1,2}(\.\d{1,2})?"
)
_KERNEL = (
    rf"\d{{1,2}}\.\d{{1,3}}(\.\d{{1,3}})?{_END}(\+rpt)?(-rpi-(2712|v8|v7l|v7|v6))?"
)

_MS = 1e7
_BYTES = 1e12
_MACS = 1e13
_COUNT = 1e6


@cache
def _targets() -> frozenset[str]:
    # Each board with and without an Edge TPU.
    names = boards()
    return frozenset([*names, *(f"{name}+coral" for name in names)])


@cache
def _cores() -> frozenset[str]:
    """Return the cores as /proc/cpuinfo and as compilers name them."""
    return frozenset([*CORES.values(), *(path.stem for path in FOLDER.glob("*.toml"))])


@cache
def _kinds() -> frozenset[str]:
    # The registry is filled by this import, which only --share needs.
    import edgec.ops  # noqa: F401

    return frozenset(OpDef.registry)


MACHINE = SharedRecord(
    {
        "board": form(
            "the model of the board, as its device tree says; no other machine's",
            f"{_PI}|{_OTHERS}",
        ),
        "cores": choices("the kinds of its cores", _cores),
        "code": choice("the kind of code that it runs", lambda: CODE),
        "memory_mb": number("its memory, MB", 1, 1e6),
        "page": number("bytes of a page of memory", 1024, 1 << 20),
        "os": form("the system and its release", _OS),
        "kernel": form(
            "the version of the kernel, without its builder's part", _KERNEL
        ),
        "glibc": form("the version of the C library", VERSION),
        "python": form("the version of Python", VERSION),
        "numpy": form("the version of numpy", VERSION),
        "emulated": flag("whether an emulator runs its code"),
        "governor": choice("the governor of the clock", lambda: GOVERNORS),
        "khz": number("the clock when it was asked, kHz", 1e3, 1e8),
        "max_khz": number("the highest clock, kHz", 1e3, 1e8),
        "celsius": number("the temperature when it was asked, °C", -50, 150),
        "throttled": number(
            "the bits of vcgencmd get_throttled: why its clock is or was lowered",
            0,
            0xFFFFF,
        ),
        "litert": form("the version of LiteRT", VERSION),
        "litert_works": flag("whether it runs a network, with the Edge TPU's library"),
        "tflite_runtime": form("the version of tflite-runtime", VERSION),
        "tflite_runtime_works": flag("the same"),
        "libedgetpu": form("the version of the Edge TPU's library", VERSION),
        "edgetpu_usb_mbps": numbers("for each Edge TPU on USB its speed, Mb/s", 1e5),
        "edgetpu_pcie": number("the number of Edge TPUs on PCIe", 0, 16),
    }
)

KIND = SharedRecord(
    {
        "kind": choice("a kind of operations", _kinds),
        "count": number("how many there are", 0, _COUNT),
        "macs": number("their multiply-accumulates", 0, _MACS),
        "ms": number("their time in an inference, where it was profiled, ms", 0, _MS),
    }
)

SEGMENT = SharedRecord(
    {
        "place": choice("where the segment is meant to run", lambda: PLACES),
        "backend": choice("what ran it", lambda: BACKENDS),
        "ops": number("the number of its operations", 0, _COUNT),
        "macs": number("its multiply-accumulates", 0, _MACS),
        "arena": number("bytes of its scratch memory", 0, _BYTES),
        "constants": number("bytes of its weights and tables", 0, _BYTES),
        "est_edgetpu_ms": number(
            "its time on the Edge TPU by the cost model, ms", 0, _MS
        ),
        "p50_ms": number("its median time, ms", 0, _MS),
        "p95_ms": number("95 % of its times are below it, ms", 0, _MS),
        "estimate_ms": number("its time by the models of the board, ms", 0, _MS),
    }
)

NETWORK = SharedRecord(
    {
        "target": choice("what the bundle was compiled for", _targets),
        "threads": number("threads that ran it", 1, 64),
        "macs": number("multiply-accumulates of an inference", 0, _MACS),
        "arena": number("bytes of scratch memory", 0, _BYTES),
        "tensors": number("bytes of the tensors between segments", 0, _BYTES),
        "weights": number("bytes of the weights", 0, _BYTES),
        "kinds": SharedList(KIND),
        "segments": SharedList(SEGMENT),
    }
)

LATENCY = SharedRecord(
    {
        "origin": choice("where the times are from", lambda: ORIGINS),
        "n": number("timed inferences", 0, 1e9),
        "launches": number("starts of the program", 0, 1e4),
        "min_ms": number("the shortest inference, ms", 0, _MS),
        "p50_ms": number("half of the inferences took no longer, ms", 0, _MS),
        "p90_ms": number("90 % took no longer, ms", 0, _MS),
        "p95_ms": number("95 % took no longer, ms", 0, _MS),
        "p99_ms": number("99 % took no longer, ms", 0, _MS),
        "max_ms": number("the longest, ms", 0, _MS),
        "mean_ms": number("the mean, ms", 0, _MS),
        "first_ms": number("the longest first inference of a launch, ms", 0, _MS),
        "load_ms": number("the longest time of loading, ms", 0, _MS),
        "rss": number("the highest resident memory, bytes", 0, _BYTES),
        "estimate_ms": number(
            "the median by the models of the board, beside a measured one, ms", 0, _MS
        ),
        "slowed": flag("whether the board lowered its clock meanwhile"),
        "slowing_known": flag("whether the board says so"),
        "celsius_before": number(
            "temperature before the first inference, °C", -50, 150
        ),
        "celsius_max": number("the highest temperature, °C", -50, 150),
        "mhz_min": number("the lowest clock, MHz", 1, 1e5),
        "mhz_max": number("the highest clock, MHz", 1, 1e5),
    }
)

REPORT = SharedRecord(
    {
        "share_schema": number("the version of this list", 1, 1000),
        "of": choice("what wrote it", lambda: ("bench", "doctor")),
        "edgec": form("the version of edgec", VERSION),
        "date": form("the day", r"20\d\d-[01]\d-[0-3]\d"),
        "machine": MACHINE,
        "network": NETWORK,
        "latency": LATENCY,
    }
)
