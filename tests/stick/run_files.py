"""Runs compiled files on an Edge TPU: library, then for each call file, inputs, outputs.

It writes the versions of the interpreter, Debian and Python as a line of JSON, and at the
end "done". It runs in a process of its own, with the packages of that Python alone.
"""

import importlib.metadata
import json
import platform
import sys

import numpy as np

try:
    from ai_edge_litert.interpreter import Interpreter, load_delegate

    project = "ai-edge-litert"
except ImportError:
    from tflite_runtime.interpreter import Interpreter, load_delegate

    project = "tflite-runtime"

facts = {
    "interpreter": f"{project} {importlib.metadata.version(project)}",
    "debian": platform.freedesktop_os_release()["VERSION_CODENAME"],
    "python": ".".join(platform.python_version_tuple()[:2]),
}
print(json.dumps(facts), flush=True)

library, *calls = sys.argv[1:]
delegate = load_delegate(library, {"device": "usb"})
interpreters = {}
for i in range(0, len(calls), 3):
    file, given, made = calls[i : i + 3]
    if file not in interpreters:
        interpreters[file] = Interpreter(file, experimental_delegates=[delegate])
        interpreters[file].allocate_tensors()
    interpreter = interpreters[file]
    with np.load(given) as arrays:
        for k, details in enumerate(interpreter.get_input_details()):
            interpreter.set_tensor(details["index"], arrays[f"arr_{k}"])
    interpreter.invoke()
    outputs = [
        interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()
    ]
    np.savez(made, *outputs)
print("done")
