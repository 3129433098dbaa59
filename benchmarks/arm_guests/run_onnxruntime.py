"""For an emulated Python: one inference of an ONNX file by onnxruntime between
picycles' marks, one thread.

    picycles run --board pi5 --site ort python3 run_onnxruntime.py MODEL.onnx
"""

import sys

import numpy as np
import onnxruntime
from picycles_guest import begin, end, warm

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(
    sys.argv[1], options, providers=["CPUExecutionProvider"]
)
values = {}
for value in session.get_inputs():
    count = int(np.prod(value.shape))
    flat = (np.arange(count) * 37 % 255 / 255).astype(np.float32)
    values[value.name] = flat.reshape(value.shape)
session.run(None, values)
warm()
session.run(None, values)
begin()
results = session.run(None, values)
end()
print("# mean of the first output", float(results[0].mean()))
