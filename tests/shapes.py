"""The detector of circles, squares and triangles of the fixtures, compiled once a run."""

from __future__ import annotations

from pathlib import Path

import edgec
from tests import builds
from tests.conftest import ROOT


def _compile(to: Path) -> None:
    model = ROOT / "fixtures" / "shapes" / "shapes.onnx"
    edgec.compile(model, "host", to / "net.edgec", threads=2)


def bundle() -> Path:
    """The bundle for this machine, with code for two threads."""
    return builds.once("shapes", _compile) / "net.edgec"
