"""A damaged .tflite gives an error of ours or a graph, never anything else."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edgec_partitioner.source import judge
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.emit.tflite import write_tflite
from edgec.errors import EdgecError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.operators import read_operators
from tests.emit.test_c import residual_int8

WHOLE = write_tflite(residual_int8())


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(8, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes(flips: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, value in flips:
        data[at] = value
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "model.tflite"
        path.write_bytes(data)
        with contextlib.suppress(EdgecError):
            read_model(path)
        with contextlib.suppress(EdgecError):
            judge(read_operators(path))


def test_more_dimensions_than_any_tensor_has(tmp_path: Path) -> None:
    model = schema.ModelT.InitFromPackedBuf(WHOLE, 0)
    model.subgraphs[0].tensors[1].shape = np.ones(104, np.int32)
    builder = flatbuffers.Builder(len(WHOLE) + 1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path = tmp_path / "model.tflite"
    path.write_bytes(bytes(builder.Output()))
    with pytest.raises(UnsupportedError, match="has 104 dimensions"):
        read_model(path)
    with contextlib.suppress(EdgecError):
        judge(read_operators(path))
