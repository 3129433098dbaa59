"""What every device can do, and what a bench on it gives.  The devices themselves are in links/, one file per kind."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from edgec_runtime import Bundle, InputError, Summary
from edgec_runtime.errors import did_you_mean
from edgec_runtime.inputs import Array

LINKS = Path(__file__).parent / "links"


@dataclass(frozen=True)
class Series:
    """Latencies of one segment, or of the whole; ms is empty where there are none.

    how: "measured", or where an estimate is from.
    """

    name: str
    place: str
    ms: tuple[float, ...]
    how: str

    def summary(self) -> Summary | None:
        """None where there is no latency."""
        return Summary.of(self.ms) if self.ms else None


@dataclass(frozen=True)
class BenchResult:
    """Latencies of a bundle on a device, in ms.  estimated: they were not measured on that hardware.

    notes: what a reader must know to use the figures, for example why there are none.
    """

    device: str
    model: str
    runs: int
    estimated: bool
    segments: tuple[Series, ...]
    total: Series
    notes: tuple[str, ...] = ()
    unit: str = "ms"

    def table(self) -> str:
        """Markdown: a row per segment, then the whole."""
        unit = f"est. {self.unit}" if self.estimated else self.unit
        lines = [
            f"{self.model} on {self.device}, {unit}, {self.runs} run{'s' * (self.runs != 1)}",
            "",
            "| segment | place | p50 | p95 | max | how |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for s in (*self.segments, self.total):
            found = s.summary()
            figures = " | ".join(f"{v:.3f}" for v in (found.p50, found.p95, found.max)) if found else "- | - | -"
            lines.append(f"| {s.name} | {s.place} | {figures} | {s.how} |")
        return "\n".join([*lines, "", *self.notes]).rstrip()

    def to_json(self) -> dict[str, Any]:
        """For `--json` and tables: all samples and their summaries."""

        def one(s: Series) -> dict[str, Any]:
            found = s.summary()
            summary = found.as_dict() if found else None
            return {"name": s.name, "place": s.place, "how": s.how, "samples": list(s.ms), "summary": summary}

        return {
            "device": self.device,
            "model": self.model,
            "runs": self.runs,
            "unit": self.unit,
            "estimated": self.estimated,
            "segments": [one(s) for s in self.segments],
            "total": one(self.total),
            "notes": list(self.notes),
        }


class Device(ABC):
    """Something that runs bundles."""

    url: str

    @abstractmethod
    def run(self, bundle: Bundle, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference: outputs by name.  Raises InputError for inputs that do not fit, DeviceError or ToolError."""

    @abstractmethod
    def bench(self, bundle: Bundle, runs: int = 50, inputs: Mapping[str, Array] | None = None) -> BenchResult:
        """Latencies.  inputs: default is reproducible noise."""


def device_for(url: str) -> Device:
    """The device of "local:", "emulated:pi4" and the like.  Raises InputError for a URL that none of links/ knows."""
    _, module, rest = link_module(url)
    opened: Device = module.open_device(rest)
    return opened


def link_module(url: str) -> tuple[str, ModuleType, str]:
    """The kind of a URL, the file of links/ that knows it, and the rest of the URL.  Raises InputError."""
    kind, _, rest = url.strip().partition(":")
    kinds = sorted(p.stem for p in LINKS.glob("*.py") if not p.stem.startswith("_"))
    if kind not in kinds:
        raise InputError(
            f'"{url}" is no device{did_you_mean(kind, kinds)}',
            hint=f"use {' or '.join(sorted(usage(k) for k in kinds))}",
        )
    return kind, importlib.import_module(f"edgec_devices.links.{kind}"), rest


def usage(kind: str) -> str:
    """How a URL of this kind is written, for messages."""
    text: str = importlib.import_module(f"edgec_devices.links.{kind}").USAGE
    return text
