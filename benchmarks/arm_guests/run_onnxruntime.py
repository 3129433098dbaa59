"""For an emulated Python: one inference of an ONNX file by onnxruntime between
picycles' marks, one thread.

    picycles run --board pi5 --site ort python3 run_onnxruntime.py MODEL.onnx
"""

import sys

import onnxruntime
from guest_outputs import filled, print_outputs
from guest_run import counted

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(
    sys.argv[1], options, providers=["CPUExecutionProvider"]
)
values = {value.name: filled(value.shape) for value in session.get_inputs()}
print_outputs(counted(lambda: session.run(None, values)))
