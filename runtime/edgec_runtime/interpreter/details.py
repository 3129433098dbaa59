"""Descriptions of tensors with the keys of LiteRT's `get_input_details`.

Source: the interface of tf.lite.Interpreter, in LiteRT's API reference.
"""

from __future__ import annotations

from typing import Any, Dict

import numpy as np

from ..tensors import TensorInfo


def tensor_details(info: TensorInfo, index: int) -> Dict[str, Any]:
    """Return the description of a tensor.

    Its keys are "name", "index", "shape" and "shape_signature" (int32 arrays, equal: a
    bundle's shapes are fixed), "dtype" (a numpy scalar type), "quantization" (scale and
    zero point of a tensor with one of each, else 0.0 and 0), "quantization_parameters"
    and "sparsity_parameters" (empty: tensors at a border are dense).

    Args:
        info: the tensor
        index: its number in the interpreter
    """
    shape = np.array(info.shape, np.int32)
    parameters = _quantization_parameters(info)
    # A tensor with a scale for each channel has no pair that says it all.
    pair = (0.0, 0)
    if len(parameters["scales"]) == 1:
        scale = float(parameters["scales"][0])
        zero_point = int(parameters["zero_points"][0])
        pair = (scale, zero_point)
    return {
        "name": info.name,
        "index": index,
        "shape": shape,
        "shape_signature": shape.copy(),
        "dtype": info.numpy_dtype.type,
        "quantization": pair,
        "quantization_parameters": parameters,
        "sparsity_parameters": {},
    }


def _quantization_parameters(info: TensorInfo) -> Dict[str, Any]:
    """Return "scales", "zero_points" and "quantized_dimension" of a tensor.

    real = scales[i] · (q − zero_points[i]), with i along the quantized dimension. Both
    arrays are empty for a tensor without quantization.
    """
    quant = info.quant
    scales = () if quant is None else quant.scale
    zero_points = () if quant is None else quant.zero_point
    axis = None if quant is None else quant.axis
    return {
        "scales": np.array(scales, np.float32),
        "zero_points": np.array(zero_points, np.int32),
        # TFLite has 0 where there is one scale for the whole tensor.
        "quantized_dimension": axis or 0,
    }
