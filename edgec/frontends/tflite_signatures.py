"""The signatures of a .tflite file: names of a function's arguments and results.

Source: SignatureDef in TFLite's schema, version 3. The tensors' own names differ from
those: "serving_default_fixed_input:0" is the argument "fixed_input".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgec.frontends.tflite_file import TfliteFile, damage_told, text

TensorNames = dict[str, str]
"""The tensor of each argument or result."""


def tflite_signatures(path: Path) -> dict[str, dict[str, TensorNames]]:
    """Return the signatures of the file's main subgraph; {} of other formats.

    The form is {key: {"inputs": {argument: tensor}, "outputs": {result: tensor}}}.
    Signatures of other subgraphs belong to no code of a bundle and are left out.

    Raises:
        InputError: the file is damaged
    """
    if path.suffix.lower() != ".tflite":
        return {}
    signatures: dict[str, dict[str, TensorNames]] = {}
    with damage_told(path):
        file = TfliteFile.load(path, any_type=True)
        for signature in file.model.signatureDefs or ():
            if signature.subgraphIndex != 0:
                continue
            signatures[text(signature.signatureKey)] = {
                "inputs": _named(file, signature.inputs),
                "outputs": _named(file, signature.outputs),
            }
    return signatures


def _named(file: TfliteFile, maps: Sequence[Any] | None) -> TensorNames:
    """Return the tensors of a signature's TensorMap rows."""
    named: TensorNames = {}
    for row in maps or ():
        named[text(row.name)] = file.name(int(row.tensorIndex))
    return named
