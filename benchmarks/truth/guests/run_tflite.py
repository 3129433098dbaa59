"""For an emulated Python: one inference of a .tflite file by LiteRT, one thread, between
marks.

    python3 run_tflite.py NETWORK.tflite
"""

from __future__ import annotations

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from picycles_guest import begin, end, warm

engine = Interpreter(sys.argv[1], num_threads=1)
engine.allocate_tensors()
random = np.random.default_rng(0)
for value in engine.get_input_details():
    # Bytes of a quantized network cover their whole range.
    low, high = (-128, 128) if value["dtype"] == np.int8 else (0, 1)
    array = random.uniform(low, high, value["shape"]).astype(value["dtype"])
    engine.set_tensor(value["index"], array)
warm()
engine.invoke()
begin()
engine.invoke()
end()
