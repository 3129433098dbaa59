"""Model files in, a Graph out, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgec.errors import InputError
from edgec.frontends.onnx import read_onnx
from edgec.frontends.tflite import read_tflite
from edgec.ir import Graph

_READERS = {".onnx": read_onnx, ".tflite": read_tflite}


def read_model(path: Path, input_shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """The graph of a .onnx or .tflite file; `input_shapes` freezes dynamic inputs by name."""
    if not path.is_file():
        raise InputError(f"no such model file: {path}", hint="check the path")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path.name} is neither .onnx nor .tflite", str(path), "export the model to one of them")
    return reader(path, input_shapes or {})
