"""A damaged .tflite gives an error of ours or a graph, never anything else."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from edgec_partitioner.source import judge
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.emit.tflite import write_tflite
from edgec.errors import EdgecError, InputError, UnsupportedError
from edgec.frontends import read_model
from edgec.frontends.operators import read_operators
from tests.emit.test_c import residual_int8

WHOLE = write_tflite(residual_int8())


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(8, len(WHOLE) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    )
)
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


def _written(model: Any, path: Path) -> Path:
    builder = flatbuffers.Builder(len(WHOLE) + 1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_a_constant_that_is_written(given: bool, opaque: bool, tmp_path: Path) -> None:
    """An operator's result, or an input of the model."""
    model = schema.ModelT.InitFromPackedBuf(WHOLE, 0)
    sub = model.subgraphs[0]
    weights = sub.operators[0].inputs[1]
    if given:
        sub.inputs = np.append(sub.inputs, weights)
    else:
        sub.operators[1].outputs = np.array([weights], np.int32)
    with pytest.raises(
        InputError, match="is both constant and an input or the result of an operator"
    ):
        read_model(_written(model, tmp_path / "model.tflite"), opaque=opaque)


def test_more_dimensions_than_any_tensor_has(tmp_path: Path) -> None:
    model = schema.ModelT.InitFromPackedBuf(WHOLE, 0)
    model.subgraphs[0].tensors[1].shape = np.ones(104, np.int32)
    path = _written(model, tmp_path / "model.tflite")
    with pytest.raises(UnsupportedError, match="has 104 dimensions"):
        read_model(path)
    with contextlib.suppress(EdgecError):
        judge(read_operators(path))
