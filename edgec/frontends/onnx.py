"""placeholder"""
from pathlib import Path
from typing import Mapping
from edgec.ir import Graph
def read_onnx(path: Path, input_shapes: Mapping[str, tuple[int, ...]]) -> Graph:
    raise NotImplementedError
