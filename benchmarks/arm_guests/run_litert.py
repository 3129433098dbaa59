"""For an emulated Python: one inference of a .tflite file by LiteRT between picycles'
marks, one thread.

    picycles run --board pi5 --site litert python3 run_litert.py MODEL.tflite 1x3x224x224

The shape is that of the ONNX file which the .tflite file was made of, NCHW.
"""

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from guest_outputs import filled, print_outputs
from guest_run import counted

engine = Interpreter(sys.argv[1], num_threads=1)
engine.allocate_tensors()
(wanted,) = engine.get_input_details()
value = filled([int(word) for word in sys.argv[2].split("x")])
# The converter lets images be NHWC.
if tuple(wanted["shape"]) != value.shape:
    value = np.ascontiguousarray(np.moveaxis(value, 1, -1))
engine.set_tensor(wanted["index"], value)
counted(engine.invoke)
print_outputs([engine.get_tensor(x["index"]) for x in engine.get_output_details()])
