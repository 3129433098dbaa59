"""For an emulated Python: one inference of an MNN file between picycles' marks, one
thread.

    picycles run --board pi5 --site mnn python3 run_mnn.py MODEL.mnn 1x3x224x224 [low]

The last word lets it compute in float16 where the core can, as MNN's `precision: low`
does; without, it computes in float32.
"""

import sys

import MNN
import numpy as np
from picycles_guest import begin, end, warm

path = sys.argv[1]
shape = [int(word) for word in sys.argv[2].split("x")]
precision = "low" if "low" in sys.argv else "normal"
config = {"backend": "CPU", "numThread": 1, "precision": precision}
manager = MNN.nn.create_runtime_manager((config,))
net = MNN.nn.load_module_from_file(path, [], [], runtime_manager=manager)
flat = (np.arange(int(np.prod(shape))) * 37 % 255 / 255).astype(np.float32)
value = MNN.expr.const(flat.reshape(shape), shape, MNN.expr.NCHW, MNN.expr.float)


def run() -> float:
    """The mean of the first output, which is read whole."""
    results = net.forward([value])
    return float(np.asarray(results[0].read()).mean())


run()
warm()
run()
begin()
mean = run()
end()
print("# mean of the first output", mean)
