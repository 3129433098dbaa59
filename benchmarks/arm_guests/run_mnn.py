"""For an emulated Python: one inference of an MNN file between picycles' marks, one
thread.

    picycles run --board pi5 --site mnn python3 run_mnn.py MODEL.mnn 1x3x224x224 [low]

The last word lets it compute in float16 where the core can, as MNN's `precision: low`
does; without, it computes in float32.
"""

from __future__ import annotations

import sys
from typing import Any

import MNN
from guest_outputs import filled, print_outputs
from guest_run import counted

path = sys.argv[1]
shape = [int(word) for word in sys.argv[2].split("x")]
precision = "low" if "low" in sys.argv else "normal"
config = {"backend": "CPU", "numThread": 1, "precision": precision}
manager = MNN.nn.create_runtime_manager((config,))
net = MNN.nn.load_module_from_file(path, [], [], runtime_manager=manager)
value = MNN.expr.const(filled(shape), shape, MNN.expr.NCHW, MNN.expr.float)


def run() -> Any:
    """Compute all outputs, each of which is read whole."""
    results = net.forward([value])
    for result in results:
        result.read()
    return results


outputs = counted(run)
# Its own layout pads channels, which would be part of the mean.
print_outputs([MNN.expr.convert(x, MNN.expr.NCHW).read() for x in outputs])
