"""Latencies that others measured on boards, of the data folder's latencies.jsonl.

Its README says where they are from and which traps they have; the rules for these are here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.data_folder import SHARED

FILE = SHARED / "latencies" / "latencies.jsonl"
DISTURBED = 1.3
"""A mean of more than this times the least is of a disturbed run: then the least counts."""


@dataclass(frozen=True)
class Measured:
    """One published time.

    Attributes:
        network: its name in the source
        shape: of its input, as the source writes it
        threads: threads of the CPU
        ms: the time of one inference
    """

    network: str
    shape: str
    threads: int
    ms: float


@dataclass(frozen=True)
class Series:
    """The times of one runtime on one board.

    Attributes:
        board: edgec's name of the board
        title: the source's name of it
        runtime: the source's name of the runtime
        clock_ghz: the clock of the measured board, which may not be the profile's
        core: the source's name of the cores that ran, where a board has two kinds
        bits: of the operating system, as the source has it, where it had both
    """

    board: str
    title: str
    runtime: str
    clock_ghz: float
    core: str = ""
    bits: str = ""

    def times(self) -> Mapping[tuple[str, int], Measured]:
        """Return the times by network and threads; the least where it has several."""
        times: dict[tuple[str, int], Measured] = {}
        for row in _rows():
            if not self._has(row):
                continue
            time = Measured(row["model"], row["input"], row["threads"], _ms(row))
            earlier = times.get((time.network, time.threads))
            if earlier is None or time.ms < earlier.ms:
                times[time.network, time.threads] = time
        return times

    def _has(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of the file belongs to the series."""
        return (
            row["device"] == "cpu"
            and row["board"] == self.title
            and row["runtime"] == self.runtime
            and row["clock_ghz"] == self.clock_ghz
            and self.core in ("", row["core"])
            and self.bits in ("", row.get("os_bits"))
        )


NCNN = (
    Series("pi-zero2", "Raspberry Pi Zero 2 W", "ncnn", 1.0),
    Series("pi3", "Raspberry Pi 3B+", "ncnn", 1.4),
    Series("pi4", "Raspberry Pi 4B", "ncnn", 1.8),
    Series("pi5", "Raspberry Pi 5", "ncnn", 2.4),
    Series("rk3566", "Orange Pi CM4 (RK3566)", "ncnn", 1.8),
    Series("rk3588", "RK3588", "ncnn", 2.4, core="A76"),
)
"""The series of ncnn's own benchmark."""

LITERT = (
    Series("pi3", "Raspberry Pi 3B+", "TFLite + XNNPACK", 1.4, bits="64-bit"),
    Series("pi4", "Raspberry Pi 4B", "TFLite benchmark_model + XNNPACK", 1.5),
    Series("pi4", "Raspberry Pi 4B", "TFLite + XNNPACK", 1.5, bits="64-bit"),
    Series("pi5", "Raspberry Pi 5", "TFLite benchmark_model + XNNPACK", 2.4),
)
"""The series of TensorFlow Lite by Nobuo Tsukamoto: 2.18 of 2024 as benchmark_model, 2.5
of 2021 in Python.
"""

SERIES = {"ncnn": NCNN, "litert": LITERT}


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def _ms(row: Mapping[str, Any]) -> float:
    """Return the time of a row: its mean, or its least if the run was disturbed."""
    ms, least = float(row["ms"]), row.get("ms_min")
    return float(least) if least and ms > DISTURBED * least else ms
