"""For an emulated Python: one inference of an ONNX file by onnxruntime between
picycles' marks, one thread.

    picycles run --board pi5 --site ort python3 run_onnxruntime.py MODEL.onnx
"""

import sys

import onnxruntime
from guest_outputs import filled, print_outputs
from picycles_guest import begin, end, warm

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(
    sys.argv[1], options, providers=["CPUExecutionProvider"]
)
values = {value.name: filled(value.shape) for value in session.get_inputs()}
session.run(None, values)
warm()
session.run(None, values)
begin()
results = session.run(None, values)
end()
print_outputs(results)
