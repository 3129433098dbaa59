"""For an emulated Python: one inference of an ONNX file by OpenVINO's CPU plugin between
picycles' marks, one thread.

    picycles run --board pi5 --site openvino python3 run_openvino.py MODEL.onnx

It computes in float16 where the core can, as the plugin chooses by itself.
"""

import sys

import openvino
from guest_outputs import filled, print_outputs
from guest_run import counted

options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
engine = openvino.Core().compile_model(sys.argv[1], "CPU", options)
request = engine.create_infer_request()
values = {value.any_name: filled(list(value.shape)) for value in engine.inputs}
results = counted(lambda: request.infer(values, share_inputs=True))
print_outputs([results[output] for output in engine.outputs])
