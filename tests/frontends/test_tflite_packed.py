"""Weights that a .tflite file packs: sparse ones, and those of 4 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from edgec.errors import InputError
from edgec.frontends import read_model
from edgec.frontends.tflite_packed import int4
from edgec.ir import interp
from tests.frontends.tflite_operators import Given, model_of, packed, reference

_RNG = np.random.default_rng(3)
BLOCK = 4


def sparse_weights() -> Any:
    """Four of five blocks of a row are zeros, and so is a whole row."""
    w = _RNG.normal(size=(8, 16)).astype(np.float32)
    w[np.repeat(_RNG.random((8, 16 // BLOCK)) < 0.7, BLOCK, 1)] = 0
    w[2] = 0
    return w


def _dense_dimension(size: int) -> Any:
    kind = schema.DimensionMetadataT()
    kind.format = schema.DimensionType.DENSE
    kind.denseSize = size
    return kind


def _rows(ends: list[int], places: list[int]) -> Any:
    """Compressed rows, with segments of 16 bits and places of 8."""
    kind = schema.DimensionMetadataT()
    kind.format = schema.DimensionType.SPARSE_CSR
    kind.arraySegmentsType = schema.SparseIndexVector.Uint16Vector
    kind.arrayIndicesType = 3
    kind.arraySegments = schema.Uint16VectorT()
    kind.arrayIndices = schema.Uint8VectorT()
    kind.arraySegments.values = np.array(ends, np.uint16)
    kind.arrayIndices.values = np.array(places, np.uint8)
    return kind


def sparse(w: Any, block: int) -> Given:
    """Weights stored by compressed rows, of single elements or of blocks of a row."""
    rows, columns = w.shape
    blocks = w.reshape(rows, columns // block, block)
    there = blocks.any(-1)
    ends = [0, *np.cumsum(there.sum(1)).tolist()]
    places = np.nonzero(there)[1].tolist()
    of = schema.SparsityParametersT()
    of.traversalOrder = np.arange(2 if block == 1 else 3, dtype=np.int32)
    of.blockMap = np.array([] if block == 1 else [1], np.int32)
    of.dimMetadata = [_dense_dimension(rows), _rows(ends, places)]
    if block > 1:
        of.dimMetadata.append(_dense_dimension(block))
    return Given(w, True, stored=blocks[there].tobytes(), fields={"sparsity": of})


def matrix_product(w: Given, out: int, x: Given, dtype: Any = np.float32) -> Any:
    bias = Given(np.zeros(out, np.float32 if dtype == np.float32 else np.int32), True)
    return model_of(
        "FULLY_CONNECTED",
        ("FullyConnectedOptions", {}),
        [x, w, bias],
        [((3, out), dtype)],
        8,
    )


@pytest.mark.parametrize("block", [1, BLOCK])
@pytest.mark.parametrize("densify", [True, False])
def test_sparse_weights(block: int, densify: bool, tmp_path: Path) -> None:
    w = sparse_weights()
    x = Given(_RNG.normal(size=(3, 16)).astype(np.float32))
    model = matrix_product(sparse(w, block), 8, x)
    if densify:
        _densified(model)
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    got = interp(read_model(path), {"x0": x.data})
    np.testing.assert_allclose(got["y0"], x.data @ w.T, atol=1e-5)
    if densify:
        np.testing.assert_allclose(
            got["y0"], reference(packed(model), {"x0": x.data}, True)["y0"], atol=1e-5
        )


def _densified(model: Any) -> None:
    """An operator of its own makes the weights dense."""
    (sub,), code, op = model.subgraphs, schema.OperatorCodeT(), schema.OperatorT()
    tensor = schema.TensorT()
    tensor.name = b"dense"
    tensor.shape = sub.tensors[1].shape
    tensor.type = sub.tensors[1].type
    tensor.buffer = len(model.buffers)
    model.buffers.append(schema.BufferT())
    sub.tensors.append(tensor)
    code.builtinCode = schema.BuiltinOperator.DENSIFY
    code.deprecatedBuiltinCode = 124
    code.version = 1
    model.operatorCodes.append(code)
    op.opcodeIndex = 1
    op.inputs = np.array([1], np.int32)
    op.outputs = np.array([len(sub.tensors) - 1], np.int32)
    sub.operators[0].inputs[1] = op.outputs[0]
    sub.operators.insert(0, op)


def _cut(of: Any) -> None:
    of.dimMetadata[1].arrayIndices.values[0] = 200


def _short(of: Any) -> None:
    of.dimMetadata[1].arraySegments.values[-1] -= 1


def _twice(of: Any) -> None:
    of.traversalOrder[0] = 1


def _large(of: Any) -> None:
    of.dimMetadata[0].denseSize = 1 << 30


@pytest.mark.parametrize("change", [_cut, _short, _twice, _large])
def test_damaged_sparsity(change: Any, tmp_path: Path) -> None:
    model = matrix_product(
        sparse(sparse_weights(), 1), 8, Given(np.zeros((3, 16), np.float32))
    )
    change(model.subgraphs[0].tensors[1].sparsity)
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    with pytest.raises(InputError, match="spars"):
        read_model(path)


def four_bits(w: Any, scales: list[float], axis: int) -> Given:
    halves = np.append(w.reshape(-1), [0] * (w.size % 2)).astype(np.uint8) & 15
    stored = (halves[::2] | halves[1::2] << 4).tobytes()
    quant = (scales, [0] * len(scales), axis)
    return Given(w, True, quant, stored, {"type": schema.TensorType.INT4})


def test_weights_of_four_bits(tmp_path: Path) -> None:
    w = _RNG.integers(-7, 8, (4, 3, 3, 3)).astype(np.int8)
    x = Given(
        _RNG.integers(-128, 128, (1, 6, 5, 3)).astype(np.int8), quant=([0.05], [3], 0)
    )
    bias = Given(
        np.arange(4, dtype=np.int32) * 40,
        True,
        ([0.001, 0.002, 0.003, 0.004], [0] * 4, 0),
    )
    scales = [0.02, 0.04, 0.06, 0.08]
    options = ("Conv2DOptions", {"strideH": 1, "strideW": 1, "padding": 1})
    model = model_of(
        "CONV_2D",
        options,
        [x, four_bits(w, scales, 0), bias],
        [((1, 4, 3, 4), np.int8)],
        7,
    )
    model.subgraphs[0].tensors[3].quantization = schema.QuantizationParametersT()
    of = model.subgraphs[0].tensors[3].quantization
    of.scale = np.array([0.11], np.float32)
    of.zeroPoint = np.array([-4], np.int64)
    path = tmp_path / "m.tflite"
    path.write_bytes(packed(model))
    got = interp(read_model(path), {"x0": x.data})
    want = reference(packed(model), {"x0": x.data})
    np.testing.assert_array_equal(got["y0"], want["y0"])


def test_an_odd_number_of_four_bits() -> None:
    w = np.arange(-7, 8, dtype=np.int8)
    stored = four_bits(w, [1.0], 0).stored
    assert stored is not None
    np.testing.assert_array_equal(int4(stored, (3, 5)), w.reshape(3, 5))
    with pytest.raises(ValueError, match="9 bytes for 15 elements"):
        int4(stored + b"\0", (15,))
