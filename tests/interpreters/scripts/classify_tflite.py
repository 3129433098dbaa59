"""Classify pictures with tflite_runtime: python3 classify_tflite.py MODEL PICTURES.npy"""

import sys
from typing import Any

import numpy as np
from tflite_runtime.interpreter import Interpreter


def quantized(pictures: Any, details: Any) -> Any:
    """Pictures of 0…255 in the type and scale of the model's input."""
    if details["dtype"] == np.float32:
        return pictures.astype(np.float32) / 255
    scale, zero_point = details["quantization"]
    limits = np.iinfo(details["dtype"])
    numbers = np.round(pictures / 255 / scale) + zero_point
    return np.clip(numbers, limits.min, limits.max).astype(details["dtype"])


def probabilities(numbers: Any, details: Any) -> Any:
    """The output as real numbers."""
    if details["dtype"] == np.float32:
        return numbers
    scale, zero_point = details["quantization"]
    return scale * (numbers.astype(np.int32) - zero_point)


interpreter = Interpreter(model_path=sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
input_details = interpreter.get_input_details()[0]
output_details = interpreter.get_output_details()[0]
print(input_details["shape"].tolist(), np.dtype(input_details["dtype"]).name)

for picture in np.load(sys.argv[2]):
    given = quantized(picture[np.newaxis], input_details)
    interpreter.set_tensor(input_details["index"], given)
    interpreter.invoke()
    found = interpreter.get_tensor(output_details["index"])[0]
    real = probabilities(found, output_details)
    best = int(np.argmax(real))
    print(f"class {best}: {real[best]:.4f}", found.tolist())
