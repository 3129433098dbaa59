"""Writes a model as ai-edge-quantizer makes it, in an environment of its own.

    python tflite_quantizer.py MODEL WAY SAMPLES OUT

WAY: the name of a function of the quantizer's recipes. SAMPLES: .npz with an array x
[sample, …] of the model's one input, for ways that calibrate. It needs numpy and the
quantizer, nothing of edgec's.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np


def main() -> None:
    from ai_edge_litert.interpreter import Interpreter

    quantizer = import_module("ai_edge_quantizer.quantizer")
    recipe = import_module("ai_edge_quantizer.recipe")
    sign = import_module("accuracy_peer")._signed  # beside this file
    model, way, samples, out = sys.argv[1:]
    with tempfile.TemporaryDirectory() as tmp:
        signed = sign(model, Path(tmp) / "signed.tflite")
        key, named = next(iter(Interpreter(signed).get_signature_list().items()))
        work = quantizer.Quantizer(signed, getattr(recipe, way)())
        found = None
        if work.need_calibration:
            with np.load(samples) as given:
                found = work.calibrate(
                    {key: [{named["inputs"][0]: s} for s in given["x"]]}
                )
        work.quantize(found).export_model(out, overwrite=True)


if __name__ == "__main__":
    main()
