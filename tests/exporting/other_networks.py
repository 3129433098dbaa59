"""Networks beside the detector of shapes that an exported program reads, compiled once a
run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import edgec
from tests import builds
from tests.conftest import ROOT
from tests.exporting.detectors import detector
from tests.interpreters import networks

_DIGITS = ROOT / "fixtures" / "digits"


def _yolo(to: Path) -> None:
    """In a letterbox; its task is in its file."""
    edgec.compile(detector(to / "yolo.onnx"), "host", to / "net.edgec")


def _ssd(to: Path) -> None:
    """A network that picks its boxes."""
    model, task = to / "heads.tflite", to / "task.json"
    model.write_bytes(networks.tflite("heads"))
    task.write_text(json.dumps({"format": "tflite-ssd", "threshold": 0.1}))
    edgec.compile(model, "host", to / "net.edgec", task=str(task))


def _digits(to: Path) -> None:
    """An int8 classifier of grey pictures."""
    edgec.compile(
        _DIGITS / "digits.onnx",
        "host",
        to / "net.edgec",
        calibrate=_DIGITS / "digits_calibration.npz",
        task="classification",
        quantize="fast",
    )


_MAKE: Mapping[str, Callable[[Path], None]] = {
    "yolo": _yolo,
    "ssd": _ssd,
    "digits": _digits,
}
NAMES = tuple(_MAKE)


def bundle(name: str) -> Path:
    """One of `NAMES`, for this machine."""
    return builds.once(f"camera network {name}", _MAKE[name]) / "net.edgec"
