"""Signatures of a TFLite model: tensors by the names of its author's function.

A model file may give names to a function's arguments and results apart from the
tensors' own ("fixed_input" for "serving_default_fixed_input:0"). A bundle keeps them in
`signatures.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Dict, Mapping, Tuple

from ..errors import BundleError
from .archive import Bundle
from .json_reader import JsonReader

SIGNATURES_FILE = "signatures.json"
"""In the bundle of a model with signatures:
{key: {"inputs": {argument: tensor}, "outputs": {result: tensor}}}.
"""


@dataclass(frozen=True)
class SignatureInfo:
    """A function of the model.

    Attributes:
        key: the function's name, often "serving_default"
        inputs: the tensor of each argument
        outputs: the tensor of each result
    """

    key: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def read_signatures(bundle: Bundle) -> Dict[str, SignatureInfo]:
    """Return the signatures of a bundle by key; none for a model without.

    Raises:
        BundleError: the file is damaged, or names a tensor that the model lacks
    """
    # ONNX files have no signatures, and most older .tflite files neither.
    if SIGNATURES_FILE not in bundle.names:
        return {}
    try:
        value = json.loads(bundle.read(SIGNATURES_FILE))
    except (ValueError, RecursionError) as e:
        raise BundleError(
            f"the signatures are not JSON: {e}",
            at=SIGNATURES_FILE,
            hint="compile the model again",
        ) from e

    top = JsonReader(value, SIGNATURES_FILE)
    manifest = bundle.manifest
    signatures: Dict[str, SignatureInfo] = {}
    for key in top.value:
        row = JsonReader(top.get(key, dict), f'signature "{key}"')
        inputs = _tensors(row, "inputs", manifest.inputs)
        outputs = _tensors(row, "outputs", manifest.outputs)
        signatures[key] = SignatureInfo(key, inputs, outputs)
    return signatures


def _tensors(row: JsonReader, side: str, known: Tuple[str, ...]) -> Dict[str, str]:
    """Return the tensor of each argument or result.

    Args:
        row: the signature
        side: "inputs" or "outputs"
        known: the names that tensors may have
    """
    named: Dict[str, str] = row.get(side, dict)
    # A caller finds tensors by these names without another check.
    for tensor in named.values():
        if not isinstance(tensor, str) or tensor not in known:
            row.bad(f"names a tensor that is not one of the model's {side}", tensor)
    return named
